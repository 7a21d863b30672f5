import SocketBuffers
import SocketTLS
import Testing

/// ClientHellos that would make a server search long lists.
@Suite struct ClientHelloTests {
    /// Returns a length-prefixed list.
    private static func list(_ size: Int, _ contents: [UInt8]) -> [UInt8] {
        (0..<size).reversed().map { UInt8(truncatingIfNeeded: contents.count >> (8 * $0)) } + contents
    }

    private static func numbers(_ count: Int) -> [UInt8] {
        (0..<count).flatMap { [UInt8(truncatingIfNeeded: $0 >> 8), UInt8(truncatingIfNeeded: $0)] }
    }

    private static func hello(suites: [UInt8] = [0x13, 0x01], extensions: [(type: UInt8, contents: [UInt8])]) -> [UInt8] {
        let all: [UInt8] = extensions.flatMap { [0, $0.type] + list(2, $0.contents) }
        return [3, 3] + [UInt8](repeating: 7, count: 32) + list(1, []) + list(2, suites) + list(1, [0]) + list(2, all)
    }

    private static let versions: (type: UInt8, contents: [UInt8]) = (43, list(1, [3, 4]))
    private static let signatures: (type: UInt8, contents: [UInt8]) = (13, list(2, [4, 3]))

    /// Returns the error of one of our servers for a ClientHello in records of at most 16 KiB.
    private func error(for hello: [UInt8]) throws -> TLSError? {
        let server = try Fixture().engine(.server)
        receive(hello, on: server)
        return server.handshake().error
    }

    private func receive(_ hello: [UInt8], on server: TLSEngine) {
        var message = [1] + Self.list(3, hello)
        while !message.isEmpty {
            let record = [22, 3, 1] + Self.list(2, Array(message.prefix(16_384)))
            record.withUnsafeBytes { server.received.append($0) }
            message.removeFirst(min(16_384, message.count))
        }
    }

    private static func shares(_ count: Int) -> (type: UInt8, contents: [UInt8]) {
        (51, list(2, (0..<count).flatMap { _ in [0x7F, 0xFF] + list(2, [1]) }))
    }

    private static let excesses: [(String, [UInt8])] = [
        ("groups", hello(extensions: [versions, signatures, (10, list(2, numbers(65)))])),
        ("key shares", hello(extensions: [versions, signatures, (10, list(2, numbers(8))), shares(17)])),
        ("signature algorithms", hello(extensions: [versions, (13, list(2, numbers(129)))])),
        ("signature algorithms", hello(extensions: [versions, signatures, (50, list(2, numbers(129)))])),
        ("cipher suites", hello(suites: numbers(257), extensions: [versions, signatures])),
        ("application protocols", hello(extensions: [versions, signatures, (16, list(2, [UInt8](repeating: 1, count: 4096)))])),
        ("bytes", hello(extensions: [versions, signatures, (21, [UInt8](repeating: 0, count: 32_768))])),
    ]

    @Test(arguments: excesses)
    func aListThatNoClientNeedsIsRefused(what: String, hello: [UInt8]) throws {
        let error = try #require(try error(for: hello))
        #expect(error.message.contains("too many \(what)"), "\(error)")
        #expect(error.code == .protocolViolation && error.fault == .peer)
        #expect(error.sentAlert == .illegalParameter)
        #expect(error.openSSLStack.isEmpty)
    }

    /// As many as are allowed. These fail for another reason.
    @Test(arguments: [
        hello(suites: numbers(256), extensions: [versions, (13, list(2, numbers(128))), (10, list(2, numbers(64))), shares(16)])
    ])
    func aLongListIsReadLikeAnyOther(hello: [UInt8]) throws {
        let error = try error(for: hello)
        #expect(error?.message.contains("too many") != true)
    }

    @Test func aMessageThatIsCutOffIsNoCrash() throws {
        let whole = Self.hello(extensions: [Self.versions, Self.signatures, (10, Self.list(2, Self.numbers(8))), Self.shares(3)])
        for count in 0..<whole.count {
            let error = try #require(try error(for: Array(whole.prefix(count))))
            #expect(error.fault == .peer)
        }
    }

    /// A server with names parses the message itself. A message of 16 KiB or more fills a record.
    @Test(arguments: [16_383, 16_384, 16_385, 30_000]) func aRecordOfTheGreatestLengthIsRead(size: Int) throws {
        let name = (type: UInt8(0), contents: Self.list(2, [0] + Self.list(2, Array("example.org".utf8))))
        let short = Self.hello(extensions: [Self.versions, name, (21, [])])
        let hello = Self.hello(extensions: [Self.versions, name, (21, [UInt8](repeating: 0, count: size - 4 - short.count))])
        var fixture = try Fixture()
        fixture.server.serverNames = TLSServerNames { _ in nil }
        let server = try fixture.engine(.server)
        receive(hello, on: server)
        guard case .awaitingSettings(.settings(_, let offer, over: .stream)) = server.handshake() else {
            throw TestFailure(what: "no question")
        }
        #expect(offer.serverName == "example.org")
    }
}
