# The checks of the examples for CocoaAsyncSocket, which Scripts/check-examples sources and runs.
counterparts=$PWD/Examples/CocoaAsyncSocket/Counterparts

check_cocoa_chat() {
    local port
    begin chat "$programs/cocoa-chat-server" 0
    expect chat 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    begin alice nc -C 127.0.0.1 "$port"
    expect alice 'your name'
    say alice alice
    expect alice 'welcome, alice'
    begin bob "$programs/cocoa-chat-client" localhost "$port" bob
    say bob 'hello, alice'  # perhaps before the connection is established
    expect bob 'connected to 127.0.0.1'
    expect bob 'welcome, bob'
    expect alice 'bob joined'
    expect alice '^bob: hello, alice'
    say alice 'hello, bob'
    expect bob '^alice: hello, bob'
    say alice /who
    expect alice '^\*\*\* alice, bob'
    begin other nc -C 127.0.0.1 "$port"
    say other alice
    expect other 'not this name'
    say other "$(printf 'x%.0s' {1..600})"
    expect chat 'a stranger sent a line that is too long'
    say bob /quit
    expect bob 'goodbye'
    expect bob 'the server closed the connection'
    ended bob 0
    expect alice 'bob left'
    kill -TERM "${pid[chat]}"
    expect alice 'the server is shutting down'
    expect chat 'done'
    ended chat 0
    stop alice other
    begin sleepy "$programs/cocoa-chat-server" 0 0.5
    expect sleepy 'listening on port ([0-9]+)'
    begin alice nc -C 127.0.0.1 "${BASH_REMATCH[1]}"
    say alice alice
    expect alice 'welcome, alice'
    expect alice 'are you still there'
    expect sleepy 'alice fell asleep'
    stop alice sleepy
    check_cocoa_chat_client
    echo "examples: cocoa-chat-server, cocoa-chat-client"
}

# The client with another server, and without one.
check_cocoa_chat_client() {
    local port
    begin server socat -d -d TCP-LISTEN:0,bind=127.0.0.1,crlf -
    expect server 'listening on .*127.0.0.1:([0-9]+)'
    port=${BASH_REMATCH[1]}
    begin carol "$programs/cocoa-chat-client" 127.0.0.1 "$port" carol
    expect server '^carol'
    say server 'hello, carol'
    expect carol '^hello, carol'
    stop server
    expect carol 'the server closed the connection'
    ended carol 0
    printed 1 refused "$programs/cocoa-chat-client" 127.0.0.1 "$port" carol </dev/null
    contains refused '^failed: Connection refused (POSIX error, 111)'
    printed 1 unknown "$programs/cocoa-chat-client" no-such-host.invalid "$port" carol </dev/null
    contains unknown '^failed: .*(kCFStreamErrorDomainNetDB, '
    printed 1 nameless "$programs/cocoa-chat-client" '' "$port" carol </dev/null
    contains nameless '^failed: .*(GCDAsyncSocketErrorDomain, 2)'
}

check_cocoa_messenger() {
    local port
    port=$(free_port)
    begin server python3 "$counterparts/messenger_server.py" "$port"
    expect server listening
    begin alice "$programs/cocoa-messenger" 127.0.0.1 "$port" alice 0.5
    expect alice 'logged in'
    begin bob "$programs/cocoa-messenger" localhost "$port" bob 0.5
    expect bob 'logged in'
    say alice 'bob hello, ünïcode'
    expect bob '^alice: hello, ünïcode'
    expect alice 'message 1 arrived'
    head -c 3M /dev/urandom >"$scratch/picture"
    say bob "alice <$scratch/picture"
    expect alice '^bob sent a file of 3145728 bytes'
    expect bob 'message 1 arrived'
    # Messages that are written while the server is away wait, and arrive in order.
    kill -KILL "${pid[server]}"
    expect alice '^disconnected: .*(GCDAsyncSocketErrorDomain 7|POSIXErrorDomain 104)'
    stop server
    say alice 'bob first'
    expect alice 'message 2 waits'
    say alice 'bob second'
    expect alice 'message 3 waits'
    expect alice '^disconnected: Connection refused'
    begin server python3 "$counterparts/messenger_server.py" "$port"
    expect bob '^alice: first'
    expect bob '^alice: second'
    expect alice 'message 3 arrived'
    # A server that hangs: only the heartbeat notices.
    kill -STOP "${pid[server]}"
    expect bob 'the server does not answer'
    kill -CONT "${pid[server]}"
    expect bob 'logged in'
    say bob 'alice good night'
    expect alice '^bob: good night'
    # A program whose input ends waits for the receipts.
    printed 0 carol "$programs/cocoa-messenger" 127.0.0.1 "$port" carol 0.5 <<<'alice bye'
    expect alice '^carol: bye'
    expect server 'carol said bye'
    stop alice bob server
    check_cocoa_messenger_faults
    echo "examples: cocoa-messenger"
}

# Servers that break the protocol: the client leaves them, and comes back.
check_cocoa_messenger_faults() {
    local port fault sign
    while read -r fault sign; do
        port=$(free_port)
        begin server python3 "$counterparts/messenger_server.py" "$port" "$fault"
        expect server listening
        begin client "$programs/cocoa-messenger" 127.0.0.1 "$port" alice
        expect client "$sign"
        expect client 'logged in'
        stop client server
    done <<'END'
bad-header the server sent a bad header
huge-body the server sent a bad header
long-header ^disconnected: .*(GCDAsyncSocketErrorDomain 6)
END
}

check_cocoa_discovery() {
    local port group=239.255.42.99
    port=$(free_port)
    printed 1 alone "$programs/cocoa-discovery" browse "$group" "$port" 127.0.0.1 0.5
    contains alone '^nothing found'
    begin announcer "$programs/cocoa-discovery" announce "$group" "$port" 127.0.0.1 files 2049
    expect announcer "announcing files on port $port"
    printed 0 asked python3 "$counterparts/discovery.py" browse "$group" "$port"
    contains asked '"port": *2049'
    expect announcer 'asked by 127.0.0.1:[0-9]+'
    expect announcer 'answer 1 sent'
    begin other python3 "$counterparts/discovery.py" announce "$group" "$port"
    expect other listening
    printed 0 found "$programs/cocoa-discovery" browse "$group" "$port" 127.0.0.1 2
    contains found '^printer: 127.0.0.1, port 631'
    contains found '^scanner: 127.0.0.1, port 9100'
    contains found '^files: 127.0.0.1, port 2049'
    contains found '^found 3'
    stop other announcer
    printed 1 nowhere "$programs/cocoa-discovery" announce "$group" "$port" no-such-interface files 1
    contains nowhere '^failed: .*(GCDAsyncUdpSocketErrorDomain 2)'
    printed 1 unicast "$programs/cocoa-discovery" announce 127.0.0.1 "$port" 127.0.0.1 files 1
    contains unicast '^failed: '
    echo "examples: cocoa-discovery"
}

check_cocoa_mail() {
    local port plain_port mail=("$programs/cocoa-mail" localhost)
    port=$(free_port) plain_port=$(free_port)
    begin postfix "$PWD/Scripts/serve-postfix" "$scratch/cocoa-postfix" "$port" "$plain_port" server.pem server.key
    expect postfix 'daemon started'
    printf 'Subject: test\n\nA line.\n.A line that begins with a dot.\n.\nThe end.\n' >"$scratch/letter"
    printed 0 submitted env SSL_CERT_FILE="$scratch/ca.pem" "${mail[@]}" "$port" me@example.org you@example.org <"$scratch/letter"
    contains submitted '^secure: true'
    contains submitted '^sent'
    expect postfix 'to=<you@example.org>.*status=sent'
    cat "$scratch"/cocoa-postfix/mail/box/new/* >"$scratch/mail"
    contains mail 'using TLSv1.3 with cipher'
    diff <(sed '1,/^$/d' "$scratch/letter") <(sed '1,/^$/d' "$scratch/mail") >&2 || fail "the mail is not the letter"
    printed 1 untrusted "${mail[@]}" "$port" me@example.org you@example.org <"$scratch/letter"
    contains untrusted '^failed: .*(kCFStreamErrorDomainSSL -98'
    printed 1 plain "${mail[@]}" "$plain_port" me@example.org you@example.org <"$scratch/letter"
    contains plain 'the server offers no STARTTLS'
    printed 1 misnamed env SSL_CERT_FILE="$scratch/ca.pem" "$programs/cocoa-mail" 127.0.0.1 "$port" me@example.org you@example.org <"$scratch/letter"
    contains misnamed '^failed: .*(kCFStreamErrorDomainSSL -98'
    printed 1 denied env SSL_CERT_FILE="$scratch/ca.pem" "${mail[@]}" "$port" me@example.org you@example.net <"$scratch/letter"
    contains denied 'the server said: 550'
    printed 1 hostile "${mail[@]}" "$port" $'me@example.org>\r\nRSET' you@example.org <"$scratch/letter"
    contains hostile 'not a mail address'
    stop postfix
    port=$(free_port)
    begin attacker python3 "$counterparts/injecting_smtp_server.py" "$port" server.pem server.key
    expect attacker listening
    printed 1 injected env SSL_CERT_FILE="$scratch/ca.pem" "${mail[@]}" "$port" me@example.org you@example.org <"$scratch/letter"
    contains injected '^failed: '
    ! grep -q '^secure' "$scratch/injected" || fail "cocoa-mail took bytes in plaintext for replies over TLS"
    expect attacker 'no TLS'
    ended attacker 0
    echo "examples: cocoa-mail"
}

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
    # Another certificate of the same authority, another authority, another name.
    printed 1 another "${visit[@]}" "$scratch/ca.der" "$scratch/alice.der"
    contains another '^not trusted: another certificate is pinned'
    contains another '^failed: we refused the certificate'
    printed 1 stranger "${visit[@]}" "$scratch/alice.der" "$scratch/server.der"
    contains stranger '^not trusted: '
    contains stranger '^failed: we refused the certificate'
    printed 1 misnamed "$programs/cocoa-pinned-client" 127.0.0.1 "$port" "$scratch/ca.der" "$scratch/server.der"
    contains misnamed '^not trusted: '
    for name in another stranger misnamed; do
        ! grep -q '^secure' "$scratch/$name" || fail "cocoa-pinned-client spoke to a server that it does not trust"
    done
    printed 1 broken "${visit[@]}" "$scratch/ca.der" "$scratch/server.pem"
    contains broken 'server.pem is not a certificate'
    stop web
    # A server that ends the handshake with its own alert: no version in common.
    begin old openssl s_server -accept 127.0.0.1:0 -cert server.pem -key server.key -tls1_1 -cipher 'ALL:@SECLEVEL=0'
    expect old 'ACCEPT 127.0.0.1:([0-9]+)'
    printed 1 ancient "$programs/cocoa-pinned-client" localhost "${BASH_REMATCH[1]}" "$scratch/ca.der" "$scratch/server.der"
    contains ancient '^failed: .*(kCFStreamErrorDomainSSL -98'
    stop old
    echo "examples: cocoa-pinned-client"
}

# chained <folder>: an authority (root.pem), one below it, and a certificate for localhost, in chained.p12.
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
    # Verifies only if the chain of the file goes out with the server's own certificate.
    begin alice openssl s_client -connect "127.0.0.1:$port" -CAfile chained/root.pem -verify_return_error -quiet
    say alice 'hello'
    expect alice '^HELLO'
    expect server '^secure: 127.0.0.1'
    printed 0 older openssl s_client -connect "127.0.0.1:$port" -tls1_2 -CAfile "$scratch/chained/root.pem" </dev/null
    contains older 'Verify return code: 0'
    printed 1 oldest openssl s_client -connect "127.0.0.1:$port" -tls1_1 -cipher 'ALL:@SECLEVEL=0' </dev/null
    expect server 'a connection failed: kCFStreamErrorDomainSSL -98.*, secure: false'
    # Plaintext gets no answer.
    begin plain nc -C 127.0.0.1 "$port"
    say plain 'hello'
    expect server 'a connection failed: kCFStreamErrorDomainSSL -98.*, secure: false'
    stop alice plain
    stop server
    echo "examples: cocoa-identity-server"
}

check_cocoa_metered_echo() {
    local port
    begin echo "$programs/cocoa-metered-echo" 0 20
    expect echo 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    begin first nc 127.0.0.1 "$port"
    expect echo '^no name, 2 sockets'
    say first hello
    expect first '^hello'
    say first bye
    expect first '^bye'
    expect echo '^leaving after 2 reads, 10 bytes to write'
    expect echo '^client 1 left: 2 reads, 10 bytes to write, error nil'
    begin second socat - "TCP:127.0.0.1:$port"
    expect echo '^no name, 3 sockets'
    say second 'a line that is longer than 20 bytes'
    expect echo '^client 1 left: 1 reads, 0 bytes to write, error 6'
    stop first second echo
    echo "examples: cocoa-metered-echo"
}

check_cocoa() {
    check_cocoa_chat
    check_cocoa_messenger
    check_cocoa_discovery
    check_cocoa_mail
    check_cocoa_pinned_client
    check_cocoa_identity_server
    check_cocoa_metered_echo
}
