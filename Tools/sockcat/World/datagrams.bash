# Servers that use DTLS. The loaded OpenSSL negotiates version 1.2 only.

check_coturn() {
    local request reply
    # A Binding request and the Binding response.
    request='\0\1\0\0\x21\x12\xa4\x42abcdefghijkl' reply='\x01\x01..\x21\x12\xa4\x42abcdefghijkl'
    port=$(free_port) version=1.2
    upgrade=(--dtls --datagram-size 20)
    ran STUN
    serve_coturn
    distrusted
    converse "$request" "$reply"
    stop coturn
    serve_coturn --CA-file "$scratch/ca.pem"
    converse "$request" "$reply" "${client_certificate[@]}"
    needs_certificate
    stop coturn
}

# serve_coturn [--CA-file <file>]: clients need a certificate from the authority in the file.
serve_coturn() {
    local folder
    folder=$(folder coturn)
    start coturn "$port" turnserver -n --listening-ip 127.0.0.1 --relay-ip 127.0.0.1 --tls-listening-port "$port" \
        --listening-port "$(free_port)" --cert "$folder/server.pem" --pkey "$folder/server-key.pem" --no-cli \
        --log-file stdout --simple-log --pidfile "$folder/pid" --userdb "$folder/users" "$@"
}

check_libcoap() {
    local folder
    port=$(free_port) version=1.2
    folder=$(folder libcoap)
    for program in openssl gnutls; do
        serve_libcoap "$program"
        upgrade=(--dtls --datagram-size 4)
        ran "CoAP ($program)"
        distrusted
        # A GET request for the root, and the response 2.05.
        converse '\x40\1\0\1' '\x60\x45\x00\x01.*This is a test server' "${client_certificate[@]}"
        needs_certificate
        stop libcoap
    done
}

# serve_libcoap <openssl or gnutls>: the server also receives CoAP without DTLS, on the preceding port.
serve_libcoap() {
    (cd "$scratch" && exec "coap-server-$1" -A 127.0.0.1 -p $((port - 1)) -c "$folder/server.pem" \
        -j "$folder/server-key.pem" -C "$folder/ca.pem") >"$scratch/libcoap.log" 2>&1 &
    pid[libcoap]=$!
    until_received "$port"
}
