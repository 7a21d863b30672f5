internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// One process in a series of relays that take over from each other.
struct RelayGeneration: Sendable {
    let status: ListenAddress?
    /// The sockets of the previous process.
    let relay: [InheritedDescriptor]
    let inheritedStatus: [InheritedDescriptor]
    private let restart: HotRestart?

    /// Takes over from a running relay.
    init(_ operation: RelayOperation) async throws {
        status = operation.status
        restart = if let path = operation.hotRestart { try await HotRestart(path: path) } else { nil }
        relay = restart?.descriptors(named: "relay") ?? []
        inheritedStatus = restart?.descriptors(named: "status") ?? []
    }

    var ticketKeys: (any TLSTicketKeySource)? { restart?.ticketKeys }

    /// Replaces the previous process.
    func takeOver(_ listener: SocketListener, _ status: RelayStatus?) async throws {
        var listeners = ["relay": listener]
        if let status { listeners["status"] = status.listener }
        try await restart?.takeOver(listeners)
    }

    /// Offers the sockets to the next process.
    func untilReplaced(grace: Duration, _ reporter: Reporter) async throws {
        if try await restart?.untilReplaced(closeTimeout: grace) == true { reporter.note("another process has taken over") }
    }
}

/// Writes the state of a relay as JSON to each client of a Unix-domain socket.
struct RelayStatus: Sendable {
    let listener: SocketListener
    private let relay: SocketListener

    init(
        _ address: ListenAddress, inherited: [InheritedDescriptor], of relay: SocketListener, _ reporter: Reporter
    ) throws {
        listener = try address.listen(inherited: inherited, tls: nil, maximumConnections: 64, reporter)
        self.relay = relay
    }

    func run() async throws {
        try await listener.run(idleTimeout: .seconds(10)) { client in
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
            try await client.write(try encoder.encode(relay.snapshot) + Data("\n".utf8))
        }
    }
}
