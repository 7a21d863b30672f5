import StartTLSProtocols
import Testing

/// Clients of SMTP, LMTP, IMAP, POP3 and ManageSieve that do not request TLS correctly.
@Suite struct MailServerRefusalTests {
    @Test(arguments: smtp("SMTP", .smtp(greeting: "m"), hello: "EHLO", other: "LHLO"))
    func anSMTPServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: smtp("LMTP", .lmtp(greeting: "m"), hello: "LHLO", other: "EHLO"))
    func anLMTPServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: imap + imapLiterals) func anIMAPServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: pop3) func aPOP3ServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: sieve + sieveLiterals) func aManageSieveServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    /// RFC 3207, section 4, and RFC 3030, section 2.
    private static func smtp(_ name: String, _ server: StartTLSServer, hello: String, other: String) -> [RefusalRow] {
        let chunk = RefusalRow.Expected.fails(.unexpectedMessage, sending: "421 ")
        return RefusalRow.server(
            name, server,
            lines: [
                "STARTTLS now": .sends("501 "), "STARTTLS STARTTLS": .sends("501 "), "STARTTLSX": .sends("530 "),
                "XSTARTTLS": .sends("530 "), "START TLS": .sends("530 "), "\"STARTTLS\"": .sends("530 "),
                "STARTTLS\u{0}": .sends("530 "), "STARTTLS\t": .sends("530 "), "\u{17F}TARTTLS": .sends("530 "),
                "NOOP\rSTARTTLS": .sends("530 "), "MAIL FROM:<a> STARTTLS": .sends("530 "), "AUTH STARTTLS": .sends("530 "),
                "DATA": .sends("530 "), "RSET": .sends("530 "), "NOOP STARTTLS": .sends("250 "),
                hello: .sends("501 "), "\(hello) STARTTLS": .sends("250-m\r\n250 STARTTLS\r\n"), "\(other) c": .sends("500 "),
                "BDAT": chunk, "BDAT -1": chunk, "BDAT 0 LAST": chunk, "BDAT 1": chunk, "BDAT 9\r\nSTARTTLS\r\n": chunk,
                "bdat 10\r\nSTARTTLS\r\n": chunk, "BDAT 65537": chunk, "BDAT 99999999999999999999 LAST": chunk,
                "QUIT": .fails(.closed, sending: "221 "), "QUIT STARTTLS": .fails(.closed, sending: "221 "),
                "\u{16}\u{3}\u{1}": .unexpectedTLS,
            ]) + RefusalRow.server(name, server, text: ["STARTTLS": .waits, "STARTTLS\r": .waits, "\u{16}": .waits])
    }

    /// RFC 9051, sections 6.2.1 and 9.
    private static let imap: [RefusalRow] =
        RefusalRow.server(
            "IMAP", .imap(greeting: "m"),
            lines: [
                "STARTTLS": .sends("* BAD"), "a": .sends("* BAD"), "": .sends("* BAD"), "a\tSTARTTLS": .sends("* BAD"),
                "* STARTTLS": .sends("* BAD"), "+ STARTTLS": .sends("* BAD"), "% STARTTLS": .sends("* BAD"),
                "( STARTTLS": .sends("* BAD"), ") STARTTLS": .sends("* BAD"), "{ STARTTLS": .sends("* BAD"),
                "\"a\" STARTTLS": .sends("* BAD"), "a\\ STARTTLS": .sends("* BAD"), "a* STARTTLS": .sends("* BAD"),
                String(repeating: "a", count: 65) + " STARTTLS": .sends("* BAD"), "a STARTTLS now": .sends("a BAD"),
                "a STARTTLSX": .sends("a BAD"), "a XSTARTTLS": .sends("a BAD"), "a START TLS": .sends("a BAD"),
                "a \"STARTTLS\"": .sends("a BAD"), "a STARTTLS\u{0}": .sends("a BAD"), "a \u{17F}TARTTLS": .sends("a BAD"),
                "a UID STARTTLS": .sends("a BAD"), "a SELECT STARTTLS": .sends("a BAD"), "a IDLE": .sends("a BAD"),
                "a NOOP\ra STARTTLS": .sends("a BAD"), "a LOGIN STARTTLS STARTTLS": .sends("a NO [PRIVACYREQUIRED]"),
                "a AUTHENTICATE STARTTLS": .sends("a NO [PRIVACYREQUIRED]"), "a NOOP STARTTLS": .sends("a OK NOOP"),
                "a LOGOUT": .fails(.closed, sending: "* BYE"), "\u{16}\u{3}\u{1}": .unexpectedTLS,
            ]) + RefusalRow.server("IMAP", .imap(greeting: "m"), text: ["a STARTTLS": .waits, "a STARTTLS\r": .waits])

    /// RFC 9051, section 4.3, and RFC 7888. A server that does not read literals must not read their bytes as
    /// commands.
    private static let imapLiterals = RefusalRow.server(
        "IMAP literals", .imap(greeting: "m"),
        lines: [
            "a LOGIN {12}\r\nb STARTTLS": literal, "a LOGIN {12+}\r\nb STARTTLS": literal, "a APPEND x ~{12}": literal,
            "a APPEND x ~{12+}\r\nb STARTTLS": literal, "a ID (\"x\" {10}": literal, "a NOOP {0}": literal, "a NOOP {1}": literal,
            "a LOGIN {-1}": literal, "a LOGIN {}": literal, "a LOGIN {65537}": literal, "a LOGIN {4294967296+}": literal,
            "a LOGIN {9223372036854775808}": literal, "a STARTTLS {0}": literal, "a STARTTLS {0+}": literal, "{12+}": literal,
        ])

    private static let literal = RefusalRow.Expected.fails(.unexpectedMessage, sending: "* BYE")

    /// RFC 2595, section 4.
    private static let pop3: [RefusalRow] =
        RefusalRow.server(
            "POP3", .pop3(greeting: "m"),
            lines: [
                "STLS now": .sends("-ERR"), "STLS STLS": .sends("-ERR"), "STLSX": .sends("-ERR"), "XSTLS": .sends("-ERR"),
                "STARTTLS": .sends("-ERR"), "STLS\u{0}": .sends("-ERR"), "STLS\t": .sends("-ERR"), "\"STLS\"": .sends("-ERR"),
                "\u{17F}TLS": .sends("-ERR"), "USER STLS": .sends("-ERR"), "PASS STLS": .sends("-ERR"),
                "AUTH STLS": .sends("-ERR"), "AUTH": .sends("-ERR"), "": .sends("-ERR"), "NOOP\rSTLS": .sends("-ERR"),
                "CAPA STLS": .sends("+OK Capability list follows\r\nSTLS\r\n.\r\n"), "QUIT": .fails(.closed, sending: "+OK"),
                "QUIT STLS": .fails(.closed, sending: "+OK"), "\u{16}\u{3}\u{1}": .unexpectedTLS,
            ]) + RefusalRow.server("POP3", .pop3(greeting: "m"), text: ["STLS": .waits, "STLS\r": .waits])

    /// RFC 5804, section 2.
    private static let sieve: [RefusalRow] =
        RefusalRow.server(
            "ManageSieve", .manageSieve(greeting: "m"),
            lines: [
                "STARTTLS now": .sends("NO"), "STARTTLS \"\"": .sends("NO"), "STARTTLSX": .sends("NO"),
                "XSTARTTLS": .sends("NO"), "\"STARTTLS\"": .sends("NO"), "START TLS": .sends("NO"),
                "STARTTLS\u{0}": .sends("NO"), "\u{17F}TARTTLS": .sends("NO"), "NOOP\rSTARTTLS": .sends("NO"),
                "AUTHENTICATE \"STARTTLS\"": .sends("NO (ENCRYPT-NEEDED)"), "HAVESPACE \"STARTTLS\" 1": .sends("NO"),
                "": .sends("NO"), "NOOP \"STARTTLS\"": .sends("OK (TAG {8}\r\nSTARTTLS)"), "CAPABILITY": .sends("\"STARTTLS\""),
                "LOGOUT": .fails(.closed, sending: "OK"), "\u{16}\u{3}\u{1}": .unexpectedTLS,
            ])
        + RefusalRow.server("ManageSieve", .manageSieve(greeting: "m"), text: ["STARTTLS": .waits, "STARTTLS\r": .waits])

    private static let sieveLiterals = RefusalRow.server(
        "ManageSieve literals", .manageSieve(greeting: "m"),
        lines: [
            "AUTHENTICATE \"PLAIN\" {10+}\r\nSTARTTLS\r\n": sieveLiteral, "NOOP {8+}\r\nSTARTTLS": sieveLiteral,
            "PUTSCRIPT \"x\" {8+}\r\nSTARTTLS": sieveLiteral, "PUTSCRIPT {-1+}": sieveLiteral, "NOOP {0+}": sieveLiteral,
            "NOOP {0}": sieveLiteral, "NOOP {1+}": sieveLiteral, "NOOP {}": sieveLiteral, "NOOP {65537+}": sieveLiteral,
            "NOOP {4294967296+}": sieveLiteral, "NOOP {9223372036854775808+}": sieveLiteral, "STARTTLS {0+}": sieveLiteral,
            "{8+}\r\nSTARTTLS": sieveLiteral,
        ])

    private static let sieveLiteral = RefusalRow.Expected.fails(.unexpectedMessage, sending: "BYE")
}
