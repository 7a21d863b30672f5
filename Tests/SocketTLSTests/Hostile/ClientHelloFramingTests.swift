import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// A client can split its first message into arbitrary records, and the network can split these into
/// arbitrary segments. The chosen settings, the verdict and the error are always the same as for the whole
/// message.
@Suite(.timeLimit(.patient)) struct ClientHelloFramingTests {
    enum Framing: CaseIterable {
        case whole, halves, seventeen, twoHundred, bytes, emptyFirst, emptyBetween, manyEmpty

        /// Splits the handshake records at the start of `flight` in another way. The rest is unchanged.
        func apply(to flight: [UInt8]) -> [UInt8] {
            var (message, rest): ([UInt8], ArraySlice<UInt8>) = ([], flight[...])
            while rest.first == 22 {
                let length = Int(rest[rest.startIndex + 3]) << 8 | Int(rest[rest.startIndex + 4])
                message += rest.dropFirst(5).prefix(length)
                rest = rest.dropFirst(5 + length)
            }
            return pieces(of: message).flatMap { [22, 3, 1, UInt8($0.count >> 8), UInt8($0.count & 0xFF)] + $0 } + rest
        }

        private func pieces(of message: [UInt8]) -> [[UInt8]] {
            func cut(_ count: Int) -> [[UInt8]] {
                let size = max(1, (message.count + count - 1) / count)
                return stride(from: 0, to: message.count, by: size).map { Array(message[$0..<min($0 + size, message.count)]) }
            }
            return switch self {
            case .whole: [message]
            case .halves: cut(2)
            case .seventeen: cut(17)
            case .twoHundred: cut(200)
            case .bytes: cut(message.count)
            case .emptyFirst: [[], message]
            case .emptyBetween: Array(cut(5).flatMap { [$0, []] }.dropLast())
            case .manyEmpty: [[UInt8]](repeating: [], count: 30) + [message]
            }
        }
    }

    enum Choice: CaseIterable {
        case plain, certificate, certificateMissing, refused, function

        /// The expected error, whatever the framing.
        var code: TLSError.Code? {
            switch self {
            case .plain, .certificate, .function: nil
            case .certificateMissing: .clientCertificateMissing
            case .refused: .unrecognizedName
            }
        }
    }

    private let authority: CertificateAuthority

    init() throws {
        authority = try CertificateAuthority(name: "Framing")
    }

    private func server(_ choice: Choice) throws -> TLSServerSettings {
        var settings = TLSSettings.server(identity: try authority.identity(.server(names: ["public.example.org"])))
        var hidden = TLSSettings.server(identity: try authority.identity(.server(names: ["private.example.org"])))
        if choice == .certificate || choice == .certificateMissing {
            hidden.values.clientCertificates = .required
            hidden.trustRoots = try authority.roots
        }
        if choice == .function {
            settings.serverNames = TLSServerNames { [hidden] hello in hello.serverName == "private.example.org" ? hidden : nil }
        } else {
            settings.serverNames = try TLSServerNames(
                choice == .refused ? ["other.example.org": hidden] : ["private.example.org": hidden], unknownName: .reject)
        }
        return settings
    }

    private func pair(_ version: TLSProtocolVersion, _ choice: Choice) throws -> EnginePair {
        var client = try authority.clientSettings(serverName: "private.example.org")
        (client.minimumVersion, client.maximumVersion) = (version, version)
        if choice == .certificate { client.identity = try authority.identity(.client(commonName: "alice")) }
        return try EnginePair(client, server(choice), chunk: .max)
    }

    /// Delivers the client's first flight to the server in segments of `segment` bytes.
    private func shakeHands(_ pair: EnginePair, _ framing: Framing, segment: Int) async throws {
        _ = pair.client.handshake()
        let flight = Array(pair.client.output.readableBytes)
        pair.client.output.consume(flight.count)
        var rest = framing.apply(to: flight)[...]
        while !rest.isEmpty {
            pair.inject(Array(rest.prefix(segment)), to: .server)
            rest = rest.dropFirst(segment)
            if case .awaitingSettings(let question) = pair.server.handshake() { pair.server.choose(await question.answer()) }
        }
        pair.shakeHands()
    }

    @Test(arguments: Framing.allCases, Choice.allCases)
    func everyFramingMeansTheSame(framing: Framing, choice: Choice) async throws {
        for version in versions {
            for segment in [Int.max, 1] {
                let pair = try pair(version, choice)
                try await shakeHands(pair, framing, segment: segment)
                #expect(pair.serverError?.code == choice.code, "\(version) \(segment): \(String(describing: pair.serverError))")
                #expect((pair.server.session != nil) == (choice.code == nil), "\(version) \(segment)")
                guard choice.code == nil else { continue }
                #expect(pair.client.session?.peerCertificates.first?.dnsNames == ["private.example.org"])
                #expect(pair.server.session?.serverName == "private.example.org")
                #expect((pair.server.session?.peerCertificates.isEmpty == false) == (choice == .certificate))
            }
        }
    }

    /// Anything that our parser does not accept is rejected, even if OpenSSL would accept it.
    @Test(arguments: [[21, 3, 3, 0, 2, 1, 90], [20, 3, 3, 0, 1, 1]] as [[UInt8]])
    func recordsBeforeTheMessageBringNoOtherSettings(first: [UInt8]) async throws {
        for version in versions {
            let pair = try pair(version, .certificateMissing)
            pair.inject(first, to: .server)
            try await shakeHands(pair, .whole, segment: .max)
            #expect(pair.serverError != nil && pair.server.session == nil, "\(version)")
        }
    }

    /// A ClientHello in the SSL 2.0 format with TLS suites, which OpenSSL would accept.
    @Test(arguments: [true, false]) func theFormatOfSSL2IsRefused(hasNames: Bool) throws {
        var settings = try server(.certificateMissing)
        if !hasNames { settings.serverNames = nil }
        settings.minimumVersion = .tls12
        let engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        let suites: [UInt8] = [0x00, 0xC0, 0x2B, 0x00, 0xC0, 0x2F]
        let message = [1, 3, 3, 0, UInt8(suites.count), 0, 0, 0, 16] + suites + [UInt8](repeating: 7, count: 16)
        let record = [0x80, UInt8(message.count)] + message
        record.withUnsafeBytes { engine.received.append($0) }
        let error = engine.handshake().error
        #expect(error?.code == .notTLS, "\(String(describing: error))")
        #expect(engine.session == nil)
    }

    /// The cost of parsing is linear: a message in pieces of one byte is not parsed again from the start.
    @Test func aMessageThatNeverEndsIsGivenUp() throws {
        let settings = try server(.plain)
        let engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        let start: [UInt8] = [22, 3, 1, 0, 4, 1, 0, 0x7F, 0xFF]
        start.withUnsafeBytes { engine.received.append($0) }
        var error = engine.handshake().error
        for _ in 0..<60_000 where error == nil {
            ([22, 3, 1, 0, 1, 0] as [UInt8]).withUnsafeBytes { engine.received.append($0) }
            error = engine.handshake().error
            engine.output.reset()
        }
        #expect(engine.session == nil)
        #expect(error != nil)
    }

    /// The server does not wait for the rest, wherever the message ends.
    @Test(arguments: versions) func anEndInTheMiddleOfTheMessageIsAnError(version: TLSProtocolVersion) throws {
        let source = try pair(version, .plain)
        _ = source.client.handshake()
        let flight = Array(source.client.output.readableBytes)
        for count in [1, 4, 5, 20, flight.count - 1] {
            let pair = try pair(version, .plain)
            pair.inject(Array(flight.prefix(count)), to: .server)
            #expect(pair.server.handshake().isIncomplete)
            pair.server.receiveEndOfFile()
            let error = pair.server.handshake().error
            #expect(error?.code == .closedDuringHandshake, "\(count): \(String(describing: error))")
        }
    }
}
