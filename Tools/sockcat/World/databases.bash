# Databases and directories.

# create_postgres: creates the files of a database that accepts every user.
create_postgres() {
    programs=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    folder=$(folder postgres postgres)
    become postgres
    printed 0 initdb "${as[@]}" "$programs/initdb" -D "$folder/data" -U postgres -A trust --no-sync --no-locale
}

# serve_postgres <version>
serve_postgres() {
    local tls=on
    [ "$1" != none ] || tls=off
    start postgres "$port" "${as[@]}" "$programs/postgres" -D "$folder/data" -p "$port" -h 127.0.0.1 -k "$folder" \
        -c fsync=off -c shared_buffers=8MB -c ssl="$tls" -c ssl_cert_file="$folder/server.pem" \
        -c ssl_key_file="$folder/server-key.pem" -c ssl_ca_file="$folder/ca.pem" -c ssl_max_protocol_version="TLSv${1/none/1.3}"
    logged postgres 'ready to accept connections'
}

check_postgres() {
    local programs folder startup query end='X\0\0\0\4'
    port=$(free_port)
    create_postgres
    # A StartupMessage of 41 bytes, a Query of 76 bytes after its type, and a Terminate message.
    startup='\0\0\0\x29\0\3\0\0user\0postgres\0database\0postgres\0\0'
    query='Q\0\0\0\x4cSELECT version, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()\0'
    for version in 1.2 1.3; do
        serve_postgres "$version"
        upgrading postgres "$port"
        converse "$startup$query$end" "TLSv$version\\xff\\xff\\xff\\xffC"
        converse "$startup$query$end" "TLSv$version....\\/CN=alice" "${client_certificate[@]}"
        stop postgres
    done
    serve_postgres none
    not_offered postgres "$port"
    stop postgres
}

# create_mariadb: creates the files of a database. The user guest needs no certificate, and the user alice does.
create_mariadb() {
    folder=$(folder mariadb mysql)
    cat >"$folder/users.sql" <<END
CREATE USER IF NOT EXISTS guest@'%';
CREATE USER IF NOT EXISTS alice@'%' REQUIRE X509;
END
    printed 0 install mariadb-install-db --no-defaults --user=mysql --datadir="$folder/data" --skip-test-db \
        --auth-root-authentication-method=normal
}

# serve_mariadb <version>
serve_mariadb() {
    local tls=(--ssl-cert="$folder/server.pem" --ssl-key="$folder/server-key.pem" --ssl-ca="$folder/ca.pem")
    case $1 in
        none) tls=(--skip-ssl) ;;
        1.2) tls+=(--tls-version=TLSv1.2) ;;
        1.3) tls+=(--tls-version=TLSv1.2,TLSv1.3) ;;
    esac
    start mariadb "$port" mariadbd --no-defaults --user=mysql --datadir="$folder/data" --socket="$folder/socket" \
        --pid-file="$folder/pid" --bind-address=127.0.0.1 --port="$port" --init-file="$folder/users.sql" \
        --innodb-flush-log-at-trx-commit=0 --skip-name-resolve "${tls[@]}"
}

check_mariadb() {
    # The server closes the connection without a close_notify alert.
    local folder login rest commands ending=6
    port=$(free_port)
    create_mariadb
    # A HandshakeResponse41 of 61 bytes without a password, COM_PING and COM_QUIT.
    login='\x3d\0\0\2\0\x8a\x08\0\0\0\0\1\x2d'$(printf '\\0%.0s' {1..23})
    rest='\0\0mysql_native_password\0'
    commands='\1\0\0\0\x0e\1\0\0\0\1'
    for version in 1.2 1.3; do
        serve_mariadb "$version"
        upgrading mysql "$port"
        converse "${login}guest$rest$commands" '\x07\x00\x00\x01\x00'
        converse "${login}alice$rest$commands" 'Access denied for user .alice.'
        converse "${login}alice$rest$commands" '\x07\x00\x00\x01\x00' "${client_certificate[@]}"
        stop mariadb
    done
    serve_mariadb none
    not_offered mysql "$port"
    stop mariadb
}

# serve_openldap <version>: starts slapd, which uses GnuTLS.
serve_openldap() {
    local folder priority=NORMAL
    folder=$(folder openldap)
    [ "$1" != 1.2 ] || priority+=:-VERS-TLS1.3
    cat >"$folder/slapd.conf" <<END
pidfile $folder/slapd.pid
argsfile $folder/slapd.args
END
    [ "$1" = none ] || cat >>"$folder/slapd.conf" <<END
TLSCertificateFile $folder/server.pem
TLSCertificateKeyFile $folder/server-key.pem
TLSCACertificateFile $folder/ca.pem
TLSVerifyClient try
TLSCipherSuite $priority
END
    start openldap "$port" slapd -d stats -h "ldap://127.0.0.1:$port" -f "$folder/slapd.conf"
}

check_openldap() {
    local who bind
    port=$(free_port)
    # A "Who am I?" request, and a bind request with the SASL mechanism EXTERNAL.
    who='\x30\x1e\x02\x01\x02\x77\x19\x80\x171.3.6.1.4.1.4203.1.11.3'
    bind='\x30\x18\x02\x01\x02\x60\x13\x02\x01\x03\x04\0\xa3\x0c\x04\x08EXTERNAL\x04\0'
    for version in 1.2 1.3; do
        serve_openldap "$version"
        upgrading ldap "$port"
        # The responses contain a result code: success, authMethodNotSupported, and again success.
        ldap_request "$who" '78 .. 0a 01 00'
        ldap_request "$bind" '61 .. 0a 01 07'
        ldap_request "$bind" '61 .. 0a 01 00' "${client_certificate[@]}"
        logged openldap 'BIND dn="cn=alice" mech=EXTERNAL'
        ran "client certificate"
        stop openldap
    done
    serve_openldap none
    not_offered ldap "$port"
    stop openldap
}

# ldap_request <request> <pattern> [<option> …]: sends a request. The start of the response, in hexadecimal, must match
# the pattern. No unbind request follows, because slapd could process it first.
ldap_request() {
    local response
    begin directory "$sockcat" connect --verbose --starttls ldap localhost "$port" --ca ca.pem "${@:3}"
    expect directory "secure: TLSv$version"
    expect directory 'key of the peer'
    # shellcheck disable=SC2059 # The request is a format.
    printf "$1" >&"${in[directory]}"
    response=$(timeout 30 head -c 10 <&"${out[directory]}" | od -An -tx1)
    [[ $response =~ $2 ]] || fail "the response of slapd does not match $2:$response"
    ran "TLS $version"
    stop directory
}

# serve_redis <version>
serve_redis() {
    local folder versions=TLSv1.2
    folder=$(folder redis)
    [ "$1" = 1.2 ] || versions+=' TLSv1.3'
    start redis "$port" redis-server --bind 127.0.0.1 --port 0 --tls-port "$port" --tls-cert-file "$folder/server.pem" \
        --tls-key-file "$folder/server-key.pem" --tls-ca-cert-file "$folder/ca.pem" --tls-auth-clients "$2" \
        --tls-protocols "$versions" --save '' --dir "$folder"
}

check_redis() {
    port=$(free_port)
    for version in 1.2 1.3; do
        serve_redis "$version" optional
        encrypting "$port"
        converse 'PING\r\nQUIT\r\n' '^\+PONG'
        converse 'PING\r\nQUIT\r\n' '^\+PONG' "${client_certificate[@]}"
        stop redis
        serve_redis "$version" yes
        converse 'PING\r\nQUIT\r\n' '^\+PONG' "${client_certificate[@]}"
        needs_certificate
        stop redis
    done
}
