import SocketBuffers
import SocketCore
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct SOCKS5NegotiationTests {
    private static let greeting: [UInt8] = [5, 1, 0]
    private static let greetingWithPassword: [UInt8] = [5, 2, 0, 2]
    private static let noAuthentication: [UInt8] = [5, 0]
    private static let password: [UInt8] = [5, 2]
    private static let credentials: [UInt8] = [1, 4] + "user".utf8 + [6] + "secret".utf8
    private static let request: [UInt8] = [5, 1, 0, 3, 12] + "host.example".utf8 + [1, 187]
    private static let success: [UInt8] = [5, 0, 0, 1, 127, 0, 0, 1, 4, 56]

    /// Replies of each address type. The name may be empty or of maximum length.
    private static let successes: [[UInt8]] = [
        success, [5, 0, 0, 4] + [UInt8](repeating: 9, count: 18), [5, 0, 0, 3, 0, 0, 0],
        [5, 0, 0, 3, 255] + [UInt8](repeating: 97, count: 257),
    ]

    @Test(arguments: successes, [[], [UInt8]("220 hello\r\n"), success])
    func aTunnelIsEstablishedAndTheBytesBehindTheReplyAreItsOwn(_ success: [UInt8], _ tunnelBytes: [UInt8]) throws {
        let negotiation = try SocketProxy.negotiation(.socks5)
        let transcripts = ProxyTranscript.all(of: negotiation, given: Self.noAuthentication + success + tunnelBytes)
        #expect(transcripts.count == 1)
        #expect(transcripts.first?.answer == .established)
        #expect(transcripts.first?.sent == Self.greeting + Self.request)
        #expect(transcripts.first?.leftover == tunnelBytes)
    }

    /// A proxy that sends all replies in advance. Otherwise the tunnel would be established before the
    /// request, and our first bytes would be taken as the request.
    @Test func aReplyIsNotLookedAtBeforeTheRequestHasLeft() throws {
        var negotiation = try SocketProxy.negotiation(.socks5)
        let buffer = PreBuffer()
        (Self.noAuthentication + Self.success).withUnsafeBytes { buffer.append($0) }
        #expect(negotiation.take(from: buffer) == .incomplete)
        negotiation.didSend(negotiation.output.count)
        #expect(negotiation.take(from: buffer) == .incomplete)
        #expect(Array(negotiation.output) == Self.request)
        negotiation.didSend(1)
        #expect(negotiation.take(from: buffer) == .incomplete)
        negotiation.didSend(negotiation.output.count)
        #expect(negotiation.take(from: buffer) == .established)
        #expect(buffer.isEmpty)
    }

    @Test func credentialsAreSentWhenTheProxyAsksForThem() throws {
        let negotiation = try SocketProxy.negotiation(.socks5, "host.example", credentials: SocketProxy.testCredentials)
        let transcripts = ProxyTranscript.all(of: negotiation, given: Self.password + [1, 0] + Self.success + [7])
        #expect(transcripts.count == 1)
        #expect(transcripts.first?.answer == .established)
        #expect(transcripts.first?.sent == Self.greetingWithPassword + Self.credentials + Self.request)
        #expect(transcripts.first?.leftover == [7])
    }

    @Test func credentialsAreNotSentToAProxyThatDoesNotAsk() throws {
        let negotiation = try SocketProxy.negotiation(.socks5, "host.example", credentials: SocketProxy.testCredentials)
        let transcript = ProxyTranscript(of: negotiation, given: [Self.noAuthentication + Self.success])
        #expect(transcript.answer == .established)
        #expect(transcript.sent == Self.greetingWithPassword + Self.request)
    }

    @Test func eachMessageWaitsForTheReplyBeforeIt() throws {
        let negotiation = try SocketProxy.negotiation(.socks5, "host.example", credentials: SocketProxy.testCredentials)
        #expect(ProxyTranscript(of: negotiation, given: []).sent == Self.greetingWithPassword)
        #expect(ProxyTranscript(of: negotiation, given: [[5]]).sent == Self.greetingWithPassword)
        #expect(ProxyTranscript(of: negotiation, given: [Self.password]).sent == Self.greetingWithPassword + Self.credentials)
        #expect(ProxyTranscript(of: negotiation, given: [Self.password, [1]]).answer == .incomplete)
    }

    @Test(arguments: [
        ("192.0.2.1", [5, 1, 0, 1, 192, 0, 2, 1, 0, 25]),
        ("2001:db8::1", [5, 1, 0, 4, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 25]),
    ])
    func addressesAreSentAsAddresses(_ host: String, _ request: [UInt8]) throws {
        let negotiation = try SocketProxy.negotiation(.socks5, host, port: 25)
        #expect(ProxyTranscript(of: negotiation, given: [Self.noAuthentication]).sent == Self.greeting + request)
    }

    @Test func theLongestNameAndCredentialsFit() throws {
        let (name, user) = (String(repeating: "n", count: 255), String(repeating: "é", count: 127))
        let credentials = SocketProxy.Credentials(username: user, password: String(repeating: "p", count: 255))
        let negotiation = try SocketProxy.negotiation(.socks5, name, port: 25, credentials: credentials)
        let sent = ProxyTranscript(of: negotiation, given: [Self.password, [1, 0]]).sent
        #expect(sent.count == 4 + (3 + 254 + 255) + (4 + 1 + 255 + 2))
        #expect(sent[5] == 254)
    }

    @Test(arguments: UInt8.min...UInt8.max)
    func everyChoiceOfAMethodHasItsAnswer(_ method: UInt8) throws {
        for credentials in [nil, SocketProxy.testCredentials] {
            let negotiation = try SocketProxy.negotiation(.socks5, "host.example", credentials: credentials)
            let transcript = ProxyTranscript(of: negotiation, given: [[5, method]])
            switch method {
            case 0: #expect(transcript.answer == .incomplete)
            case 2 where credentials != nil: #expect(transcript.answer == .incomplete)
            case 255: #expect(transcript.failure?.kind == .authenticationRequired)
            default: #expect(transcript.failure?.kind == .misbehaved)
            }
        }
    }

    @Test(arguments: UInt8.min...UInt8.max)
    func everyReplyCodeHasItsAnswer(_ code: UInt8) throws {
        let reply = [5, code] + Self.success.dropFirst(2)
        let transcripts = ProxyTranscript.all(of: try SocketProxy.negotiation(.socks5), given: Self.noAuthentication + reply)
        let names = [
            "general SOCKS server failure", "connection not allowed by ruleset", "Network unreachable", "Host unreachable",
            "Connection refused", "TTL expired", "Command not supported", "Address type not supported",
        ]
        for transcript in transcripts {
            switch code {
            case 0: #expect(transcript.answer == .established)
            case 1...8:
                #expect(transcript.failure?.kind == .refused)
                #expect(transcript.failure?.message.contains(names[Int(code) - 1]) == true)
            default:
                #expect(transcript.failure?.kind == .refused)
                #expect(transcript.failure?.message.contains("\(code)") == true)
            }
        }
    }

    @Test func aRefusalIsToldWithoutWaitingForItsAddress() throws {
        let transcript = ProxyTranscript(of: try SocketProxy.negotiation(.socks5), given: [Self.noAuthentication, [5, 1]])
        #expect(transcript.failure?.kind == .refused)
    }

    @Test(arguments: UInt8(1)...UInt8.max)
    func credentialsThatAreNotAcceptedAreTold(_ status: UInt8) throws {
        let negotiation = try SocketProxy.negotiation(.socks5, "host.example", credentials: SocketProxy.testCredentials)
        let transcripts = ProxyTranscript.all(of: negotiation, given: Self.password + [1, status])
        #expect(transcripts.count == 1)
        #expect(transcripts.first?.failure?.kind == .authenticationRequired)
        #expect(transcripts.first?.failure?.message.contains("secret") == false)
    }

    /// Each reply has one invalid byte and nothing after it.
    @Test(
        arguments: [
            [4], [0x48], [0], [5, 2, 5], [5, 2, 0], [5, 0, 4], [5, 0, 5, 0, 1], [5, 0, 5, 0, 0, 0], [5, 0, 5, 0, 0, 2],
            [5, 0, 5, 0, 0, 5],
            [5, 0, 5, 0, 0, 255],
        ] as [[UInt8]])
    func garbageIsNoticedWithItsFirstByte(_ bytes: [UInt8]) throws {
        let negotiation = try SocketProxy.negotiation(.socks5, "host.example", credentials: SocketProxy.testCredentials)
        for transcript in ProxyTranscript.all(of: negotiation, given: bytes) {
            #expect(transcript.failure?.kind == .misbehaved)
        }
        #expect(ProxyTranscript(of: negotiation, given: [Array(bytes.dropLast())]).answer == .incomplete)
    }

    @Test(arguments: [("", "p"), ("u", ""), (String(repeating: "u", count: 256), "p"), ("u", String(repeating: "p", count: 256))])
    func credentialsThatDoNotFitAreRefused(_ username: String, _ password: String) {
        #expect(throws: ProxyFailure.self) {
            try SocketProxy.negotiation(
                .socks5, "host.example", credentials: SocketProxy.Credentials(username: username, password: password))
        }
    }
}
