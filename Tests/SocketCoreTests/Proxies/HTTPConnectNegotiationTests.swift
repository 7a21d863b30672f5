import SocketCore
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct HTTPConnectNegotiationTests {
    private static let request = [UInt8]("CONNECT host.example:443 HTTP/1.1\r\nHost: host.example:443\r\n\r\n")

    private func failure(of response: String) throws -> ProxyFailure? {
        ProxyTranscript(of: try SocketProxy.negotiation(.http), given: [[UInt8](response)]).failure
    }

    @Test(
        arguments: [
            "HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200\r\n\r\n", "HTTP/1.1 204 \r\n\r\n",
            "HTTP/1.1 299 caf\u{e9}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nVia: a\r\n\r\n",
        ], ["", "220 hello\r\n", "HTTP/1.1 403 no\r\n\r\n", "\r\n\n"])
    func aTunnelIsEstablishedAndTheBytesBehindTheHeadAreItsOwn(_ head: String, _ tunnelBytes: String) throws {
        let transcripts = ProxyTranscript.all(of: try SocketProxy.negotiation(.http), given: [UInt8](head + tunnelBytes))
        #expect(transcripts.count == 1)
        #expect(transcripts.first?.answer == .established)
        #expect(transcripts.first?.sent == Self.request)
        #expect(transcripts.first?.leftover == [UInt8](tunnelBytes))
    }

    @Test func credentialsGoWithTheRequest() throws {
        // The example of RFC 7617, section 2.
        let credentials = SocketProxy.Credentials(username: "Aladdin", password: "open sesame")
        let sent = ProxyTranscript(of: try SocketProxy.negotiation(.http, "a.b", credentials: credentials), given: []).sent
        let expected =
            "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"
        #expect(String(decoding: sent, as: UTF8.self) == expected)
    }

    @Test(arguments: [("192.0.2.1", "192.0.2.1:25"), ("2001:DB8:0::1", "[2001:db8::1]:25"), ("[::1]", "[::1]:25")])
    func addressesAreSentAsAddresses(_ host: String, _ authority: String) throws {
        let sent = ProxyTranscript(of: try SocketProxy.negotiation(.http, host, port: 25), given: []).sent
        #expect(String(decoding: sent, as: UTF8.self) == "CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n\r\n")
    }

    @Test(arguments: 0...999)
    func everyStatusHasItsAnswer(_ status: Int) throws {
        let code = String(repeating: "0", count: 3 - String(status).count) + String(status)
        let transcript = ProxyTranscript(
            of: try SocketProxy.negotiation(.http), given: [[UInt8]("HTTP/1.1 \(code) Word\r\n\r\n")])
        switch status {
        case 101, 0..<100, 600...: #expect(transcript.failure?.kind == .misbehaved)
        case 100..<200: #expect(transcript.answer == .incomplete)
        case 200..<300: #expect(transcript.answer == .established)
        case 401, 407: #expect(transcript.failure?.kind == .authenticationRequired)
        default: #expect(transcript.failure?.kind == .refused)
        }
        if let failure = transcript.failure { #expect(failure.message.contains("\"HTTP/1.1 \(code) Word\"")) }
    }

    @Test func aRefusalIsToldWithItsStatusLine() throws {
        #expect(try failure(of: "HTTP/1.1 403 Filtered\r\n")?.message.contains("\"HTTP/1.1 403 Filtered\"") == true)
    }

    @Test func aStatusLineIsQuotedInPrintableASCIIAndCutOff() throws {
        let message = try #require(
            try failure(of: "HTTP/1.1 403 \u{1b}[2J\u{202e}\0" + String(repeating: "x", count: 9000) + "\r\n")?.message)
        #expect(message.utf8.allSatisfy { (0x20...0x7e).contains($0) })
        #expect(message.utf8.count < 200)
    }

    /// Each with one invalid byte and nothing after it.
    @Test(arguments: [
        "S", "\r", "\n", "HTTP/2", "HTTP/1.1 200 OK\n", "HTTP/1.1 200 OK\r\nA: b\n", "HTTP/1.1 200 OK\r\n\n",
        "HTTP/1.1 200 O\rK\r\n",
    ])
    func garbageIsNoticedWithItsFirstByte(_ bytes: String) throws {
        let negotiation = try SocketProxy.negotiation(.http)
        for transcript in ProxyTranscript.all(of: negotiation, given: [UInt8](bytes)) {
            #expect(transcript.failure?.kind == .misbehaved)
        }
        #expect(ProxyTranscript(of: negotiation, given: [Array([UInt8](bytes).dropLast())]).answer == .incomplete)
    }

    @Test(arguments: [
        "HTTP/1.1", "HTTP/1.1 20", "HTTP/1.x 200", "HTTP/1.1 2000", "HTTP/1.1 20x OK", "HTTP/1.1  200 OK", "HTTP/1.1-200 OK",
    ])
    func aStatusLineThatIsNoneIsRefused(_ line: String) throws {
        #expect(try failure(of: line + "\r\n")?.kind == .misbehaved)
    }

    @Test func aHeadHasALimit() throws {
        let start = "HTTP/1.1 200 OK\r\nA: "
        let limit = HTTPConnectNegotiation.headLimit
        let fitting = start + String(repeating: "x", count: limit - start.utf8.count - 4) + "\r\n\r\n"
        #expect(fitting.utf8.count == limit)
        let negotiation = try SocketProxy.negotiation(.http)
        #expect(ProxyTranscript(of: negotiation, given: [[UInt8](fitting + "tunnel")]).answer == .established)
        #expect(
            ProxyTranscript(of: negotiation, given: [[UInt8]("HTTP/1.1 200  OK" + fitting.dropFirst(15))]).failure?.kind
                == .misbehaved)
        let endless = [UInt8](start + String(repeating: "x", count: limit))
        #expect(ProxyTranscript(of: negotiation, given: endless.map { [$0] }).failure?.kind == .misbehaved)
    }

    @Test func interimResponsesHaveALimit() throws {
        let negotiation = try SocketProxy.negotiation(.http)
        let interim = [[UInt8]](repeating: [UInt8]("HTTP/1.1 102 Processing\r\n\r\n"), count: 1000)
        #expect(ProxyTranscript(of: negotiation, given: interim).failure?.kind == .misbehaved)
        #expect(ProxyTranscript(of: negotiation, given: [Array(interim.joined())]).failure?.kind == .misbehaved)
    }

    @Test(arguments: [("a:b", "p"), ("a\r\nX: y", "p"), ("a", "p\r\nX: y"), ("a\0", "p"), ("a", "p\u{7f}")])
    func credentialsThatBasicHasNoRoomForAreRefused(_ username: String, _ password: String) {
        #expect(throws: ProxyFailure.self) {
            try SocketProxy.negotiation(
                .http, "host.example", credentials: SocketProxy.Credentials(username: username, password: password))
        }
    }
}
