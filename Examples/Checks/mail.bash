# Clients that send mail to postfix and read it from dovecot.

# serve_mail <folder> [<setting> …]: starts postfix, with STARTTLS on $port and without it on $plain_port. It delivers
# mail for example.org to <folder>/mail/box/new.
serve_mail() {
    port=$(free_port) plain_port=$(free_port)
    install -d "$scratch/$1"
    install -d -o nobody -g nogroup "$scratch/$1/mail"
    begin postfix "$servers/postfix" "$scratch/$1" "$port" server.pem server.key plain_port="$plain_port" \
        smtpd_tls_security_level=encrypt default_transport=error virtual_mailbox_domains=example.org \
        virtual_mailbox_base="$scratch/$1/mail" virtual_mailbox_maps=static:box/ \
        virtual_uid_maps="static:$(id -u nobody)" virtual_gid_maps="static:$(id -g nobody)" "${@:2}"
    expect postfix 'daemon started'
    printf 'Subject: test\n\nA line.\n.A line that begins with a dot.\n.\nThe end.\n' >"$scratch/letter"
}

# submit_mail <program> <pattern> <error>: runs the program against the postfix of `serve_mail <program>`. Its
# output must match the pattern when the mail is sent, and the error when the server is not trusted.
submit_mail() {
    local submit=("$programs/$1" localhost)
    printed 0 submitted "${trusting[@]}" "${submit[@]}" "$port" me@example.org you@example.org <"$scratch/letter"
    contains submitted "$2"
    expect postfix 'to=<you@example.org>.*status=sent'
    cat "$scratch/$1"/mail/box/new/* >"$scratch/mail"
    contains mail 'using TLSv1.3 with cipher'
    diff <(sed '1,/^$/d' "$scratch/letter") <(sed '1,/^$/d' "$scratch/mail") >&2 || fail "$1 changed the mail"
    printed 1 untrusted "${submit[@]}" "$port" me@example.org you@example.org <"$scratch/letter"
    contains untrusted "$3"
    printed 1 plain "${submit[@]}" "$plain_port" me@example.org you@example.org <"$scratch/letter"
    contains plain 'the server \(offers no STARTTLS\|does not offer TLS\)'
    printed 1 injected "${submit[@]}" "$port" $'me@example.org>\r\nRSET' you@example.org <"$scratch/letter"
    contains injected 'not a mail address'
}

# refuse_recipient <program> <error>: sends to a domain that postfix does not serve.
refuse_recipient() {
    printed 1 refused "${trusting[@]}" "$programs/$1" localhost "$port" me@example.org you@example.net <"$scratch/letter"
    contains refused "$2"
}

check_mail_submission() {
    local port plain_port
    serve_mail mail-submission
    submit_mail mail-submission '^secure: TLSv1.3' unknownIssuer
    stop postfix
}

check_smtp_client() {
    local port plain_port
    serve_mail smtp-client
    submit_mail smtp-client '^secure: TLSv1.3' unknownIssuer
    refuse_recipient smtp-client 'the server says: 550'
    stop postfix
}

# postfix verifies the password with dovecot.
check_smtp_client_login() {
    local port plain_port imap_port submit
    imap_port=$(free_port)
    begin dovecot "$servers/dovecot" "$scratch/users" server.pem server.key - imap="$imap_port"
    expect dovecot 'starting up'
    serve_mail submission smtpd_sasl_auth_enable=yes smtpd_sasl_type=dovecot smtpd_tls_auth_only=yes \
        smtpd_sasl_path="$scratch/users/run/auth-smtp" \
        smtpd_{relay,recipient}_restrictions='permit_sasl_authenticated, reject'
    submit=("${trusting[@]}" SMTP_USER=alice "$programs/smtp-client" localhost "$port" me@example.org you@example.org)
    printed 0 submitted env SMTP_PASSWORD=secret "${submit[@]}" <"$scratch/letter"
    expect postfix 'sasl_method=PLAIN, sasl_username=alice'
    expect postfix 'to=<you@example.org>.*status=sent'
    printed 1 denied env SMTP_PASSWORD=wrong "${submit[@]}" <"$scratch/letter"
    contains denied 'the server says: 535'
    printed 1 stranger env -u SMTP_USER "${trusting[@]}" "${submit[@]:3}" <"$scratch/letter"
    contains stranger 'the server says: 554'
    stop postfix dovecot
}

check_cocoa_mail() {
    local port plain_port mail=("$programs/cocoa-mail")
    serve_mail cocoa-mail
    submit_mail cocoa-mail '^secure: true' '^failed: .*(kCFStreamErrorDomainSSL -98'
    contains submitted '^sent'
    refuse_recipient cocoa-mail 'the server said: 550'
    printed 1 misnamed "${trusting[@]}" "${mail[@]}" 127.0.0.1 "$port" me@example.org you@example.org <"$scratch/letter"
    contains misnamed '^failed: .*(kCFStreamErrorDomainSSL -98'
    stop postfix
    # A server that sends an additional plaintext reply in the same packet as its go-ahead for STARTTLS.
    port=$(free_port)
    begin attacker python3 "$counterparts/injecting_smtp_server.py" "$port" server.pem server.key
    expect attacker listening
    printed 1 hostile "${trusting[@]}" "${mail[@]}" localhost "$port" me@example.org you@example.org <"$scratch/letter"
    contains hostile '^failed: '
    ! grep -q '^secure' "$scratch/hostile" || fail "cocoa-mail accepted plaintext as replies over TLS"
    expect attacker 'no TLS'
    ended attacker 0
}

check_imap_client() {
    local port list=("$programs/imap-client" localhost) box=$scratch/imap/mail/alice/new
    port=$(free_port)
    mkdir -p "$box"
    printf 'Subject: The first mail\n\nHello.\n' >"$box/1.a"
    printf 'Subject: The second (a long one)\n that goes on\n\nHello.\n' >"$box/2.b"
    printf 'From: me@example.org\n\nNo subject.\n' >"$box/3.c"
    begin dovecot "$servers/dovecot" "$scratch/imap" server.pem server.key - imap="$port"
    expect dovecot 'starting up'
    printed 0 subjects "${trusting[@]}" "${list[@]}" "$port" alice INBOX <<<secret
    diff <(printf 'The first mail\nThe second (a long one) that goes on\n\n') "$scratch/subjects" >&2 || fail "the subjects are wrong"
    printed 0 subjects "${trusting[@]}" "${list[@]}" "$port" bob INBOX <<<secret
    [ ! -s "$scratch/subjects" ] || fail "an empty mailbox has subjects"
    printed 1 denied "${trusting[@]}" "${list[@]}" "$port" alice INBOX <<<wrong
    contains denied AUTHENTICATIONFAILED
    printed 1 injected "${trusting[@]}" "${list[@]}" "$port" $'alice\r\na4 LOGOUT' INBOX <<<secret
    contains injected 'printable ASCII'
    printed 1 untrusted "${list[@]}" "$port" alice INBOX <<<secret
    contains untrusted unknownIssuer
    stop dovecot
}
