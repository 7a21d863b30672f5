import StartTLSProtocols
import Testing

/// Peers of LDAP that do not agree to start TLS (RFC 4511, sections 4.1.1, 4.4.1, 4.14 and 5.1).
@Suite struct LDAPRefusalTests {
    @Test(arguments: results + operations + messageIDs(.unexpected) + lengths(.unexpected, .tooLong))
    func anLDAPClientDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: requests + serverOperations + serverMessageIDs + serverLengths)
    func anLDAPServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    // MARK: - Clients

    private static let results = RefusalRow.client(
        "LDAP result", .ldap,
        messages: [
            // protocolError: the server does not know the request.
            (response([0x0A, 1, 2] + texts), .notOffered), (response([0x0A, 1, 1] + texts), .refused),
            (response([0x0A, 1, 8] + texts), .refused), (response([0x0A, 1, 10] + texts), .refused),
            (response([0x0A, 1, 13] + texts), .refused), (response([0x0A, 1, 51] + texts), .refused),
            (response([0x0A, 1, 52] + texts), .refused), (response([0x0A, 1, 53] + texts), .refused),
            (response([0x0A, 1, 80] + texts), .refused), (response([0x0A, 1, 52] + texts + startTLSName), .refused),
            (response([0x0A, 0] + texts), .unexpected), (response([0x0A, 2, 0, 0] + texts), .unexpected),
            (response([0x0A, 4, 0, 0, 0, 0] + texts), .unexpected), (response([0x0A, 0x80] + texts), .unexpected),
            (response([0x0A, 0x84, 0xFF, 0xFF, 0xFF, 0xFF, 0] + texts), .unexpected),
            (response([0x02, 1, 0] + texts), .unexpected),
            (response([0x04, 1, 0] + texts), .unexpected), (response([0x0A, 1, 0, 4, 0]), .unexpected),
            (response([0x0A, 1, 0]), .unexpected), (response([]), .unexpected), (response([0x0A]), .unexpected),
            (response([0x0A, 1, 0, 4, 0, 4]), .unexpected), (response([0x0A, 1, 0, 4, 0, 4, 1]), .unexpected),
            (response([0x0A, 1, 0, 4, 0, 4, 0x80]), .unexpected), (response(texts + [0x0A, 1, 0]), .unexpected),
            // The response to another request (section 4.14.2).
            (response([0x0A, 1, 0] + texts + name("1.3.6.1.4.1.1466.20036")), .unexpected),
            (response([0x0A, 1, 0] + texts + name("1.3.6.1.4.1.1466.2003")), .unexpected),
            (response([0x0A, 1, 0] + texts + name("")), .unexpected),
        ])

    private static let operations = RefusalRow.client(
        "LDAP operation", .ldap,
        messages: [
            (message(one, [0x61, 7] + success), .unexpected), (message(one, [0x65, 7] + success), .unexpected),
            (message(one, [0x67, 7] + success), .unexpected), (message(one, [0x79, 7] + success), .unexpected),
            (message(one, [0x77, 7] + success), .unexpected), (message(one, [0x58, 7] + success), .unexpected),
            (message(one, [0x38, 7] + success), .unexpected), (message(one, [0x42, 0]), .unexpected),
            (message(one, []), .unexpected),
            (message([], [0x78, 7] + success), .unexpected), ([0x30, 14, 0x78, 7] + success + one + [4, 0], .unexpected),
            // Message ID 0 is a notice of disconnection, whatever its result.
            (message([2, 1, 0], [0x78, 7, 0x0A, 1, 52] + texts), .refused), (message([2, 1, 0], [0x78, 7] + success), .refused),
            (message([2, 1, 2], [0x78, 7] + success), .unexpected), (message([2, 1, 127], [0x78, 7] + success), .unexpected),
            (message([2, 4, 0x7F, 0xFF, 0xFF, 0xFF], [0x78, 7] + success), .unexpected),
            ([21, 3, 3, 0, 2, 2, 70], .unexpectedTLS),
            (Array("HTTP/1.1 400".utf8), .unexpected), (Array("220 m\r\n".utf8), .unexpected),
        ])

    private static func messageIDs(_ malformed: RefusalRow.Expected) -> [RefusalRow] {
        RefusalRow.client(
            "LDAP message ID", .ldap, messages: badMessageIDs.map { (message($0, [0x78, 7] + success), malformed) })
    }

    private static func lengths(_ malformed: RefusalRow.Expected, _ tooLong: RefusalRow.Expected) -> [RefusalRow] {
        RefusalRow.client("LDAP length", .ldap, messages: badLengths(one + [0x78, 7] + success, malformed, tooLong))
    }

    // MARK: - Servers

    /// A request with another name receives protocolError, and the session continues.
    private static let requests = RefusalRow.server(
        "LDAP request", .ldap,
        messages: [
            (request(0x80, "1.3.6.1.4.1.1466.20036"), unknown), (request(0x80, "1.3.6.1.4.1.1466.200370"), unknown),
            (request(0x80, "1.3.6.1.4.1.1466.2003"), unknown), (request(0x80, ""), unknown),
            (request(0x80, "1.3.6.1.4.1.4203.1.11.3"), unknown), (request(0x80, " 1.3.6.1.4.1.1466.20037"), unknown),
            (request(0x80, "1.3.6.1.4.1.1466.20037\0"), unknown), (request(0x80, "STARTTLS"), unknown),
            (request(0x81, "1.3.6.1.4.1.1466.20037"), unknown), (request(0x04, "1.3.6.1.4.1.1466.20037"), unknown),
            (request(0x8A, "1.3.6.1.4.1.1466.20037"), unknown), (message(one, [0x77, 0]), unknown),
            (message(one, [0x77, 1, 0x80]), unknown), (message(one, [0x77, 2, 0x80, 0]), unknown),
            // The length of the name: one too few, one too many, indefinite, and beyond the message.
            (message(one, [0x77, 24, 0x80, 21] + startTLS), unknown), (message(one, [0x77, 24, 0x80, 23] + startTLS), unknown),
            (message(one, [0x77, 24, 0x80, 0x80] + startTLS), unknown),
            (message(one, [0x77, 24, 0x80, 0xFF] + startTLS), unknown),
            (message(one, [0x77, 28, 0x80, 0x84, 0xFF, 0xFF, 0xFF, 0xFF] + startTLS), unknown),
            (message(one, [0x77, 23, 0x80, 22] + startTLS), notice), (message(one, [0x77, 25, 0x80, 22] + startTLS), notice),
            (message(one, [0x77, 0x80, 0x80, 22] + startTLS), notice), (Array(startTLSRequest.dropLast()), .waits),
            (Array(startTLSRequest.prefix(1)), .waits), (Array(startTLSRequest.prefix(2)), .waits),
        ])

    private static let serverOperations = RefusalRow.server(
        "LDAP operation", .ldap,
        messages: [
            (message(one, [0x60, 7, 2, 1, 3, 4, 0, 0x80, 0]), required), (message(one, [0x63, 0]), required),
            (message(one, [0x66, 0]), required), (message(one, [0x68, 0]), required), (message(one, [0x4A, 0]), required),
            (message(one, [0x6C, 0]), required), (message(one, [0x6E, 0]), required),
            (message(one, [0x63, 24, 0x80, 22] + startTLS), required), (message(one, [0x50, 1, 1]), .waits),
            (message(one, [0x42, 0]), .fails(.closed)), (message(one, [0x42, 24, 0x80, 22] + startTLS), .fails(.closed)),
            (message(one, [0x78, 24, 0x80, 22] + startTLS), notice), (message(one, [0x57, 24, 0x80, 22] + startTLS), notice),
            (message(one, [0x37, 24, 0x80, 22] + startTLS), notice), (message(one, [0x61, 7] + success), notice),
            (message(one, [0x5F, 0]), notice), (message(one, [0, 0]), notice), (message(one, []), notice), ([0x30, 0], notice),
            (message([], [0x77, 24, 0x80, 22] + startTLS), notice), ([22, 3, 1, 0, 5, 1], .unexpectedTLS),
            (Array("GET / HTTP/1.1\r\n".utf8), notice), (Array("STARTTLS\r\n".utf8), notice),
        ])

    private static let serverMessageIDs = RefusalRow.server(
        "LDAP message ID", .ldap, messages: badMessageIDs.map { (message($0, [0x77, 24, 0x80, 22] + startTLS), notice) })

    private static let serverLengths = RefusalRow.server(
        "LDAP length", .ldap,
        messages: badLengths(one + [0x77, 24, 0x80, 22] + startTLS, notice, .fails(.tooLong, sending: noticeOfDisconnection)))

    // MARK: - Both roles

    /// A message ID is an INTEGER from 0 to 2,147,483,647.
    private static let badMessageIDs: [[UInt8]] = [
        [2, 0], [2, 1, 0xFF], [2, 1, 0x80], [2, 2, 0xFF, 1], [2, 4, 0x80, 0, 0, 0], [2, 4, 0xFF, 0xFF, 0xFF, 0xFF],
        [2, 5, 0, 0x80, 0, 0, 0], [2, 5, 1, 0, 0, 0, 1], [2, 8, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        [2, 9, 1, 0, 0, 0, 0, 0, 0, 0, 1], [2, 0x80, 1], [2, 0xFF, 1], [2, 0x84, 0xFF, 0xFF, 0xFF, 0xFF, 1], [4, 1, 1],
        [0x0A, 1, 1], [0x80, 1, 1], [2], [],
    ]

    /// Messages with a wrong length. The limit applies to the whole message.
    private static func badLengths(
        _ contents: [UInt8], _ malformed: RefusalRow.Expected, _ tooLong: RefusalRow.Expected
    ) -> [(key: [UInt8], value: RefusalRow.Expected)] {
        let count = UInt8(contents.count)
        return [
            ([0x30, 0], malformed), ([0x30, 1, 2], malformed), ([0x30, count - 1] + contents, malformed),
            ([0x30, count + 1] + contents, .waits), ([0x30, 0x80] + contents, malformed), ([0x30, 0xFF] + contents, malformed),
            ([0x30, 0x85, 0, 0, 0, 0, count] + contents, malformed), ([0x30, 0x81, 0], malformed),
            ([0x30, 0x88, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], malformed),
            ([0x30, 0x88, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], malformed),
            ([0x30, 0x84, 0, 0, 0, 0], malformed), ([0x30, 0x84, 0, 0, 0, count - 1] + contents, malformed),
            ([0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], tooLong), ([0x30, 0x84, 0x80, 0, 0, 0], tooLong),
            ([0x30, 0x84, 0x7F, 0xFF, 0xFF, 0xFF], tooLong), ([0x30, 0x83, 1, 0, 1], tooLong), ([0x30, 0x83, 1, 0, 0], .waits),
            ([0x30, 0x83, 1, 0, 0] + [UInt8](repeating: 0, count: 65_536), tooLong), ([0x30, 0x84, 0, 0, 0], .waits),
            ([0x31, count] + contents, malformed), ([0x10, count] + contents, malformed), ([0, 0], malformed),
            ([0x04, count] + contents, malformed), ([0xFF], malformed),
        ]
    }

    private static let one: [UInt8] = [2, 1, 1]
    private static let texts: [UInt8] = [4, 0, 4, 0]
    private static let success: [UInt8] = [0x0A, 1, 0] + texts
    private static let startTLS = Array("1.3.6.1.4.1.1466.20037".utf8)
    private static let startTLSName = name("1.3.6.1.4.1.1466.20037")
    private static let startTLSRequest = request(0x80, "1.3.6.1.4.1.1466.20037")
    private static let noticeOfDisconnection = "1.3.6.1.4.1.1466.20036"

    private static let unknown = RefusalRow.Expected.sends("unknown extended request")
    private static let required = RefusalRow.Expected.sends("use StartTLS first")
    private static let notice = RefusalRow.Expected.fails(.unexpectedMessage, sending: noticeOfDisconnection)

    private static func message(_ id: [UInt8], _ operation: [UInt8]) -> [UInt8] {
        [0x30, UInt8(id.count + operation.count)] + id + operation
    }

    private static func response(_ contents: [UInt8]) -> [UInt8] { message(one, [0x78, UInt8(contents.count)] + contents) }

    private static func name(_ identifier: String) -> [UInt8] { [0x8A, UInt8(identifier.utf8.count)] + Array(identifier.utf8) }

    private static func request(_ tag: UInt8, _ identifier: String) -> [UInt8] {
        let name = [tag, UInt8(identifier.utf8.count)] + Array(identifier.utf8)
        return message(one, [0x77, UInt8(name.count)] + name)
    }
}
