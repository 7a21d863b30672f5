# Servers for files and messages between programs, and proxies.

# serve_vsftpd <version> <YES if clients must have a certificate, or NO>
serve_vsftpd() {
    local folder tls=YES
    folder=$(folder vsftpd)
    [ "$1" != none ] || tls=NO
    mkdir -p "$folder"/{root,empty}
    echo 'Hello, world!' >"$folder/root/hello"
    cat >"$folder/vsftpd.conf" <<END
listen=YES
listen_address=127.0.0.1
listen_port=$port
background=NO
anonymous_enable=YES
no_anon_password=YES
anon_root=$folder/root
local_enable=NO
secure_chroot_dir=$folder/empty
seccomp_sandbox=NO
xferlog_enable=NO
ssl_enable=$tls
ssl_tlsv1=YES
ssl_ciphers=HIGH
allow_anon_ssl=YES
force_anon_data_ssl=$tls
force_anon_logins_ssl=$tls
require_ssl_reuse=NO
rsa_cert_file=$folder/server.pem
rsa_private_key_file=$folder/server-key.pem
ca_certs_file=$folder/ca.pem
validate_cert=$2
require_cert=$2
END
    start vsftpd "$port" env OPENSSL_CONF="$scratch/openssl-${1/none/1.3}.cnf" vsftpd "$folder/vsftpd.conf"
}

check_vsftpd() {
    # The server closes the connection without a close_notify alert.
    local login='USER anonymous\r\nPBSZ 0\r\nPROT P\r\n' ending=6
    port=$(free_port)
    for version in 1.2 1.3; do
        serve_vsftpd "$version" NO
        upgrading ftp "$port"
        converse "${login}PWD\r\nQUIT\r\n" '^257 "/"'
        download
        stop vsftpd
        serve_vsftpd "$version" YES
        converse "${login}QUIT\r\n" '^200 PROT now Private' "${client_certificate[@]}"
        needs_certificate
        stop vsftpd
    done
    serve_vsftpd none NO
    not_offered ftp "$port"
    stop vsftpd
}

# download: reads a file over a second connection, which also uses TLS.
download() {
    begin control "$sockcat" connect --crlf --starttls ftp localhost "$port" --ca ca.pem
    for command in 'USER anonymous' 'PBSZ 0' 'PROT P' PASV; do say control "$command"; done
    expect control '227 .*,([0-9]+),([0-9]+)\)'
    say control 'RETR hello'
    printed 0 hello "$sockcat" connect --tls --ca ca.pem --no-half-close \
        localhost $((BASH_REMATCH[1] * 256 + BASH_REMATCH[2])) </dev/null
    contains hello '^Hello, world!'
    expect control '^226 '
    ran "data connection"
    stop control
}

# The request of a browser. The server closes the connection after its response.
request='GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'

# serve_nginx <version>
serve_nginx() {
    local folder versions=TLSv1.2
    folder=$(folder nginx)
    [ "$1" = 1.2 ] || versions+=' TLSv1.3'
    cat >"$folder/nginx.conf" <<END
daemon off;
pid $folder/nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path $folder/body;
    proxy_temp_path $folder/proxy;
    fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi;
    scgi_temp_path $folder/scgi;
    server {
        listen 127.0.0.1:$port ssl;
        ssl_certificate $folder/server.pem;
        ssl_certificate_key $folder/server-key.pem;
        ssl_client_certificate $folder/ca.pem;
        ssl_verify_client optional;
        ssl_protocols $versions;
        return 200 "\$ssl_protocol, \$ssl_client_verify, \$ssl_client_s_dn\n";
    }
}
END
    start nginx "$port" nginx -c "$folder/nginx.conf" -p "$folder"
}

check_nginx() {
    port=$(free_port)
    for version in 1.2 1.3; do
        serve_nginx "$version"
        encrypting "$port"
        converse "$request" "^TLSv$version, NONE, "
        converse "$request" "^TLSv$version, SUCCESS, CN=alice" "${client_certificate[@]}"
        stop nginx
    done
}

# serve_haproxy <version>
serve_haproxy() {
    local folder
    folder=$(folder haproxy)
    cat "$folder"/server{,-key}.pem >"$folder/identity.pem"
    cat >"$folder/haproxy.cfg" <<END
defaults
    mode http
    timeout client 30s
frontend secure
    bind 127.0.0.1:$port ssl crt $folder/identity.pem ca-file $folder/ca.pem verify optional ssl-max-ver TLSv$1
    http-request return status 200 content-type text/plain lf-string "%[ssl_fc_protocol], %[ssl_c_s_dn(CN)]"
END
    start haproxy "$port" haproxy -db -f "$folder/haproxy.cfg"
}

check_haproxy() {
    port=$(free_port)
    for version in 1.2 1.3; do
        serve_haproxy "$version"
        encrypting "$port"
        converse "$request" "^TLSv$version, \$"
        converse "$request" "^TLSv$version, alice\$" "${client_certificate[@]}"
        stop haproxy
    done
}

# serve_mosquitto <version>: clients need a certificate at $strict_port.
serve_mosquitto() {
    local folder certificates
    folder=$(folder mosquitto mosquitto)
    certificates=$(printf 'certfile %s\nkeyfile %s\ncafile %s' "$folder"/{server,server-key,ca}.pem)
    cat >"$folder/mosquitto.conf" <<END
per_listener_settings false
allow_anonymous true
log_dest stderr
listener $lenient_port 127.0.0.1
$certificates
listener $strict_port 127.0.0.1
$certificates
require_certificate true
use_identity_as_username true
END
    start mosquitto "$strict_port" env OPENSSL_CONF="$scratch/openssl-$1.cnf" mosquitto -c "$folder/mosquitto.conf"
}

check_mosquitto() {
    local strict_port lenient_port messages
    lenient_port=$(free_port) strict_port=$(free_port)
    # CONNECT, PINGREQ and DISCONNECT, and the responses CONNACK and PINGRESP.
    messages='\x10\x10\0\4MQTT\4\2\0\x3c\0\4test\xc0\0\xe0\0'
    for version in 1.2 1.3; do
        serve_mosquitto "$version"
        encrypting "$lenient_port"
        converse "$messages" '\x20\x02\x00\x00\xd0\x00'
        port=$strict_port
        converse "$messages" '\x20\x02\x00\x00\xd0\x00' "${client_certificate[@]}"
        logged mosquitto "as test .*u'alice'"
        needs_certificate
        stop mosquitto
    done
}

# serve_stunnel <version>: clients need a certificate at $strict_port.
serve_stunnel() {
    local folder
    folder=$(folder stunnel)
    cat >"$folder/stunnel.conf" <<END
foreground = yes
pid =
connect = 127.0.0.1:$plain_port
cert = $folder/server.pem
key = $folder/server-key.pem
sslVersionMax = TLSv$1
[lenient]
accept = 127.0.0.1:$lenient_port
[strict]
accept = 127.0.0.1:$strict_port
CAfile = $folder/ca.pem
verifyChain = yes
[postgres]
accept = 127.0.0.1:$postgres_port
protocol = pgsql
END
    start stunnel "$postgres_port" stunnel4 "$folder/stunnel.conf"
}

check_stunnel() {
    local plain_port lenient_port strict_port postgres_port
    lenient_port=$(free_port) strict_port=$(free_port) postgres_port=$(free_port) plain_port=$(free_port)
    # Returns the first line.
    start plain "$plain_port" "$sockcat" listen --exec 'head -n 1' "localhost:$plain_port"
    for version in 1.2 1.3; do
        serve_stunnel "$version"
        encrypting "$lenient_port"
        converse 'a line\n' '^a line'
        port=$strict_port
        converse 'a line\n' '^a line' "${client_certificate[@]}"
        needs_certificate
        upgrading postgres "$postgres_port"
        converse 'a line\n' '^a line'
        stop stunnel
    done
    stop plain
}
