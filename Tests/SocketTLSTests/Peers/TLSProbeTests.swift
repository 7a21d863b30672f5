import SocketTLS
import Testing

/// The bytes of probes, and the replies to them.
@Suite struct TLSProbeTests {
    private static func record(_ type: UInt8, _ body: [UInt8]) -> [UInt8] {
        [type, 3, 3, UInt8(body.count >> 8), UInt8(body.count & 0xFF)] + body
    }

    /// A ServerHello, with TLS 1.3 in an extension if `isTLS13`.
    private static func hello(version: UInt16, suite: UInt16, isTLS13: Bool = false) -> [UInt8] {
        var body = [UInt8(version >> 8), UInt8(version & 0xFF)] + [UInt8](repeating: 7, count: 32) + [0]
        body += [UInt8(suite >> 8), UInt8(suite & 0xFF), 0]
        if isTLS13 { body += [0, 6, 0, 43, 0, 2, 3, 4] }
        return [2, 0, 0, UInt8(body.count)] + body
    }

    @Test func theVersionAndTheSuiteAreRead() {
        let old = Self.record(22, Self.hello(version: 0x0301, suite: 0x002F))
        #expect(TLSProbe.reply(in: old) == .accepted(version: 0x0301, cipherSuite: 0x002F))
        let new = Self.record(22, Self.hello(version: 0x0303, suite: 0x1301, isTLS13: true))
        #expect(TLSProbe.reply(in: new) == .accepted(version: 0x0304, cipherSuite: 0x1301))
    }

    @Test func aReplyMayArriveInAnyPieces() {
        let hello = Self.hello(version: 0x0303, suite: 0xC02F)
        let whole = Self.record(22, Array(hello.prefix(9))) + Self.record(22, Array(hello.dropFirst(9)))
        for count in 0..<whole.count { #expect(TLSProbe.reply(in: Array(whole.prefix(count))) == nil, "\(count)") }
        #expect(TLSProbe.reply(in: whole) == .accepted(version: 0x0303, cipherSuite: 0xC02F))
    }

    @Test func anAlertIsARejection() {
        #expect(TLSProbe.reply(in: Self.record(21, [2, 70])) == .rejected(.protocolVersion))
        #expect(TLSProbe.reply(in: Self.record(21, [1, 0])) == .rejected(.closeNotify))
    }

    @Test func aWarningIsSkipped() {
        let warning = Self.record(21, [1, 112])
        #expect(TLSProbe.reply(in: warning) == nil)
        let hello = Self.record(22, Self.hello(version: 0x0303, suite: 0xC02F))
        #expect(TLSProbe.reply(in: warning + hello) == .accepted(version: 0x0303, cipherSuite: 0xC02F))
    }

    @Test(arguments: ["HTTP/1.1 400 Bad Request\r\n", "220 mail.example.org ESMTP\r\n"])
    func otherProtocolsAreRecognized(text: String) {
        #expect(TLSProbe.reply(in: Array(text.utf8)) == .notTLS)
    }

    /// No bit of a reply makes the parser trap.
    @Test func damagedRepliesAreHandled() {
        let whole = Self.record(22, Self.hello(version: 0x0303, suite: 0x1301, isTLS13: true))
        for index in whole.indices {
            for bit in 0..<8 {
                var damaged = whole
                damaged[index] ^= 1 << bit
                _ = TLSProbe.reply(in: damaged + whole)
            }
        }
    }

    @Test(arguments: [0x0301, 0x0302, 0x0303, 0x0304] as [UInt16])
    func ourParserReadsTheHello(version: UInt16) throws {
        let probe = TLSProbe(version: version, cipherSuites: [0x1301, 0xC02F], serverName: "mail.example.org")
        let hello = try #require(try TLSClientHello(records: probe.record.span.bytes))
        #expect(hello.serverName == "mail.example.org")
    }

    @Test func aHelloFitsIntoARecord() throws {
        let probe = TLSProbe(version: 0x0303, cipherSuites: Array(0...0xFFFE))
        #expect(probe.record.count < 16_384)
        #expect(try TLSClientHello(records: probe.record.span.bytes) != nil)
    }

    @Test func anAddressIsNotSentAsAName() throws {
        let probe = TLSProbe(version: 0x0303, cipherSuites: [0xC02F], serverName: "127.0.0.1")
        #expect(try TLSClientHello(records: probe.record.span.bytes)?.serverName == nil)
    }
}
