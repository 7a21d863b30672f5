import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Early data over real sockets.
@Suite(.timeLimit(.patient)) struct EarlyDataSocketTests {
    private let requests = Findings<String>()
    private let lines = Findings<String>()
    private let sessions = Findings<TLSSession>()

    private func settings(answering: Bool = false) throws -> TLSServerSettings {
        var settings = try TestCertificates.server()
        settings.handshakeTimeout = .patient
        let responder = TLSEarlyDataResponder { [requests] request in
            requests.add(String(decoding: request.bytes, as: UTF8.self))
            return request.bytes.starts(with: Array("GET".utf8)) ? .send(Array("got it\n".utf8)) : .afterHandshake
        }
        settings.sessionTickets = .issued(2)
        settings.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 16_384, responder: answering ? responder : nil)
        return settings
    }

    private func listener(answering: Bool = false) throws -> SocketListener {
        try SocketListener(port: 0, interface: "127.0.0.1", tls: settings(answering: answering))
    }

    /// Echoes lines and records them.
    private func serve(_ socket: AsyncSocket) async throws {
        if let session = socket.tlsSession { sessions.add(session) }
        for try await line in socket.lines {
            lines.add(line)
            try await socket.write(line + "\n")
        }
    }

    private func client(_ session: TLSResumableSession? = nil, sending text: String? = nil) throws -> TLSClientSettings {
        var settings = try TestCertificates.client()
        settings.handshakeTimeout = .patient
        settings.resumption = session.map { .session($0) } ?? .store(TLSInMemorySessionStore())
        settings.earlyData = text.map { TLSEarlyData(Array($0.utf8)) }
        return settings
    }

    /// Returns a session issued by the server.
    private func session(from listener: SocketListener) async throws -> TLSResumableSession {
        let settings = try client()
        return try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: settings) { socket in
            try await socket.write("hello\n")
            #expect(try await socket.readLine() == "hello")
            return try #require(socket.tlsSession?.resumable)
        }
    }

    @Test func earlyDataIsWhatIsReadFirst() async throws {
        let listener = try listener()
        try await serving(listener, { try await serve($0) }) { _ in
            let session = try await session(from: listener)
            for (attempt, outcome) in [TLSEarlyDataOutcome.accepted, .rejected].enumerated() {
                let settings = try client(session, sending: "early \(attempt)\n")
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: settings) { socket in
                    #expect(socket.tlsSession?.earlyData == outcome)
                    try await socket.write("late\n")
                    #expect(try await socket.readLine() == "early \(attempt)")
                    #expect(try await socket.readLine() == "late")
                }
            }
            #expect(lines.all == ["hello", "early 0", "late", "early 1", "late"])
            #expect(sessions.all.map(\.earlyData) == [.notOffered, .accepted, .rejected])
            #expect(sessions.all.map(\.earlyDataByteCount) == [0, 8, 0])
        }
    }

    @Test func theResponderDecidesWhichRequestsGetAnEarlyReply() async throws {
        let listener = try listener(answering: true)
        try await serving(listener, { try await serve($0) }) { _ in
            for (request, answer) in [("GET /\n", "got it"), ("POST /\n", "POST /")] {
                let settings = try await client(session(from: listener), sending: request)
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: settings) { socket in
                    #expect(socket.tlsSession?.earlyData == .accepted)
                    #expect(try await socket.readLine() == answer)
                    try await socket.write("late\n")
                    #expect(try await socket.readLine() == "late")
                }
            }
            #expect(requests.all == ["GET /\n", "POST /\n"])
            #expect(lines.all == ["hello", "late", "hello", "POST /", "late"])
        }
    }

    /// Returns whether the bytes are complete records and the last is application data (23).
    private static func endsWithApplicationData(_ bytes: [UInt8]) -> Bool {
        var (rest, last) = (bytes[...], UInt8(0))
        while rest.count >= 5, let type = rest.first {
            let length = rest.dropFirst(3).prefix(2).reduce(0) { $0 << 8 | Int($1) }
            guard rest.count >= 5 + length else { return false }
            (rest, last) = (rest.dropFirst(5 + length), type)
        }
        return rest.isEmpty && last == 23
    }

    /// An attacker records a client's data and replays it, the first time before the client gets through.
    ///
    /// A server accepts early data if the ticket's age and the age stated by the client differ by at most 10
    /// s. On a busy machine, the first copy may arrive later. Then try again.
    @Test func replayedEarlyDataIsAcceptedAtMostOnce() async throws {
        let listener = try listener(answering: true)
        try await serving(listener, { try await serve($0) }) { _ in
            for attempt in 1...30 {
                let request = "GET /\(attempt)"
                let isInTime = try await sendAgain(request, to: listener)
                let taken = requests.all.filter { $0 == request + "\n" }.count
                #expect(isInTime ? taken == 1 : taken <= 1)
                #expect(lines.all.suffix(2) == ["hello", request])
                if isInTime { return }
            }
            Issue.record("the first copy was late in every attempt")
        }
    }

    /// Intercepts a client's first flight, sends it twenty times, and then lets the client through.
    ///
    /// - Returns: Whether the first copy was in time.
    private func sendAgain(_ request: String, to listener: SocketListener) async throws -> Bool {
        let start = ContinuousClock.now
        let settings = try await client(session(from: listener), sending: request + "\n")
        let spy = try RawSocket.listening()
        let recorder = Recorder()
        let victim = AsyncSocket(inlineDelegate: recorder)
        try victim.connect(toHost: "127.0.0.1", onPort: spy.localPort, withTimeout: .patient)
        try await recorder.connected()
        try victim.beginTLS(settings: settings)
        let caught = try spy.accepted()
        var flight: [UInt8] = []
        for _ in 0..<10_000 where !Self.endsWithApplicationData(flight) { flight += try caught.receive() }
        #expect(Self.endsWithApplicationData(flight))
        var isInTime: Bool?
        for _ in 0..<20 {
            let copy = try RawSocket.connected(to: .loopback(port: listener.localPort))
            try copy.send(flight)
            // The server continues its handshake, which the attacker cannot complete.
            #expect(try copy.receive().first == 22)
            isInTime = isInTime ?? (start.duration(to: .now) < .seconds(8))
        }
        if isInTime == true { try await eventually("it is taken") { requests.all.contains(request + "\n") } }
        // The victim finally gets through. Its request is now a replay.
        let relay = try RawSocket.connected(to: .loopback(port: listener.localPort))
        try relay.send(flight)
        try await eventually("it is read after the handshake") {
            if relay.hasInput { try caught.send(relay.receive()) }
            if caught.hasInput { try relay.send(caught.receive()) }
            return lines.all.last == request
        }
        let session = try #require(victim.tlsSession)
        #expect(session.earlyData == .rejected && session.isResumed)
        victim.disconnect()
        return isInTime == true
    }

    /// On a connection that is upgraded from plaintext.
    @Test func anUpgradedConnectionHasItToo() async throws {
        let server = try settings()
        let store = TLSInMemorySessionStore()
        var offer = try TestCertificates.client()
        offer.resumption = .store(store)
        offer.earlyData = TLSEarlyData(Array("early\n".utf8))
        let tls = offer
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        try await serving(
            listener,
            { socket in
                #expect(try await socket.readLine() == "STARTTLS")
                try await socket.write("go\n")
                try await socket.startTLS(settings: server)
                try await serve(socket)
            }
        ) { _ in
            for outcome in [TLSEarlyDataOutcome.notOffered, .accepted, .accepted] {
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
                    try await socket.write("STARTTLS\n")
                    #expect(try await socket.readLine() == "go")
                    let session = try await socket.startTLS(settings: tls)
                    #expect(session.earlyData == outcome)
                    #expect(try await socket.readLine() == "early")
                }
            }
            #expect(lines.all == ["early", "early", "early"])
        }
    }

    @Test func delegatesGetItToo() async throws {
        let server = try settings(answering: true)
        var client = try client()
        client.earlyData = TLSEarlyData(Array("hello\n".utf8))
        for outcome in [TLSEarlyDataOutcome.notOffered, .accepted] {
            let link = try await Link.make()
            try await link.secure(client: client, server: server)
            #expect(link.client.tlsSession?.earlyData == outcome && link.server.tlsSession?.earlyData == outcome)
            link.server.readData(to: Data("\n".utf8), withTimeout: .patient, tag: 0)
            #expect(try await link.atServer.readText() == "hello\n")
            link.server.write(Data("!".utf8), withTimeout: .patient, tag: 0)
            link.client.readData(toLength: 1, withTimeout: .patient, tag: 0)
            #expect(try await link.atClient.readText() == "!")
            client.resumption = .session(try #require(link.client.tlsSession?.resumable))
        }
        #expect(requests.all == ["hello\n"])
    }

    /// A responder that never returns does not keep a connection open.
    @Test func aResponderHasTheTimeOfTheHandshake() async throws {
        var server = try settings()
        let responder = TLSEarlyDataResponder { _ in
            let (stream, continuation) = AsyncStream<Void>.makeStream()
            for await _ in stream {}
            withExtendedLifetime(continuation) {}
            return .afterHandshake
        }
        server.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 16_384, responder: responder)
        // On a busy machine, the client may be too late for the shorter limits.
        for limit in [0.3, 3, 30] {
            let link = try await Link.make()
            server.handshakeTimeout = .patient
            try await link.secure(client: client(), server: server)
            link.server.write(Data("!".utf8), withTimeout: .patient, tag: 0)
            link.client.readData(toLength: 1, withTimeout: .patient, tag: 0)
            #expect(try await link.atClient.readText() == "!")
            let peer = try await SocketPair()
            server.handshakeTimeout = .seconds(limit)
            let tls = server
            async let upgrade = outcome { try await peer.server.startTLS(settings: tls) }
            let early = try client(#require(link.client.tlsSession?.resumable), sending: "early")
            let through = await outcome { try await peer.client.startTLS(settings: early) }
            #expect(await upgrade == .failed(.handshakeTimeout))
            guard through == .served else { continue }
            // The client has completed its handshake, and the server has timed out.
            #expect(peer.client.tlsSession?.earlyData == .accepted)
            return
        }
        Issue.record("the client was too late each time")
    }

    @Test func tasksCannotDecideAboutTheServerOfEarlyData() async throws {
        let peer = try await SocketPair()
        let settings = try client(sending: "early")
        let upgrade = await outcome { try await peer.client.startTLS(settings: settings) { _ in true } }
        #expect(upgrade == .failed(.tls))
    }
}
