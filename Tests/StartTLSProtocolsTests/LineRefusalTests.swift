import StartTLSProtocols
import Testing

/// Peers of FTP, NNTP, IRC and scripts that do not agree to start TLS.
@Suite struct LineRefusalTests {
    @Test(arguments: ftpGreeting + ftpAuth) func anFTPClientDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: ftpServer) func anFTPServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: nntpCapabilities + nntpStartTLS) func anNNTPClientDoesNotStartTLS(_ row: RefusalRow) throws {
        try row.check()
    }

    @Test(arguments: nntpServer) func anNNTPServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: ircClient) func anIRCClientDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: ircServer) func anIRCServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: script) func aScriptDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    // MARK: - FTP (RFC 959, sections 4.2 and 5.4, and RFC 4217, section 4)

    private static let ftpGreeting: [RefusalRow] =
        RefusalRow.client(
            "FTP greeting", .ftp,
            lines: [
                "421 busy": .refused, "530 no": .refused, "120 wait\r\n421 busy": .refused, "234 go": .refused,
                "421-no\r\n220 m\r\n421 no": .refused, "220 AUTH TLS": .sends("AUTH TLS\r\n"), "120 wait": .waits,
                "220-m": .waits, "220-m\r\n234 go": .waits, "220-m\r\n421 busy": .waits, "421-no\r\n220 m": .waits,
                "": .unexpected, "22": .unexpected, "22 m": .unexpected, "2200 m": .unexpected, "220_m": .unexpected,
                "220\tm": .unexpected, " 220 m": .unexpected, "-20 m": .unexpected, "22O m": .unexpected,
                "99999999999999999999 m": .unexpected, "hello\r\n220 m": .unexpected, "AUTH TLS": .unexpected,
                "* OK": .unexpected, "+OK": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ]) + RefusalRow.client("FTP greeting", .ftp, text: ["220 m": .waits, "220 m\r": .waits, "421 no": .waits])

    /// The text of a refusal may contain lines that look like a success.
    private static let ftpAuth: [RefusalRow] =
        RefusalRow.client(
            "FTP AUTH", .ftp, after: ["220 m\r\n"],
            lines: [
                "500 what?": .notOffered, "502 no": .notOffered, "504 no": .notOffered, "530 log in": .notOffered,
                "500 234 go": .notOffered, "502-no\r\n234 go\r\n502 no": .notOffered, "431 no resources": .refused,
                "533 no": .refused, "534 no": .refused, "421 busy": .refused, "501 what?": .refused, "503 no": .refused,
                "334 ADAT=x": .refused, "235 ADAT=x": .refused, "200 OK": .refused, "220 m": .refused, "134 go": .refused,
                "534-no\r\n234 go\r\n534 no": .refused, "534-no\r\n234 go": .waits, "234-go": .waits,
                "234-go\r\n534 no": .waits, "234-go\r\n 234 go": .waits, "": .unexpected, "23 go": .unexpected,
                "2340 go": .unexpected, "234_go": .unexpected, "234go": .unexpected, " 234 go": .unexpected,
                "go": .unexpected, "AUTH TLS": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ]) + RefusalRow.client("FTP AUTH", .ftp, after: ["220 m\r\n"], text: ["234 go": .waits, "234 go\r": .waits])

    private static let ftpServer: [RefusalRow] =
        RefusalRow.server(
            "FTP", .ftp(greeting: "m"),
            lines: [
                "AUTH": .sends("504 "), "AUTH SSL": .sends("504 "), "AUTH TLS-P": .sends("504 "), "AUTH TLSX": .sends("504 "),
                "AUTH XTLS": .sends("504 "), "AUTH TLS TLS": .sends("504 "), "AUTH GSSAPI": .sends("504 "),
                "AUTH \"TLS\"": .sends("504 "), "AUTH TLS\u{0}": .sends("504 "), "AUTHTLS": .sends("530 "),
                "AUTH\tTLS": .sends("530 "), "XAUTH TLS": .sends("530 "), "STARTTLS": .sends("530 "), "TLS": .sends("530 "),
                "USER AUTH TLS": .sends("530 "), "ADAT TLS": .sends("530 "), "PBSZ 0": .sends("530 "),
                "PROT P": .sends("530 "), "": .sends("530 "), "NOOP\rAUTH TLS": .sends("530 "), "NOOP AUTH TLS": .sends("200 "),
                "FEAT": .sends("211 End"), "QUIT": .fails(.closed, sending: "221 "),
                "QUIT AUTH TLS": .fails(.closed, sending: "221 "), "\u{16}\u{3}\u{1}": .unexpectedTLS,
            ]) + RefusalRow.server("FTP", .ftp(greeting: "m"), text: ["AUTH TLS": .waits, "AUTH TLS\r": .waits])

    // MARK: - NNTP (RFC 3977, sections 3.2 and 5.2, and RFC 4642, section 2.2)

    private static let nntpCapabilities: [RefusalRow] =
        RefusalRow.client(
            "NNTP greeting", .nntp,
            lines: [
                "400 busy": .refused, "502 no": .refused, "502 200 m": .refused, "200 STARTTLS": .sends("CAPABILITIES\r\n"),
                "201 STARTTLS": .sends("CAPABILITIES\r\n"), "": .unexpected, "20": .unexpected, "20 m": .unexpected,
                "2000 m": .unexpected, "200-m": .unexpected, "200m": .unexpected, "-20 m": .unexpected, "2OO m": .unexpected,
                "99999999999999999999 m": .unexpected, "STARTTLS": .unexpected, "m 200": .unexpected, "* OK": .unexpected,
                "+OK": .unexpected, "<html>": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ]) + RefusalRow.client("NNTP greeting", .nntp, text: ["200 m": .waits, "200 m\r": .waits])
        + RefusalRow.client(
            "NNTP capabilities", .nntp, after: ["200 m\r\n"],
            lines: [
                "400 busy": .refused, "480 log in": .refused, "502 no": .refused, "503 no": .refused,
                "101\r\n.": .notOffered, "101 STARTTLS\r\n.": .notOffered, "101\r\nSTARTTLSX\r\n.": .notOffered,
                "101\r\nXSTARTTLS\r\n.": .notOffered, "101\r\nSTARTTLS-X\r\n.": .notOffered,
                "101\r\nREADER STARTTLS\r\n.": .notOffered, "101\r\n..STARTTLS\r\n.": .notOffered,
                "101\r\n.STARTTLS\r\n.": .notOffered, "101\r\nSTLS\r\n.": .notOffered,
                "101\r\n\r\n382 STARTTLS\r\n.": .notOffered,
                "101\r\nSTARTTLS": .waits, "101\r\nSTARTTLS\r\n..": .waits, "101\r\nSTARTTLS\r\n. ": .waits,
                "10\r\nSTARTTLS\r\n.": .unexpected, "1010\r\nSTARTTLS\r\n.": .unexpected, "101-\r\nSTARTTLS\r\n.": .unexpected,
                "STARTTLS\r\n.": .unexpected, ".": .unexpected, "": .unexpected,
                // A server without CAPABILITIES may support STARTTLS (RFC 3977, appendix A).
                "500 STARTTLS": .sends("STARTTLS\r\n"), "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ])

    private static let nntpStartTLS = [["200 m\r\n", "101\r\nSTARTTLS\r\n.\r\n"], ["201 m\r\n", "500 what?\r\n"]].flatMap {
        turns in
        RefusalRow.client(
            "NNTP STARTTLS", .nntp, after: turns,
            lines: [
                "500 what?": .notOffered, "500 382 go": .notOffered, "502 no": .refused, "580 no": .refused, "400 busy": .refused,
                "480 log in": .refused, "483 no": .refused, "501 what?": .refused, "503 no": .refused, "580 382 go": .refused,
                "38 go": .unexpected, "3820 go": .unexpected, "382-go": .unexpected, "382go": .unexpected, "go": .unexpected,
                "STARTTLS": .unexpected, "": .unexpected, ".": .unexpected, "+OK": .unexpected,
                "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ]) + RefusalRow.client("NNTP STARTTLS", .nntp, after: turns, text: ["382 go": .waits, "382 go\r": .waits])
    }

    /// TAKETHIS is followed by an article without waiting for a reply (RFC 4644, section 2.5).
    private static let nntpServer: [RefusalRow] =
        RefusalRow.server(
            "NNTP", .nntp(greeting: "m"),
            lines: [
                "STARTTLS now": .sends("483 "), "STARTTLS STARTTLS": .sends("483 "), "STARTTLSX": .sends("483 "),
                "XSTARTTLS": .sends("483 "), "START TLS": .sends("483 "), "\"STARTTLS\"": .sends("483 "),
                "STARTTLS\u{0}": .sends("483 "), "STARTTLS\t": .sends("483 "), "MODE STARTTLS": .sends("483 "),
                "MODE READER STARTTLS": .sends("483 "), "AUTHINFO USER STARTTLS": .sends("483 "), "POST": .sends("483 "),
                "IHAVE <a@b>": .sends("483 "), "": .sends("483 "), "NOOP\rSTARTTLS": .sends("483 "),
                "CAPABILITIES STARTTLS": .sends("101 "), "TAKETHIS <a@b>\r\nSTARTTLS\r\n.": article,
                "takethis <a@b>\r\nSTARTTLS\r\n.": article, "TAKETHIS\r\nSTARTTLS": article,
                "QUIT": .fails(.closed, sending: "205 "), "QUIT STARTTLS": .fails(.closed, sending: "205 "),
                "\u{16}\u{3}\u{1}": .unexpectedTLS,
            ]) + RefusalRow.server("NNTP", .nntp(greeting: "m"), text: ["STARTTLS": .waits, "STARTTLS\r": .waits])

    private static let article = RefusalRow.Expected.fails(.unexpectedMessage, sending: "400 ")

    // MARK: - IRC (RFC 1459, section 2.3, and the `tls` extension of IRCv3)

    private static let ircClient: [RefusalRow] =
        RefusalRow.client(
            "IRC STARTTLS", .irc,
            lines: [
                "691 * :no": .refused, ":m 691 * :no": .refused, ":m 691 * :670 go": .refused, "ERROR :Closing": .refused,
                ":m ERROR :670": .refused, "error :no": .refused, "421 * STARTTLS :what?": .notOffered,
                ":m 421 * STARTTLS :670": .notOffered, ":m 451 * :register": .notOffered, "451 STARTTLS :670": .notOffered,
                ":m NOTICE * :670 go": .waits, "NOTICE 670 :670": .waits, ":670 NOTICE * :go": .waits, "PING :670": .waits,
                ":m 020 * :670": .waits, ":m 439 * :670": .waits, "": .waits, ":m NOTICE * :wait\r\n:m 691 * :no": .refused,
                ":m 67 * :go": .unexpected, ":m 6700 * :go": .unexpected, ":m 0670 * :go": .unexpected,
                ":m 670x * :go": .unexpected, ":m -670 * :go": .unexpected, ":m :670": .unexpected, ":670 * :go": .unexpected,
                ":m": .unexpected, ":m 001 c :Welcome": .unexpected, ":m PRIVMSG c :670": .unexpected, "STARTTLS": .unexpected,
                ":m 66666666666666666670 * :go": .unexpected, "+OK": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ]) + RefusalRow.client("IRC STARTTLS", .irc, text: [":m 670 * :go": .waits, "670 :go\r": .waits, "691": .waits])

    private static let ircServer: [RefusalRow] =
        RefusalRow.server(
            "IRC", .irc(serverName: "m"),
            lines: [
                "STARTTLSX": .sends(":m 451 "), "XSTARTTLS": .sends(":m 451 "), "START TLS": .sends(":m 451 "),
                "\"STARTTLS\"": .sends(":m 451 "), "STARTTLS\u{0}": .sends(":m 451 "), "NICK STARTTLS": .sends(":m 451 "),
                "USER STARTTLS 0 * :STARTTLS": .sends(":m 451 "), "JOIN :STARTTLS": .sends(":m 451 "),
                "PRIVMSG m :STARTTLS": .sends(":m 451 "), "AUTHENTICATE PLAIN": .sends(":m 451 "),
                "NOOP\rSTARTTLS": .sends(":m 451 "), "": .waits, "CAP END": .waits, "CAP LS 302": .sends(":m CAP * LS :tls\r\n"),
                "CAP REQ :tls sasl": .sends(":m CAP * NAK :tls sasl\r\n"), "CAP REQ :tlsx": .sends(":m CAP * NAK :tlsx\r\n"),
                "CAP REQ :-tls": .sends(":m CAP * NAK :-tls\r\n"), "CAP REQ :": .sends(":m CAP * NAK :\r\n"),
                "CAP REQ :tls": .sends(":m CAP * ACK :tls\r\n"), "PING STARTTLS": .sends(":m PONG m STARTTLS\r\n"),
                "QUIT": .fails(.closed, sending: "ERROR"), "QUIT :STARTTLS": .fails(.closed, sending: "ERROR"),
                "\u{16}\u{3}\u{1}": .unexpectedTLS,
            ]) + RefusalRow.server("IRC", .irc(serverName: "m"), text: ["STARTTLS": .waits, "STARTTLS\r": .waits])

    // MARK: - Scripts

    /// Prefixes are compared byte by byte.
    private static let script: [RefusalRow] =
        RefusalRow.client(
            "script, before the last step", .script([.expect("+OK"), .send("x"), .expect("yes")]),
            lines: [
                "+OK": .sends("x\r\n"), "+OKAY": .sends("x\r\n"), "+ok": .unexpected, "-ERR +OK": .unexpected, "": .unexpected,
                "+O": .unexpected, " +OK": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ])
        + RefusalRow.client(
            "script, last step", .script([.expect("+OK"), .send("x"), .expect("yes")]), after: ["+OK\r\n"],
            lines: ["no": .unexpected, "YES": .unexpected, "ye": .unexpected, "no yes": .unexpected, "": .unexpected])
        + RefusalRow.client(
            "script, last step", .script([.expect("+OK"), .send("x"), .expect("yes")]), after: ["+OK\r\n"],
            text: ["yes": .waits, "yes\r": .waits])
        + RefusalRow.client(
            "script, skip", .script([.skip(to: "ready")]),
            lines: ["no": .waits, "not ready": .waits, "Ready": .waits, "read": .waits, "": .waits, "wait\r\nread": .waits])
        + RefusalRow.server(
            "script", .script([.send("m"), .expect("STARTTLS"), .send("go")]),
            lines: ["STARTTL": .unexpected, "starttls": .unexpected, "QUIT": .unexpected, "\u{16}\u{3}\u{1}": .unexpectedTLS])
}
