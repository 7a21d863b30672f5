# Servers that transfer, store and filter mail.

# serve_postfix <version>: starts postfix with TLS up to this version, or without TLS if it is "none". Only clients
# with a certificate may send mail.
serve_postfix() {
    local level=may
    [ "$1" != none ] || level=none
    start postfix "$port" "$servers/postfix" "$scratch/postfix" "$port" server.pem server-key.pem \
        mynetworks= smtpd_relay_restrictions='permit_tls_all_clientcerts, reject' smtpd_tls_security_level="$level" \
        smtpd_tls_protocols=">=TLSv1.2, <=TLSv${1/none/1.3}" smtpd_tls_CAfile="$scratch/ca.pem" smtpd_tls_ask_ccert=yes
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
    local tls=required
    [ "$1" != none ] || tls=no
    start dovecot "$imap" "$servers/dovecot" "$scratch/dovecot" server.pem server-key.pem ca.pem \
        imap="$imap" pop3="$pop3" sieve="$sieve" lmtp="$lmtp" "ssl = $tls" "auth_ssl_username_from_cert = yes" \
        "import_environment = OPENSSL_CONF=$scratch/openssl-${1/none/1.3}.cnf"
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
