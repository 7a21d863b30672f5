# Servers that transfer, store and filter mail.

# serve_postfix <version>: starts postfix with TLS up to this version, or without TLS if it is "none". Only clients
# with a certificate may send mail.
serve_postfix() {
    local folder level=may
    folder=$(folder postfix)
    [ "$1" != none ] || level=none
    mkdir -p "$folder"/{etc,spool,lib}
    chown postfix "$folder/lib"
    cat >"$folder/etc/main.cf" <<END
compatibility_level = 3.6
queue_directory = $folder/spool
data_directory = $folder/lib
maillog_file = /dev/stdout
maillog_file_prefixes = /dev
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = localhost
mydestination =
mynetworks =
alias_maps =
default_transport = discard
smtpd_peername_lookup = no
smtpd_relay_restrictions = permit_tls_all_clientcerts, reject
smtpd_tls_security_level = $level
smtpd_tls_protocols = >=TLSv1.2, <=TLSv$1
smtpd_tls_cert_file = $folder/server.pem
smtpd_tls_key_file = $folder/server-key.pem
smtpd_tls_CAfile = $folder/ca.pem
smtpd_tls_ask_ccert = yes
END
    [ "$1" != none ] || sed -i '/^smtpd_tls_protocols/d' "$folder/etc/main.cf"
    cat >"$folder/etc/master.cf" <<END
127.0.0.1:$port inet n - n - - smtpd
cleanup  unix n - n - 0 cleanup
tlsmgr   unix - - n 1000? 1 tlsmgr
rewrite  unix - - n - - trivial-rewrite
anvil    unix - - n - 1 anvil
proxymap unix - - n - - proxymap
postlog  unix-dgram n - n - 1 postlogd
END
    # Creates the queue folders. Also reports files that only a full installation has.
    postfix -c "$folder/etc" check >/dev/null 2>&1 || true
    start postfix "$port" /usr/lib/postfix/sbin/master -c "$folder/etc" -s
}

check_postfix() {
    local hello='EHLO client.example\r\n' mail='MAIL FROM:<me@example.org>\r\nRCPT TO:<you@example.org>\r\n' quit='QUIT\r\n'
    port=$(free_port)
    for version in 1.2 1.3; do
        serve_postfix "$version"
        upgrading smtp "$port"
        converse "$hello$quit" '^250-PIPELINING'
        converse "$hello$mail$quit" '^554 5.7.1 .*Access denied'
        converse "$hello$mail$quit" '^250 2.1.5 Ok' "${client_certificate[@]}"
        stop postfix
    done
    serve_postfix none
    not_offered smtp "$port"
    stop postfix
}

# serve_dovecot <version>: starts dovecot with TLS up to this version, or without TLS if it is "none". Users must
# have a certificate, which contains their name.
serve_dovecot() {
    local folder tls=yes limits
    folder=$(folder dovecot)
    [ "$1" != none ] || tls=no
    mkdir -p "$folder"/{run,mail}
    chown nobody:nogroup "$folder/mail"
    limits=$scratch/openssl-${1/none/1.3}.cnf
    cat >"$folder/dovecot.conf" <<END
protocols = imap pop3 sieve lmtp
base_dir = $folder/run
state_dir = $folder/run
log_path = /dev/stderr
listen = 127.0.0.1
import_environment = OPENSSL_CONF=$limits
ssl = $tls
ssl_cert = <$folder/server.pem
ssl_key = <$folder/server-key.pem
ssl_ca = <$folder/ca.pem
ssl_verify_client_cert = yes
ssl_require_crl = no
auth_ssl_require_client_cert = yes
auth_ssl_username_from_cert = yes
mail_location = maildir:$folder/mail/%u
first_valid_uid = 0
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=nobody gid=nogroup home=$folder/mail/%u
}
service imap-login {
  inet_listener imap {
    port = $imap
  }
  inet_listener imaps {
    port = 0
  }
}
service pop3-login {
  inet_listener pop3 {
    port = $pop3
  }
  inet_listener pop3s {
    port = 0
  }
}
service managesieve-login {
  inet_listener sieve {
    port = $sieve
  }
}
service lmtp {
  inet_listener lmtp {
    port = $lmtp
  }
}
service stats {
  client_limit = 100
}
END
    start dovecot "$imap" dovecot -F -c "$folder/dovecot.conf"
}

check_dovecot() {
    local imap pop3 sieve lmtp
    imap=$(free_port) pop3=$(free_port) sieve=$(free_port) lmtp=$(free_port)
    for version in 1.2 1.3; do
        serve_dovecot "$version"
        read_with_imap
        read_with_pop3
        filter_with_sieve
        deliver_with_lmtp
        stop dovecot
    done
    serve_dovecot none
    not_offered imap "$imap"
    not_offered pop3 "$pop3"
    not_offered sieve "$sieve"
    not_offered lmtp "$lmtp"
    stop dovecot
}

read_with_imap() {
    upgrading imap "$imap"
    converse '1 LOGIN alice secret\r\n2 LOGOUT\r\n' '^1 NO '
    converse '1 LOGIN ignored secret\r\n2 NAMESPACE\r\n3 LOGOUT\r\n' '^1 OK .*Logged in' "${client_certificate[@]}"
    logged dovecot 'imap-login: Info: Login: user=<alice>, .*TLS'
}

read_with_pop3() {
    upgrading pop3 "$pop3"
    converse 'USER alice\r\nPASS secret\r\nQUIT\r\n' '^-ERR '
    converse 'USER ignored\r\nPASS secret\r\nSTAT\r\nQUIT\r\n' '^\+OK Logged in' "${client_certificate[@]}"
}

filter_with_sieve() {
    local login
    # The name and the password, separated by zero bytes.
    login='AUTHENTICATE "PLAIN" "AGFsaWNlAHNlY3JldA=="\r\n'
    upgrading sieve "$sieve"
    converse "${login}LOGOUT\r\n" '^NO '
    converse "${login}LISTSCRIPTS\r\nLOGOUT\r\n" '^OK "Logged in' "${client_certificate[@]}"
}

deliver_with_lmtp() {
    local letter='MAIL FROM:<me@example.org>\r\nRCPT TO:<alice>\r\nDATA\r\nSubject: test\r\n\r\nA line.\r\n.\r\n'
    upgrading lmtp "$lmtp"
    converse "LHLO client.example\r\n${letter}QUIT\r\n" '^250 2.0.0 <alice> .* Saved'
    converse "LHLO client.example\r\n${letter}QUIT\r\n" '^250 2.0.0 <alice> .* Saved' "${client_certificate[@]}"
}
