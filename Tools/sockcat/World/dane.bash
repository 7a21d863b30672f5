# Mail and chat servers with TLSA records in a zone that is signed with DNSSEC. The name servers and their clients run
# in a network namespace, in which /etc/resolv.conf names a validating resolver on 127.0.0.1.

# enter_namespace: creates the namespace, and sets `inside` to the start of a command line that runs a program there.
enter_namespace() {
    echo "nameserver 127.0.0.1" >"$scratch/resolv.conf"
    # shellcheck disable=SC2016 # The shell in the namespace expands the expression.
    begin namespace unshare --net --mount --propagation private bash -c \
        'ip link set lo up && mount --bind "$1" /etc/resolv.conf && echo ready && exec sleep infinity' _ "$scratch/resolv.conf"
    expect namespace '^ready$'
    inside=(nsenter --net="/proc/${pid[namespace]}/ns/net" --mount="/proc/${pid[namespace]}/ns/mnt" --wdns="$scratch")
}

# until_serving <name> <address> <port>: waits until the program accepts connections in the namespace.
until_serving() {
    for _ in {1..300}; do
        ! "${inside[@]}" bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$2" "$3" 2>/dev/null || return 0
        kill -0 "${pid[$1]}" 2>/dev/null || { tail -n 5 "$scratch/$1.log" >>"$scratch/log"; fail "$1 exited"; }
        sleep 0.1
    done
    fail "$1 does not listen on port $3 of $2"
}

# launch <name> <address> <port> <program> …: starts a server in the namespace. Its output is written to NAME.log.
launch() {
    "${inside[@]}" "${@:4}" </dev/null >"$scratch/$1.log" 2>&1 &
    pid[$1]=$!
    until_serving "$1" "$2" "$3"
}

# tlsa <host> <port> <certificate> [<option> …]: prints the record to publish.
tlsa() {
    "$sockcat" certificate tlsa --quiet "$scratch/$3" --host "$1" --port "$2" "${@:4}"
}

# Prints the zone. Each host is a case of `verdicts`, and the address 127.0.0.1 is that of postfix.
zone() {
    local other trust authority
    other="3 1 1 $(printf 'ab%.0s' {1..32})"
    authority=$("$sockcat" certificate tlsa "$scratch/mx1-chain.pem" 2>/dev/null | sed -n 's/^; \(2 1 1 .*\)/\1/p')
    trust=$(openssl x509 -in "$scratch/ca.pem" -outform der | sha256sum | cut -d' ' -f1)
    cat <<END_OF_ZONE
@ 60 IN SOA ns admin 1 3600 600 86400 60
@ 60 IN NS ns
@ 60 IN MX 10 mx1
@ 60 IN MX 20 mx2
good 60 IN MX 10 mx2
bad 60 IN MX 10 mismatch
null 60 IN MX 0 .
ns 60 IN A 127.0.0.1
mx1 60 IN A 127.0.0.1
$(tlsa mx1.dane.test 25 mx1.pem)
mx2 60 IN A 127.0.0.2
$(tlsa mx2.dane.test 25 mx2.pem --next-key mx2-next.pem)
mismatch 60 IN A 127.0.0.2
_25._tcp.mismatch 60 IN TLSA $other
several 60 IN A 127.0.0.1
_25._tcp.several 60 IN TLSA $other
$(tlsa several.dane.test 25 mx1.pem)
certificate 60 IN A 127.0.0.1
_25._tcp.certificate 60 IN TLSA 3 0 1 $(openssl x509 -in "$scratch/mx1.pem" -outform der | sha256sum | cut -d' ' -f1)
authority 60 IN A 127.0.0.1
_25._tcp.authority 60 IN TLSA $authority
stranger 60 IN A 127.0.0.1
_25._tcp.stranger 60 IN TLSA 2 0 1 $trust
unusable 60 IN A 127.0.0.1
_25._tcp.unusable 60 IN TLSA 3 1 1 abab
unknown 60 IN A 127.0.0.1
_25._tcp.unknown 60 IN TLSA 9 9 9 abab
none 60 IN A 127.0.0.1
alias 60 IN CNAME mx1
outside 60 IN CNAME mx.plain.test.
_25._tcp.outside 60 IN TLSA $(tlsa x 25 mx1.pem | sed 's/.*TLSA //')
shared 60 IN A 127.0.0.1
_25._tcp.shared 60 IN CNAME _25._tcp.mx1
xmpp 60 IN A 127.0.0.3
_xmpp-server._tcp 60 IN SRV 5 0 5269 xmpp
$(tlsa xmpp.dane.test 5269 xmpp.pem)
_imaps._tcp 60 IN SRV 0 0 0 .
END_OF_ZONE
}

# serve_zones: serves a signed root zone; dane.test, which is signed; plain.test, which is not; and bogus.test, which is
# signed with another key than that in the root zone. The name server on 127.0.0.10 does not validate.
serve_zones() {
    local folder=$scratch/dns name key
    mkdir -p "$folder"
    zone >"$folder/dane.test.zone"
    printf '%s\n' '@ 60 IN SOA ns admin 1 3600 600 86400 60' '@ 60 IN NS ns' '@ 60 IN MX 10 mx' 'ns 60 IN A 127.0.0.1' \
        'mx 60 IN A 127.0.0.1' "_25._tcp.mx 60 IN TLSA 3 1 1 $(printf 'ab%.0s' {1..32})" | tee "$folder/plain.test.zone" >"$folder/bogus.test.zone"
    (
        cd "$folder"
        for name in dane.test bogus.test; do
            key=$(ldns-keygen -k -a ECDSAP256SHA256 "$name")
            ldns-signzone -o "$name" -f "$name.signed" "$name.zone" "$key"
            [ "$name" != bogus.test ] || key=$(ldns-keygen -k -a ECDSAP256SHA256 "$name")
            cat "$key.ds" >>root.ds
        done
        cp plain.test.zone plain.test.signed
        {
            printf '. 60 IN SOA ns.dane.test. admin.dane.test. 1 3600 600 86400 60\n. 60 IN NS ns.dane.test.\nns.dane.test. 60 IN A 127.0.0.1\n'
            printf '%s. 60 IN NS ns.dane.test.\n' dane.test plain.test bogus.test
            cat root.ds
        } >root.zone
        key=$(ldns-keygen -k -a ECDSAP256SHA256 .)
        ldns-signzone -o . -f root.signed root.zone "$key"
        cp "$key.key" root.anchor
    ) >>"$scratch/log" 2>&1
    {
        printf 'server:\n ip-address: 127.0.0.1@5300\n username: ""\n zonesdir: "%s"\n pidfile: ""\n' "$folder"
        printf ' database: ""\n zonelistfile: "%s/zones"\n xfrdfile: "%s/xfrd"\nremote-control:\n control-enable: no\n' "$folder" "$folder"
        for name in dane.test plain.test bogus.test; do printf 'zone:\n name: %s\n zonefile: %s.signed\n' $name $name; done
        printf 'zone:\n name: .\n zonefile: root.signed\n'
    } >"$folder/nsd.conf"
    {
        printf 'server:\n do-daemonize: no\n username: ""\n chroot: ""\n directory: "%s"\n pidfile: ""\n' "$folder"
        printf ' use-syslog: no\n logfile: ""\n do-not-query-localhost: no\n'
        printf ' local-zone: "test." nodefault\n'
        printf 'remote-control:\n control-enable: no\n'
        for name in . dane.test plain.test bogus.test; do printf 'stub-zone:\n name: %s\n stub-addr: 127.0.0.1@5300\n' $name; done
    } >"$folder/resolver.conf"
    printf 'include: "%s"\nserver:\n interface: 127.0.0.1\n trust-anchor-file: "%s"\n module-config: "validator iterator"\n' \
        "$folder/resolver.conf" "$folder/root.anchor" >"$folder/unbound.conf"
    printf 'include: "%s"\nserver:\n interface: 127.0.0.10\n module-config: "iterator"\n' "$folder/resolver.conf" >"$folder/careless.conf"
    launch nsd 127.0.0.1 5300 nsd -d -c "$folder/nsd.conf"
    launch unbound 127.0.0.1 53 unbound -d -c "$folder/unbound.conf"
    launch careless 127.0.0.10 53 unbound -d -c "$folder/careless.conf"
}

# verdict_of_postfix <host>: prints what posttls-finger says about the server: "Verified", "Untrusted" and so on.
verdict_of_postfix() {
    "${inside[@]}" timeout 60 posttls-finger -c -l dane -L summary -o inet_protocols=ipv4 "[$1]:25" >"$scratch/finger" 2>&1 || true
    echo "posttls-finger $1: $(cat "$scratch/finger")" >>"$scratch/log"
    sed -n 's/^posttls-finger: \([A-Z][a-z]*\) TLS connection established .*/\1/p' "$scratch/finger" | head -n 1 | grep . || echo none
}

# verdict_of_sockcat <host>: prints the status of `sockcat connect --dane`. Its messages are written to the file
# "reply".
verdict_of_sockcat() {
    local status=0
    printf 'QUIT\r\n' | "${inside[@]}" timeout 60 "$sockcat" connect --verbose --color never --no-half-close --starttls smtp --dane "$1" 25 \
        >"$scratch/reply" 2>&1 || status=$?
    { echo "sockcat connect --dane $1: status $status"; cat "$scratch/reply"; } >>"$scratch/log"
    echo "$status"
}

# issue_mail_certificates: creates the certificates of the servers, and the next key of the server mx2.
issue_mail_certificates() {
    local name
    printed 0 certificates "$sockcat" certificate server mx1.dane.test authority.dane.test --output-name mx1
    for name in mx2 mx2-next mx2-forgotten xmpp; do
        printed 0 certificates "$sockcat" certificate server "${name%%-*}.dane.test" --output-name "$name"
    done
    cat mx1.pem ca.pem >mx1-chain.pem
}

# serve_mail <name>: starts the server mx2, a `sockcat listen` with the certificate NAME.pem.
serve_mail() {
    launch mx2 127.0.0.2 25 "$sockcat" listen --verbose --starttls smtp --exec "$world/respond smtp" \
        --cert "$1.pem" --key "$1-key.pem" 127.0.0.2:25
}

# examined <status> <file> <option> …: runs `sockcat inspect` in the namespace, without tests of old versions.
examined() {
    printed "$1" "$2" "${inside[@]}" "$sockcat" inspect --no-probes --color never "${@:3}"
}

# agree <host> <verdict> <status>: posttls-finger and sockcat must say this about a server. They must agree: if and only
# if the server is authenticated, the verdict is "Verified" and the status is 0.
agree() {
    local verdict status
    verdict=$(verdict_of_postfix "$1")
    status=$(verdict_of_sockcat "$1")
    [ "$verdict $status" = "$2 $3" ] || fail "about $1, posttls-finger says $verdict and sockcat $status, and not $2 and $3"
    compared=$((compared + 1))
}

compare_verdicts() {
    local name compared=0
    for name in mx1 mx2 several certificate authority alias outside shared; do agree "$name.dane.test" Verified 0; done
    for name in mismatch stranger none; do agree "$name.dane.test" Untrusted 4; done
    # A client that does not require records continues without authentication (RFC 7672, section 2.2). sockcat does.
    for name in unusable unknown; do agree "$name.dane.test" Untrusted 4; done
    agree mx.plain.test Untrusted 4
    # The addresses are bogus, so both do not connect.
    agree mx.bogus.test none 2
    ran "$compared verdicts as posttls-finger"
}

inspect_domains() {
    examined 0 report --mx dane.test --ca ca.pem
    [ "$(grep -cE '^mx[12].dane.test:25 \(smtp\) \(127.0.0.[12]:25\)$' "$scratch/report")" -eq 2 ] || fail "inspect --mx did not find two servers"
    [ "$(grep -c '^  DANE            matched 3 1 1 ' "$scratch/report")" -eq 2 ] || fail "inspect --mx did not match the records"
    [ "$(grep -c ' days left$' "$scratch/report")" -ge 2 ] || fail "inspect --mx did not report when the certificates expire"
    examined 0 report --mx dane.test --json
    contains report '"dane":{"baseDomain":"mx1.dane.test","matched":"3 1 1 '
    examined 4 report --mx bad.dane.test
    contains report 'problem: no TLSA record matches'
    examined 2 report --mx null.dane.test
    contains report 'accepts no mail'
    examined 4 report --mx plain.test
    contains report '  DANE            not available, because the DNS records are not signed'
    contains report 'warning: the MX records of "plain.test" are not signed'
    examined 4 report --mx plain.test --dane
    contains report 'problem: the MX records of "plain.test" are not signed, so its servers have no valid TLSA records'
    examined 2 report --mx bogus.test
    contains report 'the look-up of MX records for "bogus.test" failed'
    launch xmpp 127.0.0.3 5269 "$sockcat" listen --echo --starttls xmpp-server --name dane.test --cert xmpp.pem \
        --key xmpp-key.pem 127.0.0.3:5269
    examined 0 report --srv xmpp-server dane.test
    contains report '  found by        SRV 5 0 of dane.test, signed'
    contains report '  DANE            matched 3 1 1 '
    stop xmpp
    examined 2 report --srv imaps dane.test
    ran "inspect --mx and --srv"
}

# The postfix "sender" delivers mail to `sockcat listen`, and must not deliver it to a server that matches no record.
send_with_postfix() {
    local domain
    launch sender 127.0.0.1 2525 "$servers/postfix" "$scratch/sender" 2525 mx1.pem mx1-key.pem myhostname=sender.dane.test \
        default_transport=smtp smtp_tls_security_level=dane smtp_dns_support_level=dnssec smtp_host_lookup=dns smtp_tls_loglevel=1
    for domain in good bad; do
        printf 'EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<you@%s.dane.test>\r\nDATA\r\nSubject: x\r\n\r\nhello\r\n.\r\nQUIT\r\n' $domain >request
        printed 0 reply "${inside[@]}" "$sockcat" connect --no-half-close 127.0.0.1 2525 <request
        contains reply '^250 2.0.0 Ok: queued'
    done
    logged sender 'Verified TLS connection established to mx2.dane.test'
    logged sender 'to=<you@good.dane.test>.*status=sent'
    logged sender 'to=<you@bad.dane.test>.*status=deferred \(Server certificate not '
    stop sender
    ran "mail from postfix with DANE"
}

# resolving <status> <line> …: runs `sockcat connect --dane` with these lines in /etc/resolv.conf.
resolving() {
    printf '%s\n' "${@:2}" >"$scratch/other.conf"
    # shellcheck disable=SC2016 # The shell in the namespace expands the expression.
    printf 'QUIT\r\n' | printed "$1" reply "${inside[@]}" unshare --mount bash -c \
        'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"' _ "$scratch/other.conf" \
        "$sockcat" connect --no-half-close --starttls smtp --dane mx1.dane.test 25
}

# A name server elsewhere is not trusted, although the first name server would reply.
distrust_resolvers() {
    resolving 2 'nameserver 127.0.0.1' 'nameserver 192.0.2.1'
    contains reply 'the name servers in /etc/resolv.conf are not on this machine'
    resolving 2 'nameserver 127.0.0.1' 'nameserver 2001:db8::1'
    contains reply 'the name servers in /etc/resolv.conf are not on this machine'
    resolving 0 'nameserver ::1' 'nameserver 127.0.0.1'
    resolving 0 'nameserver 127.0.0.1' 'nameserver 192.0.2.1' 'options trust-ad'
    resolving 2 'nameserver 127.0.0.9'
    contains reply 'no name server in /etc/resolv.conf gave a valid reply'
    resolving 2 'nameserver 127.0.0.10'
    contains reply 'the name server in /etc/resolv.conf does not validate DNSSEC'
    ran "other resolvers not trusted"
}

# A relay authenticates its target by the records that it looks up.
relay_to() {
    local name
    for name in mx1 mismatch; do
        launch relay 127.0.0.1 2600 "$sockcat" relay --verbose --listen 127.0.0.1:2600 --to "$name.dane.test:25" --to-starttls smtp --to-dane
        printf 'QUIT\r\n' | "${inside[@]}" timeout 60 "$sockcat" connect --no-half-close 127.0.0.1 2600 >>"$scratch/log" 2>&1 || true
        case $name in
            mx1) logged relay 'matching TLSA record: 3 1 1 ' ;;
            *) logged relay 'no TLSA record matches' ;;
        esac
        stop relay
    done
    ran "relay --to-dane"
}

# The record of the next key is published before the server uses it. Another key has no record.
roll_over() {
    agree mx2.dane.test Verified 0
    stop mx2
    serve_mail mx2-next
    agree mx2.dane.test Verified 0
    stop mx2
    serve_mail mx2-forgotten
    agree mx2.dane.test Untrusted 4
    ran rollover
}

check_dane() {
    local inside compared=0
    issue_mail_certificates
    enter_namespace
    serve_zones
    launch mx1 127.0.0.1 25 "$servers/postfix" "$scratch/mx1" 25 mx1-chain.pem mx1-key.pem
    serve_mail mx2
    compare_verdicts
    distrust_resolvers
    inspect_domains
    send_with_postfix
    relay_to
    roll_over
    stop mx1 mx2 careless unbound nsd namespace
}
