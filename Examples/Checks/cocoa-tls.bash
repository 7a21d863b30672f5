# The examples for CocoaAsyncSocket with TLS. Another such example, cocoa-mail, is in mail.bash.

check_cocoa_pinned_client() {
    local port visit name
    for name in ca server alice; do openssl x509 -in "$scratch/$name.pem" -outform DER -out "$scratch/$name.der"; done
    begin web openssl s_server -accept 127.0.0.1:0 -cert server.pem -key server.key -www
    expect web 'ACCEPT 127.0.0.1:([0-9]+)'
    port=${BASH_REMATCH[1]}
    visit=("$programs/cocoa-pinned-client" localhost "$port")
    printed 0 pinned "${visit[@]}" "$scratch/ca.der" "$scratch/server.der"
    contains pinned '^[12] certificates, the first is for localhost'
    contains pinned '^secure'
    contains pinned '^HTTP/1.0 200'
    # Another certificate from the same CA, another CA, and another name are rejected.
    printed 1 another "${visit[@]}" "$scratch/ca.der" "$scratch/alice.der"
    contains another '^not trusted: another certificate is pinned'
    contains another '^failed: we refused the certificate'
    printed 1 stranger "${visit[@]}" "$scratch/alice.der" "$scratch/server.der"
    contains stranger '^not trusted: '
    contains stranger '^failed: we refused the certificate'
    printed 1 misnamed "$programs/cocoa-pinned-client" 127.0.0.1 "$port" "$scratch/ca.der" "$scratch/server.der"
    contains misnamed '^not trusted: '
    for name in another stranger misnamed; do
        ! grep -q '^secure' "$scratch/$name" || fail "cocoa-pinned-client accepted a server that it does not trust"
    done
    printed 1 broken "${visit[@]}" "$scratch/ca.der" "$scratch/server.pem"
    contains broken 'server.pem is not a certificate'
    stop web
    # The server fails the handshake with an alert, because there is no common version.
    begin old openssl s_server -accept 127.0.0.1:0 -cert server.pem -key server.key -tls1_1 -cipher 'ALL:@SECLEVEL=0'
    expect old 'ACCEPT 127.0.0.1:([0-9]+)'
    printed 1 ancient "$programs/cocoa-pinned-client" localhost "${BASH_REMATCH[1]}" "$scratch/ca.der" "$scratch/server.der"
    contains ancient '^failed: .*(kCFStreamErrorDomainSSL -98'
    stop old
}

# chained <folder>: generates a CA (root.pem), an intermediate CA, and a certificate for localhost with its
# chain (chained.p12).
chained() {
    local new_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc) days=(-days 2)
    mkdir "$1"
    openssl req -x509 "${new_key[@]}" "${days[@]}" -subj /CN=Root -keyout "$1/root.key" -out "$1/root.pem" 2>/dev/null
    openssl req "${new_key[@]}" -subj /CN=Below -keyout "$1/below.key" -out "$1/below.csr" 2>/dev/null
    openssl x509 -req -in "$1/below.csr" -CA "$1/root.pem" -CAkey "$1/root.key" "${days[@]}" -out "$1/below.pem" \
        -extfile <(echo basicConstraints=critical,CA:true) 2>/dev/null
    openssl req "${new_key[@]}" -subj /CN=localhost -keyout "$1/leaf.key" -out "$1/leaf.csr" 2>/dev/null
    openssl x509 -req -in "$1/leaf.csr" -CA "$1/below.pem" -CAkey "$1/below.key" "${days[@]}" -out "$1/leaf.pem" \
        -extfile <(echo subjectAltName=DNS:localhost) 2>/dev/null
    openssl pkcs12 -export -in "$1/leaf.pem" -inkey "$1/leaf.key" -certfile "$1/below.pem" -passout pass:secret \
        -out "$1/chained.p12"
}

check_cocoa_identity_server() {
    local port
    chained "$scratch/chained"
    openssl pkcs12 -export -nokeys -in "$scratch/server.pem" -passout pass:secret -out "$scratch/keyless.p12"
    printed 1 wrong "$programs/cocoa-identity-server" 0 "$scratch/chained/chained.p12" guess
    contains wrong '^failed: the passphrase is wrong'
    printed 1 keyless "$programs/cocoa-identity-server" 0 "$scratch/keyless.p12" secret
    contains keyless '^failed: the file holds no identity'
    printed 1 broken "$programs/cocoa-identity-server" 0 "$scratch/server.pem" secret
    contains broken '^failed: the file cannot be read (OSStatus -'
    begin server "$programs/cocoa-identity-server" 0 "$scratch/chained/chained.p12" secret
    expect server '^localhost listens on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    # The verification succeeds only if the server sends the chain in the file along with its own certificate.
    begin alice openssl s_client -connect "127.0.0.1:$port" -CAfile chained/root.pem -verify_return_error -quiet
    say alice 'hello'
    expect alice '^HELLO'
    expect server '^secure: 127.0.0.1'
    printed 0 older openssl s_client -connect "127.0.0.1:$port" -tls1_2 -CAfile "$scratch/chained/root.pem" </dev/null
    contains older 'Verify return code: 0'
    printed 1 oldest openssl s_client -connect "127.0.0.1:$port" -tls1_1 -cipher 'ALL:@SECLEVEL=0' </dev/null
    expect server 'a connection failed: kCFStreamErrorDomainSSL -98.*, secure: false'
    # A client without TLS is disconnected.
    begin plain nc -C 127.0.0.1 "$port"
    say plain 'hello'
    expect server 'a connection failed: kCFStreamErrorDomainSSL -98.*, secure: false'
    stop alice plain server
}
