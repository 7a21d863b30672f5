# Clients and servers that speak TLS with openssl and dovecot, and the demo.

check_short_client() {
    local port
    port=$(free_port)
    begin dovecot "$servers/dovecot" "$scratch/short" server.pem server.key - imap="$port"
    expect dovecot 'starting up'
    printed 0 capabilities "${trusting[@]}" "$programs/short-client" localhost "$port"
    contains capabilities '^secure: TLSv1.3'
    contains capabilities '^\* CAPABILITY .*AUTH=PLAIN'  # dovecot offers this only over TLS
    contains capabilities '^c OK'
    # Each failure prints one line and exits with 1.
    said untrusted unknownIssuer "$programs/short-client" localhost "$port"
    said misnamed hostNameMismatch "${trusting[@]}" "$programs/short-client" 127.0.0.1 "$port"
    stop dovecot
    said refused connectFailed "$programs/short-client" localhost "$port"
    said unknown hostNotFound "$programs/short-client" no-such-host.invalid "$port"
    said no-port 'badParameter' "$programs/short-client" localhost 70000
}

# The port is in the source of the server, and in the client as its default.
check_short_server() {
    ! listens 1143 || fail "another program listens on port 1143"
    begin server "$programs/short-server"
    for _ in {1..100}; do listens 1143 && break || sleep 0.1; done
    # As README.md runs them.
    printed 0 both "${trusting[@]}" "$programs/short-client"
    contains both '^secure: TLSv1.3'
    contains both '^c OK'
    visit alice 1143 - -starttls imap
    say alice 'x NOOP'
    expect alice '^x OK'
    said taken "address already in use" env -C "$scratch" "$programs/short-server"
    kill -TERM "${pid[server]}"
    ended server 0
    stop alice
    mkdir "$scratch/empty"
    said keyless 'server.pem' env -C "$scratch/empty" "$programs/short-server"
}

check_first_client() {
    local port
    begin greeter openssl s_server -accept 127.0.0.1:0 -cert server.pem -key server.key -crlf
    expect greeter 'ACCEPT 127.0.0.1:([0-9]+)'
    port=${BASH_REMATCH[1]}
    say greeter '* OK ready'
    printed 0 client "${trusting[@]}" "$programs/first-client" localhost "$port"
    contains client '^secure: TLSv1.3'
    contains client '^\* OK ready'
    # The article DelegatesOrTasks quotes these errors.
    printed 1 untrusted "$programs/first-client" localhost "$port"
    printed 1 misnamed "${trusting[@]}" "$programs/first-client" 127.0.0.1 "$port"
    stop greeter
    printed 1 refused "$programs/first-client" 127.0.0.1 "$port"
    local name text article=Sources/AsyncSockets/AsyncSockets.docc/Articles/DelegatesOrTasks.md
    for name in untrusted misnamed refused; do
        # Excludes OpenSSL's details in brackets.
        text=$(sed -n "s/:$port/:993/g; s/ \\[.*//; /^failed: /p" "$scratch/$name")
        [ -n "$text" ] || fail "first-client did not print why it failed"
        grep -qF -- "$text" "$article" || fail "$article does not quote this error: $text"
    done
}

check_first_server() {
    local port
    begin echo stdbuf -oL "$programs/first-server" 0
    expect echo 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    visit alice "$port" alice
    say alice hello
    expect alice '^hello$'
    visit mallory "$port" mallory
    expect echo 'a connection failed: .*trustRejected'
    visit stranger "$port" -
    expect echo 'a connection failed: .*clientCertificateMissing'
    say alice "$(printf 'x%.0s' {1..5000})"
    expect echo 'a connection failed: .*readMaxedOut'
    stop alice mallory stranger echo
}

check_task_client() {
    begin web openssl s_server -accept 127.0.0.1:0 -cert server.pem -key server.key -www
    expect web 'ACCEPT 127.0.0.1:([0-9]+)'
    printed 0 page "${trusting[@]}" "$programs/task-client" localhost "${BASH_REMATCH[1]}"
    contains page '^HTTP/1.0 200 ok'
    contains page '^New, TLSv1.3'
    stop web
}

check_expiry_checker() {
    local checker=$programs/expiry-checker name
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 90 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -keyout "$scratch/quarter.key" -out "$scratch/quarter.pem" 2>/dev/null
    local -A port
    for name in server quarter; do
        begin "$name" openssl s_server -accept 127.0.0.1:0 -cert "$name.pem" -key "$name.key" -www
        expect "$name" 'ACCEPT 127.0.0.1:([0-9]+)'
        port[$name]=${BASH_REMATCH[1]}
    done
    printed 0 valid env "SSL_CERT_FILE=$scratch/quarter.pem" "$checker" localhost "${port[quarter]}"
    contains valid '^CN=localhost, issued by CN=localhost$'
    contains valid '^valid until 20'
    contains valid '^days left: 89$'
    printed 1 soon "${trusting[@]}" "$checker" localhost "${port[server]}"
    contains soon '^days left: 1$'
    # A certificate that is not trusted is printed too.
    printed 1 faulty "${trusting[@]}" "$checker" localhost "${port[quarter]}"
    contains faulty '^valid until 20'
    contains faulty '^not trusted: .*self-signed'
    contains faulty '^days left: 89$'
    printed 1 misnamed "${trusting[@]}" "$checker" 127.0.0.1 "${port[server]}"
    contains misnamed '^not trusted: .*not for "127.0.0.1"'
    stop server quarter
    said stopped connectFailed "$checker" localhost "${port[server]}"
}

# The demo prints colours on a terminal, unless NO_COLOR or the type of the terminal forbids them.
check_demo_colours() {
    local escape=$'\033' demo="$programs/starttls-demo --openssl-client"
    printed 0 terminal env TERM=xterm NO_COLOR= script -qec "$demo" /dev/null
    contains terminal "$escape\\["
    printed 0 unwanted env TERM=xterm NO_COLOR=1 script -qec "$demo" /dev/null
    printed 0 dumb env TERM=dumb script -qec "$demo" /dev/null
    printed 0 file $demo
    ! grep -q "$escape" "$scratch"/{unwanted,dumb,file} || fail "the demo prints colours where they are not wanted"
}
