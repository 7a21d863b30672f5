import StartTLSProtocols
import Testing

/// Peers of PostgreSQL and MySQL that do not agree to start TLS.
@Suite struct DatabaseRefusalTests {
    @Test(arguments: postgresClient) func aPostgreSQLClientDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: requests("PostgreSQL", .postgres) + plaintextOnly)
    func aPostgreSQLServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: requests("PostgreSQL, direct TLS", .postgres(acceptsDirectTLS: true)) + direct)
    func aDirectPostgreSQLServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: mysqlGreetings + shortGreetings + mysqlErrors) func aMySQLClientDoesNotStartTLS(_ row: RefusalRow) throws {
        try row.check()
    }

    @Test(arguments: mysqlRequests) func aMySQLServerDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    // MARK: - PostgreSQL ("Message Flow" and "Message Formats" in its documentation)

    /// An ErrorResponse is a refusal even if its length is wrong: servers of protocol 2.0 send text instead.
    private static let postgresClient = RefusalRow.client(
        "PostgreSQL SSLRequest", .postgres,
        messages: [
            (bytes("N"), .notOffered), (bytes("NS"), .notOffered), (bytes("n"), .unexpected), (bytes("s"), .unexpected),
            (bytes("G"), .unexpected), (bytes("R"), .unexpected), (bytes("X"), .unexpected), (bytes("V"), .unexpected),
            ([0], .unexpected), ([0xFF], .unexpected), (bytes(" S"), .unexpected), (bytes("\r\nS"), .unexpected),
            (bytes("HTTP/1.1 400"), .unexpected), (bytes("220 STARTTLS"), .unexpected), ([0, 0, 0, 8], .unexpected),
            ([21, 3], .unexpectedTLS), ([21, 3, 3, 0, 2, 2, 70], .unexpectedTLS), ([21, 4], .unexpected), ([21], .waits),
            (errorResponse(-1, ""), .refused), (errorResponse(0, ""), .refused), (errorResponse(1, ""), .refused),
            (errorResponse(3, ""), .refused), (errorResponse(4, ""), .refused), (errorResponse(5, "\0"), .refused),
            (errorResponse(4, "S"), .refused), (errorResponse(5, ""), .waits), (errorResponse(11, "SFATAL\0"), .refused),
            (errorResponse(11, "SFATAL"), .waits), (errorResponse(11, "SFATAL\0S"), .refused),
            (errorResponse(8192, "S"), .waits), (errorResponse(8193, "S"), .refused),
            (errorResponse(0x7FFF_FFFF, "S"), .refused), (errorResponse(-0x8000_0000, "S"), .refused),
            (bytes("EFATAL: no\n\0"), .refused), (bytes("E"), .waits), (bytes("ES"), .waits), (bytes("E\0\0\0"), .waits),
        ])

    /// A length that includes itself, and a request code.
    private static func requests(_ name: String, _ server: StartTLSServer) -> [RefusalRow] {
        RefusalRow.server(
            name, server,
            messages: [
                (request(-1, ssl), .unexpected), (request(0, ssl), .unexpected), (request(1, ssl), .unexpected),
                (request(4, ssl), .unexpected), (request(7, ssl), .unexpected), (request(9, ssl), .unexpected),
                (request(16, ssl), .unexpected), (request(10_000, ssl), .unexpected), (request(10_001, ssl), .unexpected),
                (request(0x7FFF_FFFF, ssl), .unexpected), (request(-0x8000_0000, ssl), .unexpected),
                (request(-1, gss), .unexpected), (request(0, gss), .unexpected), (request(7, gss), .unexpected),
                (request(9, gss), .unexpected), (request(10_001, gss), .unexpected),
                (request(8, ssl - 2), .unexpected), (request(8, ssl + 2), .unexpected), (request(8, -ssl), .unexpected),
                (request(8, 0), .unexpected), (request(8, 1), .unexpected), (request(8, 0xFFFF), .unexpected),
                (request(8, -1), .unexpected), (request(8, 10 << 16), .unexpected), (request(8, 0x7FFF_FFFF), .unexpected),
                (request(16, cancel), .fails(.tlsRequired)), (request(8, cancel), .fails(.tlsRequired)),
                (request(7, cancel), .unexpected), (request(0, startup), .unexpected), (request(7, startup), .unexpected),
                (request(8, startup), login), (request(10_000, startup), login), (request(10_001, startup), .unexpected),
                (request(-1, startup), .unexpected), (request(8, 2 << 16), login), (request(8, startup + 2), login),
                (request(17, startup) + bytes("user\0a\0\0\0"), login),
                (Array(request(8, ssl).dropLast()), .waits), (Array(request(8, ssl).prefix(4)), .waits), (bytes("S"), .waits),
                (request(8, gss), .sends("N")), (bytes("GET / HTTP/1.1\r\n"), .unexpected), (bytes("STARTTLS\r\n"), .unexpected),
            ])
            + RefusalRow.server(
                "\(name), after a refused GSSENCRequest", server, after: [request(8, gss)],
                messages: [
                    (request(9, ssl), .unexpected), (request(0, ssl), .unexpected), (request(8, ssl + 2), .unexpected),
                    (request(8, startup), login), (request(16, cancel), .fails(.tlsRequired)), (request(8, 0), .unexpected),
                ])
    }

    private static let plaintextOnly: [RefusalRow] =
        RefusalRow.server(
            "PostgreSQL", .postgres,
            messages: [
                ([22, 3, 1, 0, 5, 1], .unexpectedTLS), ([22, 3], .unexpectedTLS), ([22], .waits), ([22, 4, 1, 0], .waits),
            ])
        + RefusalRow.server(
            "PostgreSQL, after a refused GSSENCRequest", .postgres, after: [request(8, gss)],
            messages: [([22, 3, 1, 0, 5, 1], .unexpectedTLS)])

    /// Records of other types than a handshake do not start TLS.
    private static let direct = RefusalRow.server(
        "PostgreSQL, direct TLS", .postgres(acceptsDirectTLS: true),
        messages: [
            ([21, 3, 3, 0, 2, 2, 70, 0], .unexpected), ([20, 3, 3, 0, 1, 1, 0, 0], .unexpected),
            ([23, 3, 3, 0, 1, 1, 0, 0], .unexpected), ([0x80, 0x2E, 1, 3, 1, 0, 0x15, 0], .unexpected),
        ])

    private static let (cancel, ssl, gss, startup) = (80_877_102, 80_877_103, 80_877_104, 3 << 16)
    private static let login = RefusalRow.Expected.fails(.tlsRequired, sending: "TLS is required")

    private static func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    private static func bigEndian(_ value: Int) -> [UInt8] {
        [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: value >> $0) }
    }

    private static func request(_ length: Int, _ code: Int) -> [UInt8] { bigEndian(length) + bigEndian(code) }

    private static func errorResponse(_ length: Int, _ fields: String) -> [UInt8] {
        bytes("E") + bigEndian(length) + bytes(fields)
    }

    // MARK: - MySQL ("Connection Phase" in its source documentation)

    private static let mysqlGreetings = RefusalRow.client(
        "MySQL greeting", .mysql,
        messages: [
            // CLIENT_SSL is 0x0800 in the lower half of the flags.
            (packet(0, greeting(lower: 0xF7FF)), .notOffered), (packet(0, greeting(lower: 0)), .notOffered),
            (packet(0, greeting(lower: 0x0008)), .notOffered), (packet(0, greeting(lower: 0xF7FF, status: 0x0800)), .notOffered),
            (packet(0, greeting(lower: 0xF7FF, status: 0, upper: 0x0800)), .notOffered),
            // Before MySQL 4.1, the nonce has one part.
            (packet(0, Array(greeting(lower: 0).prefix(34))), .notOffered),
            (packet(1, greeting()), .unexpected), (packet(2, greeting()), .unexpected), (packet(255, greeting()), .unexpected),
            (packet(0, greeting(version: 9)), .unexpected), (packet(0, greeting(version: 11)), .unexpected),
            (packet(0, greeting(version: 0)), .unexpected), (packet(0, greeting(version: 138)), .unexpected),
            // A nonce that is longer than the packet.
            (packet(0, greeting(nonceLength: 255)), .unexpected), (packet(0, greeting(nonceLength: 128)), .unexpected),
            (packet(0, []), .unexpected), (packet(0, [10]), .unexpected), (packet(0, [0]), .unexpected),
            (packet(0, [10, 0]), .unexpected), (packet(0, [UInt8](repeating: 10, count: 60)), .unexpected),
            ([0xFF, 0xFF, 0xFF, 0], .unexpected), ([0x01, 0x00, 0x01, 0], .unexpected), ([0x00, 0x00, 0x01, 0], .waits),
            (Array(packet(0, greeting()).dropLast()), .waits), (Array(packet(0, greeting()).prefix(3)), .waits),
            ([UInt8(greeting().count + 1), 0, 0, 0] + greeting(), .waits), ([1, 0, 0, 0], .waits), ([0, 0, 0], .waits),
            ([21, 3, 3, 0, 2, 2, 70], .unexpected), (bytes("HTTP/1.1 400"), .unexpected), (bytes("220 m\r\n"), .unexpected),
        ])

    /// A greeting without all 20 bytes of the nonce.
    private static let shortGreetings = RefusalRow.client(
        "MySQL greeting, cut short", .mysql,
        messages: (1...45).map { (packet(0, Array(greeting().prefix($0))), .unexpected) })

    /// The server refuses the connection with an error packet, which has no SQLSTATE before the greeting.
    private static let mysqlErrors = RefusalRow.client(
        "MySQL error", .mysql,
        messages: [
            (packet(0, [0xFF, 0x10, 4] + bytes("Too many connections")), .refused), (packet(0, [0xFF, 0x10, 4]), .refused),
            (packet(0, [0xFF, 0x10]), .refused), (packet(0, [0xFF]), .refused),
            (packet(1, [0xFF, 0x6A, 4] + bytes("Host is not allowed")), .refused),
            (packet(0, [0xFF] + greeting().dropFirst()), .refused), (packet(0, [0xFE] + greeting().dropFirst()), .unexpected),
            (packet(0, [0]), .unexpected), (packet(0, [0, 0, 0, 2, 0, 0, 0]), .unexpected), ([2, 0, 0, 0, 0xFF], .waits),
        ])

    /// SSLRequest: packet 1 with 32 bytes and the flag CLIENT_SSL.
    private static let mysqlRequests = RefusalRow.server(
        "MySQL", .mysql { Transcript.ownGreeting },
        messages: [
            (packet(0, request(0x8A)), .unexpected), (packet(2, request(0x8A)), .unexpected),
            (packet(255, request(0x8A)), .unexpected),
            (packet(1, []), .unexpected), (packet(1, Array(request(0x8A).prefix(1))), .unexpected),
            (packet(1, Array(request(0x8A).prefix(3))), .unexpected), (packet(1, Array(request(0x8A).prefix(4))), .unexpected),
            (packet(1, Array(request(0x8A).prefix(5))), .unexpected), (packet(1, Array(request(0x8A).prefix(31))), .unexpected),
            (packet(1, request(0x8A) + [0]), .unexpected), (packet(1, request(0x8A) + bytes("root\0\0")), .unexpected),
            (packet(1, request(0x82)), tlsRequired), (packet(1, request(0)), tlsRequired),
            (packet(1, request(0xF7)), tlsRequired),
            (packet(1, [0x08, 0, 0x08, 0x08] + request(0).dropFirst(4)), tlsRequired),
            (packet(1, request(0x82) + bytes("root\0\0")), tlsRequired),
            // HandshakeResponse320, with flags of two bytes.
            (packet(1, [0x05, 0x80, 0, 0, 0x40] + bytes("root\0")), tlsRequired),
            ([0xFF, 0xFF, 0xFF, 1], .unexpected), ([0x01, 0x00, 0x01, 1], .unexpected), ([0x00, 0x00, 0x01, 1], .waits),
            (Array(packet(1, request(0x8A)).dropLast()), .waits), ([33, 0, 0, 1] + request(0x8A), .waits),
            ([0, 0, 0], .waits), ([32, 0, 0, 1], .waits),
            ([22, 3, 1, 2, 0, 1], .unexpected), (bytes("STARTTLS\r\n"), .unexpected),
        ])

    private static let tlsRequired = RefusalRow.Expected.fails(.tlsRequired, sending: "TLS is required")
    private static let method = bytes("caching_sha2_password\0")

    private static func request(_ flags: UInt8) -> [UInt8] {
        [0, flags, 0x08, 0, 0, 0, 0, 1, 45] + [UInt8](repeating: 0, count: 23)
    }

    /// A greeting of 46 bytes up to the end of the nonce, followed by a zero byte and the method.
    private static func greeting(
        version: UInt8 = 10, lower: UInt16 = 0xFFFF, status: UInt16 = 2, upper: UInt16 = 0xFFFF, nonceLength: UInt8 = 21
    ) -> [UInt8] {
        var greeting: [UInt8] = [version] + bytes("8\0") + [1, 0, 0, 0] + bytes("abcdefgh\0")
        greeting += littleEndian(lower) + [45] + littleEndian(status) + littleEndian(upper) + [nonceLength]
        return greeting + [UInt8](repeating: 0, count: 10) + bytes("ijklmnopqrst\0") + method
    }

    private static func littleEndian(_ value: UInt16) -> [UInt8] { [UInt8(value & 0xFF), UInt8(value >> 8)] }

    private static func packet(_ number: UInt8, _ payload: [UInt8]) -> [UInt8] { Transcript.packet(number, payload) }
}
