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
