# Proxies with TLS, between curl or socat and a server without TLS.

# forward_downloads <program> <pattern> <pattern>: checks that the program forwards downloads and uses little
# memory even if the client is slow. It must report a client without TLS and a target that is down in lines
# that match the patterns.
forward_downloads() {
    local port before fetch=(curl --silent --show-error --fail --cacert "$scratch/ca.pem")
    make_site
    begin web python3 -u -m http.server 0 --bind 127.0.0.1 --directory site
    expect web 'port ([0-9]+)'
    begin proxy "$programs/$1" 0 127.0.0.1 "${BASH_REMATCH[1]}"
    expect proxy 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    printed 0 first "${fetch[@]}" --output "$scratch/copy" "https://localhost:$port/file"
    cmp "$scratch/site/file" "$scratch/copy" || fail "$1 changed the file that it forwarded"
    before=$(memory proxy)
    # This client is slower than the server. The proxy must not buffer the bytes that the client has not read.
    printed 0 slow "${fetch[@]}" --limit-rate 24M --output "$scratch/copy" "https://localhost:$port/file"
    cmp "$scratch/site/file" "$scratch/copy" || fail "$1 changed the file that it forwarded to a slow client"
    [ $(($(memory proxy) - before)) -lt 8192 ] || fail "$1 used $(($(memory proxy) - before)) KiB for a slow client"
    printed 52 plain curl --silent --http0.9 "http://localhost:$port/"
    expect proxy "$2"
    stop web
    printed 52 closed "${fetch[@]}" "https://localhost:$port/file"
    expect proxy "$3"
    stop proxy
}

# Creates the file that the web server serves.
make_site() {
    mkdir -p "$scratch/site"
    head -c 64M /dev/urandom >"$scratch/site/file"
}

check_tls_proxy() {
    forward_downloads tls-proxy 'client: .*notTLS' 'target: .*connectFailed'
}

check_tls_terminator() {
    forward_downloads tls-terminator notTLS connectFailed
}

# Two servers with their own certificates. curl verifies the name, so the router must have chosen the right one.
check_name_router() {
    local name routes=()
    make_site
    for name in a.example b.example; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$name" \
            -addext "subjectAltName=DNS:$name" -keyout "$scratch/$name.key" -out "$scratch/$name.pem" 2>/dev/null
        begin "server-$name" openssl s_server -accept 127.0.0.1:0 -cert "$name.pem" -key "$name.key" -WWW
        expect "server-$name" 'ACCEPT 127.0.0.1:([0-9]+)'
        routes+=("$name=${BASH_REMATCH[1]}")
    done
    begin router "$programs/name-router" 0 "${routes[@]}"
    expect router 'listening on port ([0-9]+)'
    for name in a.example b.example; do
        printed 0 copy curl --silent --show-error --fail --http1.1 --cacert "$scratch/$name.pem" \
            --connect-to "$name:443:localhost:${BASH_REMATCH[1]}" "https://$name/site/file"
        cmp "$scratch/site/file" "$scratch/copy" || fail "name-router changed the file of $name"
    done
    printed 35 unknown curl --silent --show-error --connect-to "c.example:443:localhost:${BASH_REMATCH[1]}" https://c.example/
    grep -q 'unrecognized name' "$scratch/unknown" || fail "name-router sent no alert for an unknown name"
    stop router server-a.example server-b.example
}

# A client that keeps its connection open must not delay the end of the server.
check_http_server() {
    local port before
    begin http "$programs/http-server" 0
    expect http 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    printed 0 pages curl --silent --show-error --fail "http://localhost:$port/one" "http://localhost:$port/two"
    [ "$(cat "$scratch/pages")" = $'you requested /one\nyou requested /two' ] || fail "http-server served: $(cat "$scratch/pages")"
    begin idle socat - "TCP:localhost:$port"
    printf 'GET /three HTTP/1.1\r\nHost: localhost\r\n\r\n' >&"${in[idle]}"
    expect idle 'you requested /three'
    before=$SECONDS
    kill -TERM "${pid[http]}"
    ended http 0
    [ $((SECONDS - before)) -lt 20 ] || fail "an idle connection held http-server for $((SECONDS - before)) s"
    stop idle
}

# A backend that replies only after the end of the request, which needs half-close in both directions.
check_tls_terminator_half_close() {
    make_site
    begin backend socat -d -d TCP-LISTEN:0,bind=127.0.0.1,fork SYSTEM:sha256sum
    expect backend 'listening on .*127.0.0.1:([0-9]+)'
    begin terminator "$programs/tls-terminator" 0 127.0.0.1 "${BASH_REMATCH[1]}"
    expect terminator 'listening on port ([0-9]+)'
    printed 0 sum socat -t 30 - "OPENSSL:localhost:${BASH_REMATCH[1]},cafile=$scratch/ca.pem" <"$scratch/site/file"
    [ "$(cat "$scratch/sum")" = "$(sha256sum <"$scratch/site/file")" ] || fail "the backend did not receive the whole file and its end"
    stop terminator backend
}
