import AsyncSocketsTesting
import SocketTLS
import Testing

extension Fixture {
    /// The server supports TLS 1.2 and 1.3, and sends two tickets.
    static func resuming() throws -> Fixture {
        var fixture = try Fixture()
        fixture.server.minimumVersion = .tls12
        fixture.server.maximumVersion = nil
        fixture.server.sessionTickets = .issued(2)
        return fixture
    }

    /// Returns a server that shares its context with others that have the same settings.
    func engine(_ settings: TLSServerSettings? = nil) throws -> TLSEngine {
        let settings = settings ?? server
        return try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
    }
}

extension RawPeer {
    /// Checks that both sides agree on whether the session was resumed, and that data arrives afterwards.
    func expectResumption(_ expected: Bool, by server: TLSEngine) {
        #expect(isResumed == expected)
        #expect(server.session?.isResumed == expected)
        send("hello")
        carryTo(server)
        #expect(server.readAll().text == "hello")
    }
}
