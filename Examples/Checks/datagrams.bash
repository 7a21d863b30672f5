# Clients and servers that exchange datagrams: DNS, CoAP, DTLS, and discovery by multicast.

check_dns_query() {
    local port
    port=$(free_port)
    begin names dnsmasq --no-daemon --no-resolv --no-hosts --conf-file=/dev/null --port="$port" --listen-address=127.0.0.1 \
        --bind-interfaces --address=/printer.example/192.0.2.7
    expect names 'dnsmasq: started'
    printed 0 found "$programs/dns-query" printer.example 127.0.0.1 "$port"
    contains found '^192.0.2.7$'
    printed 0 unknown-name "$programs/dns-query" no-such.example 127.0.0.1 "$port"
    contains unknown-name '^no addresses$'
    stop names
    said silent 'no reply was received within 2 seconds, in any of 3 attempts; the network reported .*connection refused' "$programs/dns-query" printer.example 127.0.0.1 "$port"
}

# Members of the example's multicast group, in Python.
readonly ask_group='
import socket, sys
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
asker.settimeout(30)
asker.sendto(b"? printing", ("239.255.42.99", 42099))
print(asker.recv(2048).decode())'
readonly answer_group='
import socket, struct
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("239.255.42.99", 42099))
listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.255.42.99") + socket.inet_aton("127.0.0.1"))
print("joined", flush=True)
while True:
    question, sender = listener.recvfrom(2048)
    if question == b"? scanning": listener.sendto(b"! scanning in the hall", sender)'

check_discovery() {
    begin offer stdbuf -oL "$programs/discovery" offer printing 'on the 2nd floor' 127.0.0.1
    expect offer '^offering printing'
    printed 0 asked python3 -c "$ask_group"
    contains asked '^! printing on the 2nd floor$'
    begin other python3 -c "$answer_group"
    expect other '^joined'
    printed 0 scanner "$programs/discovery" find scanning 127.0.0.1
    contains scanner ': in the hall$'
    printed 0 printer "$programs/discovery" find printing 127.0.0.1
    contains printer ': on the 2nd floor$'
    printed 0 nothing "$programs/discovery" find faxing 127.0.0.1
    contains nothing '^nothing was found$'
    said no-interface 'badParameter' "$programs/discovery" find printing no-such-interface
    stop offer other
}

# A relay that drops the first two datagrams.
readonly losing_relay='
import socket, sys
front, back = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
front.bind(("127.0.0.1", 0))
back.connect(("127.0.0.1", int(sys.argv[1])))
print("relaying on port", front.getsockname()[1], flush=True)
for number in range(100):
    data, sender = front.recvfrom(65536)
    if number < 2: continue
    back.send(data)
    front.sendto(back.recv(65536), sender)'

check_coap_client() {
    local port
    port=$(free_port)
    begin things coap-server-notls -A 127.0.0.1 -p "$port"
    until_received "$port"
    printed 0 core "$programs/coap-client" 127.0.0.1 .well-known/core "$port"
    contains core '^2.05 .*</time>;if="clock"'
    printed 0 missing "$programs/coap-client" 127.0.0.1 nothing/here "$port"
    contains missing '^4.04'
    # The response arrives after its acknowledgement.
    printed 0 late "$programs/coap-client" 127.0.0.1 async "$port"
    contains late '^2.05 done'
    begin relay python3 -c "$losing_relay" "$port"
    expect relay 'relaying on port ([0-9]+)'
    printed 0 again "$programs/coap-client" 127.0.0.1 .well-known/core "${BASH_REMATCH[1]}"
    [ "$(grep -c '^again$' "$scratch/again")" -eq 2 ] || fail "the request was not sent three times"
    contains again '^2.05'
    stop relay things
}

check_dtls() {
    local port
    begin server stdbuf -oL "$programs/dtls-server" 0
    expect server 'receiving on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    begin visitor openssl s_client -dtls1_2 -connect "127.0.0.1:$port" -servername localhost -CAfile ca.pem -verify_return_error -quiet
    say visitor hello
    expect visitor '^hello'
    printed 0 answered "${trusting[@]}" "$programs/dtls-client" localhost "$port" <<<'a question'
    contains answered '^secure: DTLSv1.2'
    contains answered '^a question$'
    said unknown-authority unknownIssuer "$programs/dtls-client" localhost "$port"
    expect server 'failed: .*unknown_ca'
    stop visitor server
    begin theirs openssl s_server -dtls1_2 -accept 127.0.0.1:0 -cert server.pem -key server.key -listen
    expect theirs 'ACCEPT 127.0.0.1:([0-9]+)'
    begin ours "${trusting[@]}" stdbuf -oL "$programs/dtls-client" localhost "${BASH_REMATCH[1]}"
    expect ours '^secure: DTLSv1.2'
    say ours 'a question'
    expect theirs '^a question'
    say theirs 'an answer'
    expect ours '^an answer'
    stop ours theirs
}
