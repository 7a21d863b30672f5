import StartTLSProtocols

extension Transcript {
    /// The dialogues in lines, as real servers and clients hold them.
    static let lines =
        mail + [
            .client(
                "FTP (vsftpd)", .ftp, .peer("220 (vsFTPd 3.0.3)"), .own("AUTH TLS"), .peer("234 Proceed with negotiation.")),
            .client(
                "FTP (proftpd)", .ftp, .peer("220-Welcome to", "  the archive", "220- of files", "220 ProFTPD Server"),
                .own("AUTH TLS"), .peer("234 AUTH TLS successful")),
            .client(
                "FTP (delayed)", .ftp, .peer("120 Service ready in 1 minute"), .peer("220 Ready"), .own("AUTH TLS"),
                .peer("234 OK")),
            .server(
                "FTP (curl)", .ftp(greeting: "ftp.example.org"), .own("220 ftp.example.org"), .peer("AUTH SSL"),
                .own("504 AUTH TLS is the only supported mechanism"), .peer("AUTH TLS"), .own("234 AUTH TLS successful")),
            .server(
                "FTP (lftp)", .ftp(greeting: "ready"), .own("220 ready"), .peer("FEAT"),
                .own("211-Features:", " AUTH TLS", " PBSZ", " PROT", "211 End"), .peer("USER anonymous"),
                .own("530 Use AUTH TLS first"),
                .peer("NOOP"), .own("200 OK"), .peer("auth tls"), .own("234 AUTH TLS successful")),
            .client(
                "NNTP (INN)", .nntp, .peer("200 news.example.org InterNetNews NNRP server INN 2.7.1 ready (posting ok)"),
                .own("CAPABILITIES"),
                .peer("101 Capability list:", "VERSION 2", "IMPLEMENTATION INN 2.7.1", "READER", "STARTTLS", "LIST ACTIVE", "."),
                .own("STARTTLS"), .peer("382 Begin TLS negotiation now")),
            .client(
                "NNTP (old)", .nntp, .peer("201 news"), .own("CAPABILITIES"), .peer("500 What?"), .own("STARTTLS"),
                .peer("382 Continue with TLS negotiation")),
            .server(
                "NNTP", .nntp(greeting: "news.example.org"), .own("200 news.example.org"), .peer("MODE READER"),
                .own("200 news.example.org"), .peer("CAPABILITIES"),
                .own("101 Capability list follows", "VERSION 2", "STARTTLS", "."), .peer("AUTHINFO USER anna"),
                .own("483 Use STARTTLS first"), .peer("STARTTLS"), .own("382 Continue with TLS negotiation")),
            .server(
                "NNTP (gnutls-cli)", .nntp(greeting: "sockcat ready"), .own("200 sockcat ready"), .peer("STARTTLS"),
                .own("382 Continue with TLS negotiation")),
            .client(
                "IRC (InspIRCd)", .irc, .own("STARTTLS"),
                .peer(
                    ":irc.example.org NOTICE * :*** Looking up your hostname...",
                    ":irc.example.org 670 * :STARTTLS successful, go ahead with TLS handshake")),
            .client(
                "IRC (ping)", .irc, .own("STARTTLS"), .peer("PING :12 34", ":irc.example.org PING :5"),
                .peer(":i 439 * :Please wait", ":i 670 * :OK")),
            .server(
                "IRC", .irc(serverName: "irc.example.org"), .peer("CAP LS 302"), .own(":irc.example.org CAP * LS :tls"),
                .peer("NICK anna"), .own(":irc.example.org 451 * :Use STARTTLS first"), .peer("CAP REQ :sasl"),
                .own(":irc.example.org CAP * NAK :sasl"), .peer("CAP  REQ :tls"), .own(":irc.example.org CAP * ACK :tls"),
                .peer("PING 7"), .own(":irc.example.org PONG irc.example.org 7"),
                .peer("STARTTLS"), .own(":irc.example.org 670 * :STARTTLS successful, proceed with TLS handshake")),
            .client(
                "script", .script([.skip(to: "ready"), .send("SECURE"), .expect("yes")]), .peer("hello", "ready when you are"),
                .own("SECURE"), .peer("yes, now")),
            .server(
                "script", .script([.send("hello"), .expect("SECURE"), .send("yes")]), .own("hello"), .peer("SECURE"), .own("yes")),
        ]

    static let mail: [Transcript] = [
        .client(
            "SMTP (postfix)", .smtp(name: "client.example"), .peer("220 mail.example.org ESMTP Postfix (Debian/GNU)"),
            .own("EHLO client.example"),
            .peer("250-mail.example.org", "250-PIPELINING", "250-SIZE 10240000", "250-STARTTLS", "250-8BITMIME", "250 CHUNKING"),
            .own("STARTTLS"), .peer("220 2.0.0 Ready to start TLS")),
        .client(
            "SMTP (long greeting)", .smtp(name: "[192.0.2.1]"), .peer("220-one", "220-two", "220 three"),
            .own("EHLO [192.0.2.1]"), .peer("250-x", "250 starttls "), .own("STARTTLS"), .peer("220")),
        .client(
            "LMTP (dovecot)", .lmtp(name: "mx.example"), .peer("220 mail.example.org Dovecot ready."), .own("LHLO mx.example"),
            .peer("250-mail.example.org", "250-STARTTLS", "250 PIPELINING"), .own("STARTTLS"),
            .peer("220 2.0.0 Begin TLS negotiation now.")),
        .server(
            "SMTP", .smtp(greeting: "mail.example.org ESMTP", capabilities: ["SIZE 1000"]), .own("220 mail.example.org ESMTP"),
            .peer("EHLO client.example"), .own("250-mail.example.org", "250-SIZE 1000", "250 STARTTLS"),
            .peer("MAIL FROM:<a@example.org>"), .own("530 5.7.0 Must issue a STARTTLS command first"), .peer("EHLO"),
            .own("501 5.5.4 A host name is required"), .peer("NOOP"),
            .own("250 2.0.0 OK"), .peer("STARTTLS now"), .own("501 5.5.4 STARTTLS has no parameters"), .peer("starttls"),
            .own("220 2.0.0 Ready to start TLS")),
        .server(
            "LMTP", .lmtp(greeting: "mail.example.org"), .own("220 mail.example.org"), .peer("EHLO x"),
            .own("500 5.5.1 Command not recognized"), .peer("LHLO x"), .own("250-mail.example.org", "250 STARTTLS"),
            .peer("STARTTLS"), .own("220 2.0.0 Ready to start TLS")),
        .client(
            "IMAP (dovecot)", .imap,
            .peer("* OK [CAPABILITY IMAP4rev1 SASL-IR ID ENABLE IDLE STARTTLS LOGINDISABLED] Dovecot ready."),
            .own("a2 STARTTLS"), .peer("a2 OK Begin TLS negotiation now.")),
        .client(
            "IMAP (without capabilities)", .imap, .peer("* OK ready"), .own("a1 CAPABILITY"),
            .peer("* OK still here", "* CAPABILITY IMAP4rev1 starttls", "a1 OK done"), .own("a2 STARTTLS"),
            .peer("* OK soon", "a2 OK now")),
        .server(
            "IMAP", .imap(greeting: "ready"), .own("* OK [CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED] ready"),
            .peer("1 ID (\"name\" \"x\")"), .own("* ID NIL", "1 OK ID completed"), .peer("2 CAPABILITY"),
            .own("* CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED", "2 OK CAPABILITY completed"), .peer("3 LOGIN anna secret"),
            .own("3 NO [PRIVACYREQUIRED] Use STARTTLS first"), .peer("nonsense"),
            .own("* BAD A tag and a command are expected"), .peer("4 STARTTLS"), .own("4 OK Begin TLS negotiation now")),
        .client(
            "POP3 (dovecot)", .pop3, .peer("+OK Dovecot ready."), .own("CAPA"),
            .peer("+OK", "CAPA", "TOP", "UIDL", "RESP-CODES", "STLS", "SASL", "."), .own("STLS"),
            .peer("+OK Begin TLS negotiation now.")),
        .client("POP3 (old)", .pop3, .peer("+OK"), .own("CAPA"), .peer("-ERR unknown"), .own("STLS"), .peer("+OK")),
        .server(
            "POP3", .pop3(greeting: "ready", capabilities: ["UIDL"]), .own("+OK ready"), .peer("CAPA"),
            .own("+OK Capability list follows", "UIDL", "STLS", "."), .peer("USER anna"), .own("-ERR Use STLS first"),
            .peer("STLS"), .own("+OK Begin TLS negotiation")),
        .client(
            "ManageSieve (dovecot)", .manageSieve,
            .peer(
                "\"IMPLEMENTATION\" \"Dovecot Pigeonhole\"", "\"SIEVE\" \"fileinto reject\"", "\"NOTIFY\" \"mailto\"",
                "\"SASL\" \"\"", "\"STARTTLS\"", "\"VERSION\" \"1.0\"", "OK \"Dovecot ready.\""),
            .own("STARTTLS"), .peer("OK \"Begin TLS negotiation now.\"")),
        .client(
            "ManageSieve (literals)", .manageSieve, .peer("\"STARTTLS\"", "\"SIEVE\" {4}", "OK x", "OK {2}", "{}"),
            .own("STARTTLS"), .peer("OK {6}", "\r\nOK\r\n")),
        .server(
            "ManageSieve", .manageSieve(greeting: "sieved"),
            .own(
                "\"IMPLEMENTATION\" \"sieved\"", "\"SIEVE\" \"\"", "\"SASL\" \"\"", "\"STARTTLS\"", "\"VERSION\" \"1.0\"",
                "OK \"ready\""),
            .peer("AUTHENTICATE \"PLAIN\" \"AGEAYg==\""), .own("NO (ENCRYPT-NEEDED) \"Use STARTTLS first\""),
            .peer("NOOP \"x\""), .own("OK (TAG {1}", "x) \"Done\""), .peer("NOOP"), .own("OK \"Done\""), .peer("STARTTLS"),
            .own("OK \"Begin TLS negotiation now\"")),
    ]
}
