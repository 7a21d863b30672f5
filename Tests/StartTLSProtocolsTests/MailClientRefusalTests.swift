import StartTLSProtocols
import Testing

/// Servers of SMTP, LMTP, IMAP, POP3 and ManageSieve that do not agree to start TLS.
@Suite struct MailClientRefusalTests {
    @Test(arguments: smtp("SMTP", .smtp(name: "c"), hello: "EHLO c\r\n")) func anSMTPClientDoesNotStartTLS(_ row: RefusalRow)
        throws
    {
        try row.check()
    }

    @Test(arguments: smtp("LMTP", .lmtp(name: "c"), hello: "LHLO c\r\n")) func anLMTPClientDoesNotStartTLS(_ row: RefusalRow)
        throws
    {
        try row.check()
    }

    @Test(arguments: imapGreeting + imapCapability + imapStartTLS) func anIMAPClientDoesNotStartTLS(_ row: RefusalRow) throws {
        try row.check()
    }

    @Test(arguments: pop3Greeting + pop3Capabilities + pop3STLS) func aPOP3ClientDoesNotStartTLS(_ row: RefusalRow) throws {
        try row.check()
    }

    @Test(arguments: sieveGreeting + sieveLiterals + sieveStartTLS)
    func aManageSieveClientDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    // MARK: - SMTP and LMTP (RFC 5321, section 4.2, and RFC 3207, section 4)

    /// Each complete reply with a code other than the expected code is a refusal. Lines with different codes
    /// in one reply, and lines without a code, violate the protocol.
    private static func smtp(_ name: String, _ client: StartTLSClient, hello: String) -> [RefusalRow] {
        RefusalRow.client(
            "\(name) greeting", client,
            lines: [
                "554 no SMTP service here": .refused, "554-go\r\n554 away": .refused, "554-220 m\r\n554 220 m": .refused,
                "421 busy": .refused, "450 later": .refused, "554": .refused,
                "220-m": .waits, "220-m\r\n220-m": .waits, "220-m\r\n554 no": .unexpected, "554-no\r\n220 m": .unexpected,
                "220 STARTTLS": .sends(hello), "": .unexpected, "2": .unexpected, "22": .unexpected, "22 m": .unexpected,
                "2200 m": .unexpected, "220_m": .unexpected, "220\tm": .unexpected, " 220 m": .unexpected,
                "-20 m": .unexpected, "+22 m": .unexpected, "2.0 m": .unexpected, "22O m": .unexpected,
                "\u{662}\u{662}\u{660} m": .unexpected, "99999999999999999999 m": .unexpected, "STARTTLS": .unexpected,
                "* OK m": .unexpected, "+OK m": .unexpected, "<html>": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ])
            + RefusalRow.client("\(name) greeting", client, text: ["220 m": .waits, "220 m\r": .waits, "554 no": .waits])
            + RefusalRow.client(
                "\(name) capabilities", client, after: ["220 m\r\n"],
                lines: [
                    "250 m": .notOffered, "250 STARTTLS": .notOffered, "250-STARTTLS\r\n250 SIZE": .notOffered,
                    "250-m STARTTLS\r\n250 SIZE": .notOffered, "250-m\r\n250 STARTTLSX": .notOffered,
                    "250-m\r\n250 XSTARTTLS": .notOffered, "250-m\r\n250 START TLS": .notOffered,
                    "250-m\r\n250 STARTTLS=1": .notOffered, "250-m\r\n250 \"STARTTLS\"": .notOffered,
                    "250-m\r\n250-AUTH STARTTLS\r\n250 SIZE": .notOffered, "250-m\r\n250 XXXXXXXA": .notOffered,
                    "250-m\r\n250 STARTTLS\u{0}": .notOffered, "250-m\r\n250 \u{17F}TARTTLS": .notOffered,
                    "250-m\r\n250 ": .notOffered, "250-m\r\n250": .notOffered,
                    "250-m\r\n250-STARTTLS": .waits, "250-m\r\nSTARTTLS\r\n250 m": .unexpected,
                    "250-m\r\n220 STARTTLS": .unexpected, "250-STARTTLS\r\n502 no": .unexpected,
                    "500 what?": .notOffered, "502 STARTTLS": .notOffered, "504 no": .notOffered, "550 no": .notOffered,
                    "502-m\r\n502 STARTTLS": .notOffered, "501 bad name": .refused, "421 busy": .refused,
                    "554 no": .refused, "454 STARTTLS": .refused, "STARTTLS": .unexpected, "": .unexpected,
                    "25 STARTTLS": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
                ])
            + RefusalRow.client(
                "\(name) STARTTLS", client, after: ["220 m\r\n", "250-m\r\n250 STARTTLS\r\n"],
                lines: [
                    "454 4.7.0 TLS not available": .refused, "501 5.5.4 no parameters": .refused, "502 what?": .refused,
                    "503 no": .refused, "421 busy": .refused, "554 no": .refused, "250 OK": .refused, "354 go": .refused,
                    "221 220 go": .refused, "454-220 go\r\n454 220 go": .refused, "454-no\r\n220 go": .unexpected,
                    "220-go\r\n454 no": .unexpected, "220-go": .waits, "454-no": .waits, "22 go": .unexpected,
                    "2200 go": .unexpected, "220go": .unexpected, " 220 go": .unexpected, "go": .unexpected, "": .unexpected,
                    "\u{15}\u{3}\u{3}": .unexpectedTLS,
                ])
            + RefusalRow.client(
                "\(name) STARTTLS", client, after: ["220 m\r\n", "250-m\r\n250 STARTTLS\r\n"],
                text: ["220 go": .waits, "220 go\r": .waits])
    }

    // MARK: - IMAP (RFC 9051, sections 6.2.1 and 7.1)

    private static let imapGreeting: [RefusalRow] =
        RefusalRow.client(
            "IMAP greeting", .imap,
            lines: [
                "* BYE busy": .refused, "* bye": .refused, "* BYE [CAPABILITY IMAP4rev1 STARTTLS] busy": .refused,
                "* PREAUTH welcome": .fails(.alreadyAuthenticated), "* preauth": .fails(.alreadyAuthenticated),
                "* PREAUTH [CAPABILITY IMAP4rev1 STARTTLS] welcome": .fails(.alreadyAuthenticated),
                "* OK [CAPABILITY IMAP4rev1] ready": .notOffered, "* OK [CAPABILITY IMAP4rev1 XSTARTTLS]": .notOffered,
                "* OK [CAPABILITY IMAP4rev1 STARTTLSX]": .notOffered, "* OK [CAPABILITY IMAP4rev1 STARTTLS=1]": .notOffered,
                "* OK [CAPABILITY IMAP4rev1 AUTH=STARTTLS]": .notOffered,
                "* OK [CAPABILITY IMAP4rev1] STARTTLS": .notOffered,
                "* OK [CAPABILITY IMAP4rev1] STARTTLS ]": .notOffered,
                "* OK [CAPABILITY IMAP4rev1] [CAPABILITY STARTTLS]": .notOffered,
                "* OK STARTTLS": .sends("a1 CAPABILITY\r\n"), "* OK m [CAPABILITY STARTTLS]": .sends("a1 CAPABILITY\r\n"),
                "* OK [CAPABILITY IMAP4rev1 STARTTLS": .sends("a1 CAPABILITY\r\n"),
                "* OK [XCAPABILITY STARTTLS] m": .sends("a1 CAPABILITY\r\n"),
                "* OK [CAPABILITYX STARTTLS] m": .sends("a1 CAPABILITY\r\n"),
                "* OK [ALERT] [CAPABILITY STARTTLS] m": .sends("a1 CAPABILITY\r\n"),
                "* NO [CAPABILITY IMAP4rev1 STARTTLS]": .unexpected, "* BAD no": .unexpected, "* OKAY": .unexpected,
                "* CAPABILITY IMAP4rev1 STARTTLS": .unexpected, "* 3 EXISTS": .unexpected, "*": .unexpected, "": .unexpected,
                "*OK m": .unexpected, "** OK m": .unexpected, "OK m": .unexpected, "+ OK m": .unexpected,
                "a1 OK m": .unexpected, "a2 OK [CAPABILITY STARTTLS]": .unexpected, "220 m": .unexpected,
                "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ]) + RefusalRow.client("IMAP greeting", .imap, text: ["* OK [CAPABILITY STARTTLS] m": .waits, "* BYE": .waits])

    private static let imapCapability = RefusalRow.client(
        "IMAP capabilities", .imap, after: ["* OK m\r\n"],
        lines: [
            "a1 OK": .notOffered, "a1 OK STARTTLS": .notOffered, "* CAPABILITY IMAP4rev1\r\na1 OK": .notOffered,
            "* CAPABILITY IMAP4rev1 STARTTLSX\r\na1 OK": .notOffered, "* CAPABILITY XSTARTTLS\r\na1 OK": .notOffered,
            "* CAPABILITY AUTH=STARTTLS\r\na1 OK": .notOffered, "* XCAPABILITY STARTTLS\r\na1 OK": .notOffered,
            "* OK STARTTLS\r\na1 OK": .notOffered, "* ID (\"STARTTLS\" STARTTLS)\r\na1 OK": .notOffered,
            "* CAPABILITY STARTTLS\r\n* CAPABILITY IMAP4rev1\r\na1 OK": .notOffered,
            "* CAPABILITY STARTTLS\r\na1 NO": .notOffered, "* CAPABILITY STARTTLS\r\na1 BAD": .notOffered,
            "a1 NO STARTTLS": .notOffered, "a1 BAD STARTTLS": .notOffered,
            "* CAPABILITY IMAP4rev1 STARTTLS": .waits, "* CAPABILITY STARTTLS\r\n* BYE busy": .refused, "* BYE": .refused,
            // The line of a literal is not a list of capabilities.
            "* CAPABILITY IMAP4rev1 {8}\r\nSTARTTLS": .unexpected, "* ID {22}\r\nCAPABILITY STARTTLS": .unexpected,
            "* CAPABILITY STARTTLS\r\na2 OK": .unexpected, "* CAPABILITY STARTTLS\r\na11 OK": .unexpected,
            "* CAPABILITY STARTTLS\r\na1OK": .unexpected, "* CAPABILITY STARTTLS\r\nA1 OK": .unexpected,
            "+ go": .unexpected, "OK": .unexpected, "": .unexpected, "CAPABILITY STARTTLS": .unexpected,
            "\u{15}\u{3}\u{3}": .unexpectedTLS,
        ])

    private static let imapStartTLS = RefusalRow.client(
        "IMAP STARTTLS", .imap, after: ["* OK [CAPABILITY IMAP4rev1 STARTTLS] m\r\n"],
        lines: [
            "a2 NO later": .refused, "a2 no": .refused, "a2 BAD what?": .refused, "a2 NO OK": .refused, "* BYE busy": .refused,
            "* OK a2 OK go\r\na2 NO later": .refused, "* a2 OK go": .waits, "* OK a2 OK go": .waits, "* NO no": .waits,
            "a2 OKAY": .unexpected, "a2": .unexpected, "a2 PREAUTH m": .unexpected, "a2 BYE m": .unexpected,
            "a1 OK go": .unexpected, "A2 OK go": .unexpected, "a22 OK go": .unexpected, "a2OK go": .unexpected,
            "OK go": .unexpected, "+ a2 OK go": .unexpected, "+ OK": .unexpected, "\"a2\" OK": .unexpected,
            "220 go": .unexpected, "": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
        ])

    // MARK: - POP3 (RFC 2595, section 4, and RFC 2449, section 5)

    private static let pop3Greeting: [RefusalRow] =
        RefusalRow.client(
            "POP3 greeting", .pop3,
            lines: [
                "-ERR busy": .refused, "-err": .refused, "-ERR +OK": .refused, "+OK STLS": .sends("CAPA\r\n"),
                "-ERRX": .unexpected, "+OKAY": .unexpected, "+ OK": .unexpected, "OK": .unexpected, "+": .unexpected,
                "-": .unexpected, "": .unexpected, ".": .unexpected, "STLS": .unexpected, "* OK m": .unexpected,
                "220 m": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ]) + RefusalRow.client("POP3 greeting", .pop3, text: ["+OK": .waits, "-ERR": .waits])

    private static let pop3Capabilities = RefusalRow.client(
        "POP3 capabilities", .pop3, after: ["+OK\r\n"],
        lines: [
            "+OK\r\n.": .notOffered, "+OK STLS\r\n.": .notOffered, "+OK\r\nSTLSX\r\n.": .notOffered,
            "+OK\r\nXSTLS\r\n.": .notOffered, "+OK\r\nSTLS-\r\n.": .notOffered, "+OK\r\nSASL STLS\r\n.": .notOffered,
            "+OK\r\nUIDL STLS\r\n.": .notOffered, "+OK\r\n..STLS\r\n.": .notOffered, "+OK\r\n.STLS\r\n.": .notOffered,
            "+OK\r\nSTARTTLS\r\n.": .notOffered, "+OK\r\n\r\n+OK STLS\r\n-ERR\r\n.": .notOffered,
            "+OK\r\nSTLS": .waits, "+OK\r\nSTLS\r\n..": .waits, "+OK\r\nSTLS\r\n. ": .waits,
            "+OKAY\r\nSTLS\r\n.": .unexpected, "STLS\r\n.": .unexpected, ".": .unexpected, "": .unexpected,
            // A server without CAPA may support STLS.
            "-ERR STLS": .sends("STLS\r\n"), "\u{15}\u{3}\u{3}": .unexpectedTLS,
        ])

    private static let pop3STLS: [RefusalRow] =
        [["+OK\r\n", "+OK\r\nSTLS\r\n.\r\n"], ["+OK\r\n", "-ERR what?\r\n"]].flatMap { turns in
            RefusalRow.client(
                "POP3 STLS", .pop3, after: turns,
                lines: [
                    "-ERR no": .refused, "-err": .refused, "-ERR +OK": .refused, "+OKAY": .unexpected, "+": .unexpected,
                    "OK": .unexpected, "-ERRX": .unexpected, "STLS": .unexpected, ".": .unexpected, "": .unexpected,
                    "* OK": .unexpected, "220 go": .unexpected, "\u{15}\u{3}\u{3}": .unexpectedTLS,
                ]) + RefusalRow.client("POP3 STLS", .pop3, after: turns, text: ["+OK go": .waits, "+OK go\r": .waits])
        }

    // MARK: - ManageSieve (RFC 5804, sections 1.3, 1.7 and 2.2)

    private static let sieveGreeting = RefusalRow.client(
        "ManageSieve greeting", .manageSieve,
        lines: [
            "NO \"busy\"": .refused, "BYE": .refused, "bye \"busy\"": .refused, "NO (TRYLATER) \"busy\"": .refused,
            "\"STARTTLS\"\r\nNO": .refused, "\"STARTTLS\"\r\nBYE \"OK\"": .refused, "NO {2}\r\nOK": .refused,
            "OK": .notOffered, "OK \"STARTTLS\"": .notOffered, "OK (STARTTLS)": .notOffered,
            "\"SIEVE\" \"STARTTLS\"\r\nOK": .notOffered, "\"STARTTLSX\"\r\nOK": .notOffered,
            "\"XSTARTTLS\"\r\nOK": .notOffered, "\"STARTTLS X\"\r\nOK": .notOffered, "\"\\\"STARTTLS\\\"\"\r\nOK": .notOffered,
            "\"SASL\" \"PLAIN STARTTLS\"\r\nOK": .notOffered, "\"SIEVE\" \"\" \"STARTTLS\"\r\nOK": .notOffered,
            "\"STARTTLS\"": .waits, "STARTTLS": .unexpected, "'STARTTLS'": .unexpected, "OKAY": .unexpected,
            "": .unexpected, "* OK": .unexpected, "+OK": .unexpected, "220 m": .unexpected, "}": .unexpected,
            "\u{15}\u{3}\u{3}": .unexpectedTLS,
        ])

    /// A literal that exceeds the limit is too long. A length that is not a 32-bit number violates the
    /// protocol.
    private static let sieveLiterals: [RefusalRow] =
        RefusalRow.client(
            "ManageSieve literals", .manageSieve,
            lines: [
                "\"SIEVE\" {0}\r\n\r\nOK": .notOffered, "\"SIEVE\" {1}\r\nx\r\nOK": .notOffered,
                "\"SIEVE\" {10}\r\n\"STARTTLS\"\r\nOK": .notOffered, "\"SIEVE\" {12}\r\n\"STARTTLS\"\r\n\r\nOK": .notOffered,
                // One byte too few, and one too many.
                "\"SIEVE\" {9}\r\n\"STARTTLS\"\r\nOK": .notOffered, "\"SIEVE\" {11}\r\n\"STARTTLS\"\r\nOK": .notOffered,
                "\"SIEVE\" {12}\r\n\"STARTTLS\"\r\nOK": .waits, "{2}\r\nOK": .waits,
                "\"SIEVE\" {14}\r\n\"STARTTLS\"\r\nOK": .waits,
                "\"SIEVE\" {-1}": .unexpected, "\"SIEVE\" {-0}": .unexpected, "\"SIEVE\" {+1}": .unexpected,
                "\"SIEVE\" {1+}": .unexpected, "\"SIEVE\" { 1}": .unexpected, "\"SIEVE\" {1 }": .unexpected,
                "\"SIEVE\" {}": .unexpected, "\"SIEVE\" {x}": .unexpected, "\"SIEVE\" {0x10}": .unexpected,
                "\"SIEVE\" {1.0}": .unexpected, "\"SIEVE\" {65536}": .waits, "\"SIEVE\" {65537}": .tooLong,
                "\"SIEVE\" {2147483648}": .tooLong, "\"SIEVE\" {4294967295}": .tooLong, "\"SIEVE\" {4294967296}": .unexpected,
                "\"SIEVE\" {9223372036854775807}": .unexpected, "\"SIEVE\" {9223372036854775808}": .unexpected,
                "\"SIEVE\" {-9223372036854775809}": .unexpected, "\"SIEVE\" {99999999999999999999999}": .unexpected,
                "OK {-1}": .unexpected, "OK {65537}": .tooLong, "NO {4}\r\nOK\r\n": .refused,
            ])
        + RefusalRow.client(
            "ManageSieve literals", .manageSieve,
            messages: [(Array("\"SIEVE\" {65536}\r\n".utf8) + [UInt8](repeating: 120, count: 65_536), .tooLong)])

    private static let sieveStartTLS: [RefusalRow] =
        RefusalRow.client(
            "ManageSieve STARTTLS", .manageSieve, after: ["\"STARTTLS\"\r\nOK\r\n"],
            lines: [
                "NO \"later\"": .refused, "no": .refused, "BYE": .refused, "NO (OK)": .refused, "NO {2}\r\nOK": .refused,
                "BYE {4}\r\nOK\r\n": .refused, "\"OK\"": .unexpected, "\"STARTTLS\"": .unexpected, "OKAY": .unexpected,
                "STARTTLS": .unexpected, "": .unexpected, "{2}\r\nOK": .unexpected, "* OK": .unexpected,
                "220 go": .unexpected, "OK {-1}": .unexpected, "OK {+1}": .unexpected, "OK {65536}": .waits,
                "OK {65537}": .tooLong, "OK {99999999999999999999}": .unexpected, "OK {4}\r\ngo": .waits,
                "OK {3}\r\nx": .waits, "\u{15}\u{3}\u{3}": .unexpectedTLS,
            ])
        + RefusalRow.client(
            "ManageSieve STARTTLS", .manageSieve, after: ["\"STARTTLS\"\r\nOK\r\n"],
            text: ["OK": .waits, "OK \"go\"\r": .waits, "OK {2}\r\ngo": .waits, "NO {2}\r\nOK": .waits])
}
