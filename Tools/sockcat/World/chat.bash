# Servers for messages between people: XMPP, IRC and news.

# serve_prosody <version>: starts prosody with TLS up to this version, or without TLS if it is "none".
serve_prosody() {
    local folder module='"tls";' is_required=true versions=tlsv1_2+
    folder=$(folder prosody prosody)
    case $1 in
        none) module="" is_required=false ;;
        1.2) versions=tlsv1_2 ;;
    esac
    cat >"$folder/prosody.cfg.lua" <<END
run_as_root = true
pidfile = "$folder/prosody.pid"
data_path = "$folder"
modules_enabled = { "roster"; "saslauth"; "dialback"; "disco"; $module "c2s"; "s2s" }
modules_disabled = { "posix"; "tls_policy" }
interfaces = { "127.0.0.1" }
c2s_ports = { $client_port }
s2s_ports = { $server_port }
c2s_direct_tls_ports = { }
s2s_direct_tls_ports = { }
http_ports = { }
https_ports = { }
c2s_require_encryption = $is_required
s2s_require_encryption = $is_required
authentication = "internal_hashed"
log = { debug = "*console" }
ssl = {
  certificate = "$folder/server.pem"; key = "$folder/server-key.pem"; cafile = "$folder/ca.pem";
  protocol = "$versions"; verify = { "peer" }; verifyext = { "lsec_continue"; "lsec_ignore_purpose" };
}
VirtualHost "example.org"
END
    become prosody
    start prosody "$client_port" "${as[@]}" prosody --config "$folder/prosody.cfg.lua" -F
    until_listening prosody "$server_port"
}

check_prosody() {
    local client_port server_port
    client_port=$(free_port) server_port=$(free_port)
    for version in 1.2 1.3; do
        serve_prosody "$version"
        upgrading xmpp "$client_port" --sni example.org
        converse "$(stream_header client)</stream:stream>" '<mechanism>SCRAM-SHA-1'
        converse "$(stream_header client)</stream:stream>" '<mechanism>SCRAM-SHA-1' "${client_certificate[@]}"
        # A server with a certificate for its domain does not need dialback.
        upgrading xmpp-server "$server_port" --sni example.org
        converse "$(stream_header server)</stream:stream>" '<dialback'
        ! replied 'EXTERNAL' || fail "prosody accepts a server without a certificate"
        converse "$(stream_header server)</stream:stream>" '<mechanism>EXTERNAL' --cert server.pem --key server-key.pem
        stop prosody
    done
    serve_prosody none
    not_offered xmpp "$client_port" --sni example.org
    not_offered xmpp-server "$server_port" --sni example.org
    stop prosody
}

# stream_header <client or server>
stream_header() {
    printf "<?xml version='1.0'?><stream:stream xmlns='jabber:%s' xmlns:stream='http://etherx.jabber.org/streams' " "$1"
    printf "from='localhost' to='example.org' version='1.0'>"
}

# serve_inspircd <version>: starts inspircd, which uses GnuTLS, with TLS up to this version, or without TLS if it is
# "none".
serve_inspircd() {
    local folder priority=SECURE192:+SECURE128:-VERS-ALL:+VERS-TLS1.2
    folder=$(folder inspircd irc)
    [ "$1" = 1.2 ] || priority+=:+VERS-TLS1.3
    cat >"$folder/inspircd.conf" <<END
<server name="irc.example.org" description="test" network="test">
<admin name="admin" nick="admin" email="admin@example.org">
<bind address="127.0.0.1" port="$port" type="clients">
<connect allow="*" resolvehostnames="no" timeout="60" localmax="100" globalmax="100">
<pid file="$folder/inspircd.pid">
<log method="file" type="* -USERINPUT -USEROUTPUT" level="default" target="$folder/log">
END
    [ "$1" = none ] || cat >>"$folder/inspircd.conf" <<END
<module name="cap">
<module name="ssl_gnutls">
<module name="starttls">
<module name="sslinfo">
<sslprofile name="Clients" provider="gnutls" cafile="$folder/ca.pem" certfile="$folder/server.pem" hash="sha256"
    keyfile="$folder/server-key.pem" priority="$priority" requestclientcert="yes">
<starttls enabled="yes">
END
    become irc
    start inspircd "$port" "${as[@]}" inspircd --nofork --config "$folder/inspircd.conf"
}

check_inspircd() {
    port=$(free_port)
    for version in 1.2 1.3; do
        serve_inspircd "$version"
        upgrading irc "$port"
        converse 'CAP LS 302\r\nQUIT\r\n' ' CAP .* LS '
        register
        expect member ' 671 alice alice '
        leave
        register "${client_certificate[@]}"
        expect member ' 276 alice alice .*fingerprint'
        ran "client certificate"
        leave
        stop inspircd
    done
    serve_inspircd none
    # Without its module, inspircd ignores the command.
    upgrade=(--starttls irc)
    denied 5 'IRC: the dialogue before TLS was not complete' --timeout 2s
    ran "server without TLS times out"
    stop inspircd
}

# register [<option of sockcat> …]: connects as the user alice, and requests what the server knows about alice.
register() {
    begin member "$sockcat" connect --verbose --crlf --starttls irc localhost "$port" --ca ca.pem "$@"
    expect member "secure: TLSv$version"
    say member 'NICK alice'
    say member 'USER alice 0 * :Alice'
    expect member ' 001 alice '
    say member 'WHOIS alice'
}

leave() {
    say member 'QUIT'
    expect member '^ERROR :Closing link'
    stop member
}

# serve_inn <version>: starts nnrpd, the part of INN that serves readers, with TLS up to this version, or without
# TLS if it is "none".
serve_inn() {
    local folder versions='TLSv1.2'
    folder=$(folder inn news)
    [ "$1" = 1.2 ] || versions+=' TLSv1.3'
    cat >"$folder/inn.conf" <<END
domain: example.org
pathhost: news.example.org
mta: "/bin/true %s"
hismethod: hisv6
ovmethod: tradindexed
pathnews: /usr/lib/news
pathdb: $folder
pathetc: $folder
pathrun: $folder
pathtmp: $folder
pathspool: $folder
pathoverview: $folder
patharticles: $folder
pathlog: $folder
nnrpdloadlimit: 0
readerswhenstopped: true
END
    [ "$1" = none ] || cat >>"$folder/inn.conf" <<END
tlscafile: $folder/ca.pem
tlscertfile: $folder/server.pem
tlskeyfile: $folder/server-key.pem
tlsprotocols: [ $versions ]
END
    echo 'method trash { newsgroups: * class: 0 }' >"$folder/storage.conf"
    echo 'control 0000000000 0000000001 n' >"$folder/active"
    printf 'auth all { default: "<any>" }\naccess all { users: "<any>" newsgroups: "*" }\n' >"$folder/readers.conf"
    become news
    # Creates the index of articles, without which nnrpd rejects all connections.
    printed 0 makehistory "${as[@]}" INNCONF="$folder/inn.conf" PATH="/usr/lib/news/bin:$PATH" makehistory -O -x
    start inn "$port" "${as[@]}" INNCONF="$folder/inn.conf" /usr/lib/news/bin/nnrpd -D -f -4 127.0.0.1 -p "$port"
}

check_inn() {
    port=$(free_port)
    for version in 1.2 1.3; do
        serve_inn "$version"
        upgrading nntp "$port"
        converse 'CAPABILITIES\r\nDATE\r\nQUIT\r\n' '^111 [0-9]{14}'
        ! replied '^STARTTLS' || fail "INN offers TLS a second time"
        converse 'LIST ACTIVE\r\nQUIT\r\n' '^control ' "${client_certificate[@]}"
        stop inn
    done
    serve_inn none
    # Without a certificate, nnrpd still offers STARTTLS.
    upgrade=(--starttls nntp)
    denied 3 'NNTP: the server refused to start TLS: "580'
    ran "server without TLS rejected"
    stop inn
}
