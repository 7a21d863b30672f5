# Clients of other projects that connect to `sockcat listen --starttls`. All of them verify the certificate.

# offering <protocol> <option> …: starts a server that upgrades connections, and stores its port in $port.
offering() {
    begin offer "$sockcat" listen --verbose --starttls "$1" --cert server.pem --key server-key.pem "${@:2}" localhost:0
    expect offer 'listening on .*:([0-9]+)$'
    port=${BASH_REMATCH[1]}
    ran "$1"
}

# responding <protocol> [<option> …]: starts a server that replies to the commands of a client.
responding() {
    offering "$1" --exec "$world/respond $1" "${@:2}"
}

# visited [<subject>]: waits until the server has negotiated the version of TLS. If a subject is given, the client
# must have presented a certificate for it.
visited() {
    expect offer "secure: TLSv$version"
    ran "TLS $version"
    [ $# -eq 0 ] || expect offer "peer: $1"
}

# The protocols of sockcat, which are also the names that openssl uses.
protocols=(smtp lmtp imap pop3 sieve ftp xmpp xmpp-server postgres mysql ldap irc nntp)

check_listen_openssl() {
    local protocol
    for protocol in "${protocols[@]}"; do
        offering "$protocol" --echo
        for version in 1.2 1.3; do echo_with_openssl; done
        stop offer
        offering "$protocol" --echo --client-ca ca.pem
        for version in 1.2 1.3; do echo_with_openssl -cert alice.pem -key alice-key.pem; done
        visit_without_certificate
        stop offer
    done
    ran "client certificate"
    ran "client certificate required"
}

# visit_with_openssl [<option> …]
visit_with_openssl() {
    local names=(-servername localhost -verify_hostname localhost)
    [[ $protocol != xmpp* ]] || names+=(-xmpphost localhost)
    begin openssl openssl s_client -quiet -starttls "$protocol" -connect "localhost:$port" -CAfile ca.pem \
        -verify_return_error "-tls${version/./_}" "${names[@]}" "$@"
}

visit_without_certificate() {
    visit_with_openssl
    expect offer 'the client sent no certificate'
    stop openssl
}

# echo_with_openssl [<option> …]
echo_with_openssl() {
    visit_with_openssl "$@"
    visited ${1:+CN=alice}
    say openssl "hello over TLS"
    expect openssl '^hello over TLS'
    stop openssl
}

check_listen_gnutls() {
    local protocol priority
    for protocol in "${protocols[@]}"; do
        # gnutls-cli does not know these protocols.
        [[ $protocol != @(irc|mysql|xmpp-server) ]] || continue
        offering "$protocol" --echo
        for version in 1.2 1.3; do
            priority=NORMAL:-VERS-ALL:+VERS-TLS$version
            begin gnutls gnutls-cli --starttls-proto="$protocol" --x509cafile ca.pem --priority "$priority" \
                --port "$port" localhost
            expect gnutls 'The certificate is trusted'
            visited
            say gnutls "hello over TLS"
            expect gnutls '^hello over TLS'
            stop gnutls
        done
        stop offer
    done
}

# with_curl <protocol> <pattern> <path> <option> …: the output of curl must match.
with_curl() {
    local protocol=$1 pattern=$2 path=$3
    shift 3
    responding "$protocol" --client-ca ca.pem
    for version in 1.2 1.3; do
        printed 0 curl curl --silent --show-error --verbose --ssl-reqd --cacert ca.pem --cert alice.pem --key alice-key.pem \
            --tls-max "$version" --max-time 30 "$protocol://localhost:$port/$path" "$@"
        contains curl "$pattern"
        visited CN=alice
    done
    printed 60 curl curl --silent --ssl-reqd --max-time 30 "$protocol://localhost:$port/$path" "$@"
    stop offer
}

check_listen_curl() {
    printf 'Subject: test\r\n\r\nA line.\r\n' >"$scratch/letter"
    with_curl smtp '250 Queued' '' --mail-from me@example.org --mail-rcpt you@example.org --upload-file letter
    with_curl imap '^\* LIST () "/" secure' '' --user alice:secret
    with_curl pop3 '^1 20' '' --user alice:secret
    with_curl ftp '257 "/secure"' '' --head
    ran "client certificate"
}

check_listen_swaks() {
    responding smtp
    for version in 1.2 1.3; do
        printed 0 swaks swaks --server localhost --port "$port" --from me@example.org --to you@example.org \
            --tls --tls-verify --tls-ca-path "$scratch/ca.pem" --tls-protocol "tlsv${version/./_}"
        contains swaks '^<~  250 Queued'
        visited
    done
    stop offer
    offering smtp --mail
    for version in 1.2 1.3; do
        printed 0 swaks swaks --server localhost --port "$port" --from me@example.org --to you@example.org,they@example.org \
            --tls --tls-verify --tls-ca-path "$scratch/ca.pem" --tls-protocol "tlsv${version/./_}"
        contains swaks '^<~  250 2.0.0 Accepted and discarded'
        contains swaks '^<~  221 2.0.0 localhost closing connection'
        visited
    done
    stop offer
}

check_listen_python() {
    local protocol
    for protocol in smtp imap pop3 ftp nntp; do
        responding "$protocol"
        for version in 1.2 1.3; do
            printed 0 python python3 -W ignore "$world/python-client" "$protocol" "$port" "$version" ca.pem
            contains python '^done$'
            visited
        done
        stop offer
    done
}

check_listen_psql() {
    local query=(psql -X -A -t -c 'SELECT 1') server
    responding postgres --client-ca ca.pem
    server="host=localhost port=$port user=alice"
    for version in 1.2 1.3; do
        printed 0 psql "${query[@]}" "$server sslmode=verify-full sslrootcert=ca.pem sslcert=alice.pem sslkey=alice-key.pem
            ssl_max_protocol_version=TLSv$version"
        contains psql '^secure$'
        visited CN=alice
    done
    ran "client certificate"
    printed 2 psql "${query[@]}" "$server sslmode=verify-full sslrootcert=stranger/ca.pem"
    contains psql 'certificate verify failed'
    printed 2 psql "${query[@]}" "$server sslmode=disable"
    contains psql 'TLS is required'
    stop offer
}

check_listen_mariadb() {
    responding mysql
    for version in 1.2 1.3; do
        printed 0 ping mariadb-admin --no-defaults --host=localhost --protocol=tcp --port="$port" --user=alice \
            --ssl-ca=ca.pem --ssl-verify-server-cert --tls-version="TLSv$version" ping
        contains ping 'is alive'
        visited
    done
    stop offer
}

check_listen_ldapsearch() {
    local priority
    # The certificate is verified for the address, because libldap replaces "localhost" with the machine's name.
    responding ldap
    for version in 1.2 1.3; do
        priority=NORMAL:-VERS-ALL:+VERS-TLS$version
        printed 0 ldapsearch env LDAPTLS_CACERT="$scratch/ca.pem" LDAPTLS_REQCERT=demand LDAPTLS_CIPHER_SUITE="$priority" \
            ldapsearch -ZZ -x -H "ldap://127.0.0.1:$port" -b '' -s base
        contains ldapsearch '^cn: secure'
        visited
    done
    stop offer
}
