import AsyncSocketsTesting
import SocketBuffers
import SocketTLS

/// Settings that allow early data on both sides, and connections with them.
struct EarlyDataWorld {
    var client: TLSClientSettings
    var server: TLSServerSettings
    let authority: CertificateAuthority
    /// A context with its own clock, or nil for the shared ones.
    var context: TLSContext?

    init(maximum: Int = 16_384, tickets: Int = 1) throws {
        let fixture = try Fixture(.tls13)
        (client, server, authority) = (fixture.client, fixture.server, fixture.authority)
        client.minimumVersion = .tls12
        server.minimumVersion = .tls12
        client.maximumVersion = nil
        server.maximumVersion = nil
        client.resumption = .store(TLSInMemorySessionStore())
        server.sessionTickets = .issued(tickets)
        server.acceptedEarlyData = TLSAcceptedEarlyData(upTo: maximum)
    }

    func newServer() throws -> TLSEngine {
        try TLSEngine(context: context ?? TLSContext.context(for: server), settings: server)
    }

    /// Returns a session that the server has issued to a client.
    func session() throws -> TLSResumableSession {
        var conversation = try connect(resuming: nil, sending: nil)
        try conversation.shakeHands()
        conversation.write("!", from: .server)
        guard conversation.read(on: .client) == "!", let session = conversation.client.session?.resumable else {
            throw TestFailure(what: "no session")
        }
        return session
    }

    func connect(
        resuming session: TLSResumableSession?, sending early: TLSEarlyData?, chunk: Int = .max
    ) throws -> EarlyConversation {
        var settings = client
        if let session { settings.resumption = .session(session) }
        settings.earlyData = early
        return EarlyConversation(
            client: try TLSEngine(context: TLSContext.context(for: settings), settings: settings), server: try newServer(),
            chunk: chunk)
    }

    func connect(resuming session: TLSResumableSession?, sending text: String, chunk: Int = .max) throws -> EarlyConversation {
        try connect(resuming: session, sending: TLSEarlyData(Array(text.utf8)), chunk: chunk)
    }
}

/// Two engines and the data that they have sent.
struct EarlyConversation {
    let client: TLSEngine
    let server: TLSEngine
    /// The number of bytes that are transferred at a time.
    let chunk: Int
    private(set) var clientError: TLSError?
    private(set) var serverError: TLSError?
    /// The bytes that the client sent before the server's response.
    private(set) var firstFlight: [UInt8] = []
    /// The pending question for the responder.
    private(set) var question: TLSServerQuestion?
    private var hasHeardFromServer = false
    private var (clientIsComplete, serverIsComplete) = (false, false)

    init(client: TLSEngine, server: TLSEngine, chunk: Int = .max) {
        (self.client, self.server, self.chunk) = (client, server, chunk)
    }

    var isComplete: Bool { clientIsComplete && serverIsComplete }

    /// Performs the handshake until no more data moves.
    mutating func advance() {
        for _ in 0..<200_000 {
            (clientIsComplete, clientError) = noted(client.handshake())
            (serverIsComplete, serverError) = noted(server.handshake())
            let up = carry(from: client, to: server)
            if !hasHeardFromServer { firstFlight += up }
            let down = carry(from: server, to: client)
            if !down.isEmpty { hasHeardFromServer = true }
            if up.isEmpty, down.isEmpty { return }
        }
    }

    /// Whether it contains an application data record (RFC 8446, 5.1).
    var firstFlightHasData: Bool {
        var rest = firstFlight[...]
        while rest.count >= 5 {
            let header = Array(rest.prefix(5))
            if header[0] == 23 { return true }
            rest = rest.dropFirst(5 + Int(header[3]) << 8 + Int(header[4]))
        }
        return false
    }

    mutating func shakeHands() throws {
        advance()
        if let error = clientError ?? serverError { throw error }
        guard isComplete else { throw TestFailure(what: "the handshake is not complete") }
    }

    private mutating func noted(_ answer: TLSEngine.HandshakeAnswer) -> (isComplete: Bool, error: TLSError?) {
        switch answer {
        case .complete: return (true, nil)
        case .failed(let error): return (false, error)
        case .awaitingSettings(let question): self.question = question
        case .incomplete, .awaitingTrust, .awaitingWork: break
        }
        return (false, nil)
    }

    /// Lets the program answer the pending question, if there is one.
    mutating func answer() async {
        guard let question else { return }
        self.question = nil
        server.choose(await question.answer())
        advance()
    }

    @discardableResult
    func carry(from source: TLSEngine, to destination: TLSEngine) -> [UInt8] {
        let bytes = Array(source.output.readableBytes.prefix(chunk))
        source.output.consume(bytes.count)
        destination.receive(bytes)
        return bytes
    }

    mutating func write(_ text: String, from side: Side) {
        _ = (side == .client ? client : server).write(text)
        advance()
    }

    func read(on side: Side) -> String {
        (side == .client ? client : server).readAll().text
    }
}

extension TLSResumableSession {
    /// OpenSSL's own encoding, which is the last field of `bytes`, after the format, the scope, five numbers
    /// (no faults) and the certificates.
    var openSSLBytes: [UInt8] {
        var rest = bytes[...]
        func number() -> Int {
            defer { rest = rest.dropFirst(8) }
            return rest.prefix(8).reduce(0) { $0 << 8 | Int($1) }
        }
        func field() -> [UInt8] {
            let count = number()
            defer { rest = rest.dropFirst(count) }
            return Array(rest.prefix(count))
        }
        _ = (field(), field(), number(), number(), number(), number())
        for _ in 0..<number() { _ = field() }
        return field()
    }
}
