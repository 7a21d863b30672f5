import AsyncSocketsTesting
import SocketBuffers
import SocketTLS

/// Returns the latest session for any key, even if it has expired.
final class CarelessStore: TLSSessionStore {
    private let contents = Locked((sessions: [TLSResumableSession](), handedOut: 0))

    init(_ sessions: [TLSResumableSession] = []) {
        contents.withLock { $0.sessions = sessions }
    }

    /// The number of sessions it has returned.
    var handedOut: Int { contents.withLock { $0.handedOut } }

    func removeAll() {
        contents.withLock { $0.sessions = [] }
    }

    func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey) {
        contents.withLock { $0.sessions.append(session) }
    }

    func take(for key: TLSSessionStoreKey) -> TLSResumableSession? {
        contents.withLock {
            let session = $0.sessions.popLast()
            if session != nil { $0.handedOut += 1 }
            return session
        }
    }
}

extension Fixture {
    /// Returns a connection to an endpoint after the handshake, if it succeeded. The server has written only
    /// `greeting`, which is sent with its tickets.
    func connection(
        as settings: TLSClientSettings? = nil, to context: TLSContext? = nil, greeting: String? = "!"
    ) throws -> EarlyConversation {
        let settings = settings ?? client
        let client = try TLSEngine(context: TLSContext.context(for: settings), settings: settings, endpoint: "here 1")
        let server = try TLSEngine(context: context ?? TLSContext.context(for: server), settings: server)
        var conversation = EarlyConversation(client: client, server: server)
        conversation.advance()
        if let greeting, conversation.isComplete {
            conversation.write(greeting, from: .server)
            guard conversation.read(on: .client) == greeting else { throw TestFailure(what: "greeting") }
        }
        return conversation
    }
}
