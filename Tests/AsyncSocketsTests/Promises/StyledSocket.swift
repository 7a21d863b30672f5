import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport

/// How a program uses a socket.
enum Style: CaseIterable, Sendable {
    case task, delegate
}

/// A connected socket with the same methods for both styles. Each call returns the result or throws the
/// error.
struct StyledSocket: Sendable {
    let socket: AsyncSocket
    private let recorder: Recorder?

    /// The end of a connection without an error.
    struct Ended: Error {}

    init(_ style: Style, adopting peer: RawSocket) throws {
        switch style {
        case .task: (socket, recorder) = (try AsyncSocket(adopting: peer.duplicate()), nil)
        case .delegate:
            let recorder = Recorder()
            (socket, self.recorder) = (try AsyncSocket(adopting: peer.duplicate(), inlineDelegate: recorder), recorder)
        }
    }

    /// Returns two sockets connected over TCP.
    static func pair(_ style: Style, through listener: RawSocket) async throws -> (StyledSocket, StyledSocket) {
        let client = try await StyledSocket(style, connectingTo: listener.localPort)
        return (client, try StyledSocket(style, adopting: listener.accepted()))
    }

    /// Returns a socket and the raw other end for an attack. Nothing else keeps either end open.
    static func attacked(_ style: Style) throws -> (attacker: RawSocket, victim: StyledSocket) {
        let (attacker, victim) = try RawSocket.pair()
        return (attacker, try StyledSocket(style, adopting: victim))
    }

    private init(_ style: Style, connectingTo port: UInt16) async throws {
        switch style {
        case .task:
            (socket, recorder) = (AsyncSocket(), nil)
            try await socket.connect(to: "127.0.0.1", port: port)
        case .delegate:
            let recorder = Recorder()
            (socket, self.recorder) = (AsyncSocket(inlineDelegate: recorder), recorder)
            try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
            guard case .connected = try await next(recorder) else { throw Unexpected(description: "connect") }
        }
    }

    func startTLS(_ settings: TLSSettings<some TLSRole.Side>) async throws {
        guard let recorder else {
            try await socket.startTLS(settings: settings)
            return
        }
        try socket.beginTLS(settings: settings)
        guard case .secured = try await next(recorder) else { throw Unexpected(description: "startTLS") }
    }

    func startTLS(
        as client: StartTLSClient, _ settings: TLSClientSettings, dialogueTimeout: Duration = .patient
    ) async throws {
        guard let recorder else {
            try await socket.startTLS(as: client, settings: settings, dialogueTimeout: dialogueTimeout)
            return
        }
        try socket.beginTLS(as: client, settings: settings, dialogueTimeout: dialogueTimeout)
        guard case .secured = try await next(recorder) else { throw Unexpected(description: "startTLS") }
    }

    func acceptStartTLS(
        as server: StartTLSServer, _ settings: TLSServerSettings, dialogueTimeout: Duration = .patient
    ) async throws {
        guard let recorder else {
            try await socket.acceptStartTLS(as: server, settings: settings, dialogueTimeout: dialogueTimeout)
            return
        }
        try socket.beginAcceptingStartTLS(as: server, settings: settings, dialogueTimeout: dialogueTimeout)
        guard case .secured = try await next(recorder) else { throw Unexpected(description: "acceptStartTLS") }
    }

    func readLine() async throws -> String? {
        guard let recorder else { return try await socket.readLine() }
        socket.readData(to: Data("\n"), withTimeout: .patient, tag: 1)
        guard case .read(let data, _) = try await next(recorder) else { return nil }
        return String(decoding: data.dropLast(), as: UTF8.self)
    }

    func write(_ text: String) async throws {
        guard let recorder else { return try await socket.write(text) }
        socket.write(Data(text), tag: 2)
        _ = try await next(recorder)
    }

    /// Whether reads and writes fail, and no unexpected event was delivered.
    var isOver: Bool {
        get async {
            guard let recorder else {
                let (reading, writing) = (
                    await outcome { try await socket.readLine() }, await outcome { try await socket.write("a secret\n") }
                )
                return reading != .served && writing != .served
            }
            socket.readData(withTimeout: .patient, tag: 3)
            socket.write(Data("a secret\n"), tag: 4)
            return !socket.isConnected && recorder.unread.isEmpty
        }
    }

    /// Returns the next event of a delegate's socket.
    func nextEvent() async throws -> Told {
        guard let recorder else { throw Unexpected(description: "a task's socket has no events") }
        return try await next(recorder)
    }

    private func next(_ recorder: Recorder) async throws -> Told {
        let told = await recorder.next()
        guard case .disconnected(let error) = told else { return told }
        throw error ?? Ended()
    }

    /// Returns the error of a call, or nil if it succeeds.
    static func refusal(_ call: () async throws -> Void) async throws -> AsyncSocketError? {
        do {
            try await call()
            return nil
        } catch let error as AsyncSocketError {
            return error
        }
    }
}
