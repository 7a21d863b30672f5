# Clients for redis and postgres, and servers with their ticket keys in redis.

check_redis_client() {
    local port tls_port
    port=$(free_port) tls_port=$(free_port)
    begin redis redis-server --bind 127.0.0.1 --port "$port" --tls-port "$tls_port" --tls-cert-file server.pem \
        --tls-key-file server.key --tls-ca-cert-file ca.pem --tls-auth-clients no --save '' --appendonly no --dir .
    expect redis 'Ready to accept connections'
    printf '%s\n' 'SET name AsyncSockets' 'GET name' 'GET nothing' 'INCR name' 'RPUSH list a b c' 'LRANGE list 0 -1' >"$scratch/commands"
    printf '%s\n' 'PING: PONG' OK '"AsyncSockets"' nil 'error: ERR value is not an integer or out of range' 3 '["a", "b", "c"]' >"$scratch/replies"
    printed 0 plain "$programs/redis-client" localhost "$port" <"$scratch/commands"
    diff "$scratch/replies" "$scratch/plain" >&2 || fail "the replies of redis are wrong"
    # Many commands and 50 MB of replies: each side must read while it writes.
    { printf 'SET long %s\n' "$(head -c 1000 /dev/zero | tr '\0' x)"; seq 50000 | sed 's/.*/INCR count/'; seq 50000 | sed 's/.*/GET long/'; } >"$scratch/commands"
    printed 0 secure "${trusting[@]}" "$programs/redis-client" localhost "$tls_port" tls <"$scratch/commands"
    # The client may also print that an event loop is blocked, on a busy machine.
    diff <(seq 50000) <(grep -xE '[0-9]+' "$scratch/secure") >&2 || fail "the replies of redis are not in order"
    [ "$(grep -cE '^"x{1000}"$' "$scratch/secure")" -eq 50000 ] || fail "replies of redis are missing"
    [ "$(redis-cli -p "$port" GET count)" = 50000 ] || fail "redis did not receive all commands"
    stop redis
}

check_postgres_login() {
    local port login
    port=$(free_port)
    login=("$programs/postgres-login" localhost "$port" alice postgres)
    begin postgres "$checks/serve-postgres" "$scratch/postgres" "$port" server.pem server.key
    expect postgres 'ready to accept connections'
    # The server accepts the login only if the channel binding is right.
    printed 0 login "${trusting[@]}" "${login[@]}" <<<secret
    contains login '^logged in as alice, over TLSv1.3$'
    expect postgres 'connection authenticated: .*scram-sha-256'
    printed 1 denied "${trusting[@]}" "${login[@]}" <<<wrong
    contains denied 'password authentication failed'
    printed 1 untrusted "${login[@]}" <<<secret
    contains untrusted unknownIssuer
    stop postgres
}

# Connects to two servers in turn, each time with the session of the other one, until the keys have been replaced
# often enough. Eventually the very first session is rejected, because its key has expired.
shared_tickets_load='
import socket, ssl, sys
context = ssl.create_default_context(cafile="ca.pem")
context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
def connect(port, session):
    with socket.create_connection(("127.0.0.1", int(port)), timeout=30) as plain:
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as connection:
            connection.sendall(b"hello\n")
            reply = connection.makefile("rb").readline()
            assert reply == (b"hello resumed\r\n" if connection.session_reused else b"hello new\r\n"), reply
            return connection.session, connection.session_reused
first, _ = connect(sys.argv[1], None)
print("connected", flush=True)
session, made, missed, is_old = first, 0, 0, False
while not is_old:
    for port in sys.argv[2], sys.argv[1]:
        session, resumed = connect(port, session)
        made, missed = made + 1, missed + (not resumed)
    is_old = not connect(sys.argv[1], first)[1]
# A server that gets no processor time for a whole period misses a key.
assert missed * 10 <= made, (missed, made)
print("resumed", made, flush=True)
for line in sys.stdin:
    session, resumed = connect(sys.argv[2], session)
    print("without redis:", resumed, flush=True)
'

check_shared_tickets() {
    local port name ports=() server
    port=$(free_port)
    begin redis redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no --dir .
    expect redis 'Ready to accept connections'
    for name in one two; do
        server=(stdbuf -oL "$programs/shared-tickets" localhost "$port")
        begin "$name" "${server[@]}" 0 server.pem server.key 4
        expect "$name" 'serves port ([0-9]+)'
        ports+=("${BASH_REMATCH[1]}")
    done
    begin client python3 -c "$shared_tickets_load" "${ports[@]}"
    expect client '^resumed [1-9]'
    stop redis
    # The last keys remain in use.
    for name in one two; do expect "$name" 'are not up to date'; done
    say client go
    expect client '^without redis: True'
    stop client
    said no-redis refused "$programs/shared-tickets" localhost "$port" 0 "$scratch/server.pem" "$scratch/server.key"
    for name in one two; do
        kill -TERM "${pid[$name]}"
        ended "$name" 0
    done
}
