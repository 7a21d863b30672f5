# A server whose processes replace each other while clients connect.

# Connects again and again, with and without a session, until the file exists. Prints the numbers of connections and
# resumed sessions. Any failure is an error.
restart_load='
import os, socket, ssl, sys
context = ssl.create_default_context(cafile="ca.pem")
context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
made = resumed = 0
session = None
long = context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), server_hostname="localhost")
while not os.path.exists(sys.argv[2]):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as plain:
        with context.wrap_socket(plain, server_hostname="localhost", session=session if made % 2 else None) as connection:
            connection.sendall(b"hello\n")
            assert connection.makefile("rb").readline() == b"hello\r\n"
            made, resumed = made + 1, resumed + connection.session_reused
            session = connection.session
    long.sendall(b"still\n")
    if made == 1: print("loading", flush=True)
    if long.recv(100) == b"":
        print("the long connection was closed", flush=True)
        sys.exit(1)
print(f"made {made}, resumed {resumed}", flush=True)
'

check_restarting_server() {
    local name port previous=first server=(stdbuf -oL "$programs/restarting-server" "$scratch/restart") clients=() client
    begin first "${server[@]}" 0 server.pem server.key
    expect first 'serves port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    for client in one two; do
        begin "$client" python3 -c "$restart_load" "$port" "$scratch/enough"
        expect "$client" loading
    done
    # A new version that fails to start changes nothing.
    said no-certificate invalidCertificate "$programs/restarting-server" "$scratch/restart" 0 missing.pem "$scratch/server.key"
    # A process that is killed after the offer changes nothing.
    begin killed python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
print("offered", len(s.recv(65536)), flush=True)
time.sleep(60)' "$scratch/restart"
    expect killed 'offered [1-9]'
    kill -KILL "${pid[killed]}"
    stop killed
    # Each process takes the port over from the one before.
    for name in second third fourth; do
        begin "$name" "${server[@]}" "$port" server.pem server.key
        expect "$name" "serves port $port"
    done
    touch "$scratch/enough"
    for client in one two; do
        expect "$client" 'made ([0-9]+), resumed ([0-9]+)'
        [ "${BASH_REMATCH[2]}" -gt 0 ] || fail "no session was resumed"
        echo "$client: ${BASH_REMATCH[0]}" >>"$scratch/log"
        ended "$client" 0
    done
    for name in first second third; do
        expect "$name" '^replaced'
        ended "$name" 0
    done
    kill -TERM "${pid[fourth]}"
    expect fourth '^stopped'
    ended fourth 0
    [ ! -e "$scratch/restart" ] || fail "the path of the last process is left"
    said no-path badParameter "$programs/restarting-server" "" 0 "$scratch/server.pem" "$scratch/server.key"
}
