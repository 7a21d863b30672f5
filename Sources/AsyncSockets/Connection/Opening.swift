internal import SocketCore

/// The way to a connected descriptor: the lookup of a host, then the attempts to reach its addresses.
///
/// A late answer finds it over, or its attempt gone from the connector. Confined to the turn of the
/// connection that owns it.
final class Opening {
    /// What has happened, in this order.
    enum Step {
        case progressed(ConnectionProgress)
        case connected(SocketDescriptor)
        case failed(AsyncSocketError)
    }

    private enum Phase {
        /// The descriptor of the previous connection is not closed yet: it may hold the port that this one
        /// needs.
        case waiting
        /// nil: the answer is on its way.
        case resolving(Resolver.Lookup?)
        case connecting(Connector)
        case over
    }

    let destination: Destination
    private let loop: EventLoop
    private var phase = Phase.waiting

    init(to destination: Destination, on loop: EventLoop) {
        self.destination = destination
        self.loop = loop
    }

    /// When `expire(at:)` has something to do.
    var deadline: Deadline? {
        if case .connecting(let connector) = phase { connector.deadline } else { nil }
    }

    /// Looks up the host; returns the address when there is nothing to look up: call `connect` with it.
    func resolve(_ answer: @escaping @Sendable (Resolver.Answer) -> Void) -> SocketAddress? {
        switch destination.target {
        case .address(let address): return address
        case .host(let host, let port):
            let query = HostQuery(host: host, port: port, families: destination.policy.families)
            phase = .resolving(nil)
            phase = .resolving(destination.resolver.resolve(query, completion: answer))
            return nil
        }
    }

    /// The lookup has ended.
    func resolved(
        _ answer: Resolver.Answer, _ options: SocketOptionSet, _ deliver: @escaping @Sendable (Int, LoopEvents) -> Void
    ) -> [Step] {
        guard case .resolving = phase else { return [] }
        switch answer {
        case .success(let addresses): return connect(to: addresses, options, deliver)
        case .failure(let error): return [.failed(AsyncSocketError(error))]
        }
    }

    /// Tries addresses.
    ///
    /// - Parameter deliver: Called on the loop when there is something to `handle`, with the number of the
    ///   attempt.
    func connect(
        to addresses: [SocketAddress], _ options: SocketOptionSet, _ deliver: @escaping @Sendable (Int, LoopEvents) -> Void
    ) -> [Step] {
        do throws(NoRoute) {
            let routes = try destination.policy.routes(to: addresses)
            var steps: [Step] = []
            if case .host = destination.target { steps.append(.progressed(.resolved(routes.map(\.destination)))) }
            let connector = Connector(
                routes: routes, delay: destination.policy.attemptDelay, options: options, loop: loop, deliver: deliver)
            phase = .connecting(connector)
            return steps + translate(connector.begin())
        } catch {
            return [.failed(AsyncSocketError(error, destination: destination.name))]
        }
    }

    /// The kernel has events for an attempt.
    func handle(_ events: LoopEvents, ofAttempt number: Int) -> [Step] {
        guard case .connecting(let connector) = phase else { return [] }
        return translate(connector.handle(events, of: number))
    }

    /// The delay before the next attempt is over.
    func expire(at now: Deadline) -> [Step] {
        guard case .connecting(let connector) = phase else { return [] }
        return translate(connector.expire(at: now))
    }

    /// Ends the lookup, or every attempt; nothing of them is left.
    func cancel() {
        switch phase {
        case .resolving(let lookup): lookup?.cancel()
        case .connecting(let connector): connector.cancel()
        case .waiting, .over: break
        }
        phase = .over
    }

    private func translate(_ steps: [Connector.Step]) -> [Step] {
        steps.map { step in
            switch step {
            case .trying(let address): .progressed(.trying(address))
            case .failed(let address, let error):
                .progressed(.failed(address, AsyncSocketError(error, operation: "connect")))
            case .connected(let descriptor): .connected(descriptor)
            case .exhausted(let failures):
                .failed(AsyncSocketError(failedAttempts: failures, destination: destination.name))
            }
        }
    }
}

/// Where a connection goes, and how, as the caller asked: later changes of the socket's configuration do not
/// affect it.
struct Destination: Sendable {
    enum Target: Sendable {
        case host(String, port: UInt16)
        case address(SocketAddress)

        /// Nil in the Unix domain.
        var hostAndPort: (host: String, port: UInt16)? {
            switch self {
            case .host(let host, let port): (host, port)
            case .address(let address): address.host.flatMap { host in address.port.map { (host, $0) } }
            }
        }
    }

    let target: Target
    /// Leads through a proxy, which is then the target; nil: no proxy.
    var tunnel: Tunnel?
    let policy: RoutePolicy
    let resolver: Resolver

    /// The host and port, behind a proxy if there is one. Sessions of TLS are kept for it.
    var endpoint: String {
        if let tunnel { return "\(tunnel.host.lowercased()) \(tunnel.port)" }
        switch target {
        case .host(let host, let port): return "\(host.lowercased()) \(port)"
        case .address(let address): return "\(address)"
        }
    }

    /// The host, behind a proxy if there is one; nil for a path.
    var host: String? { tunnel?.host ?? target.hostAndPort?.host }

    /// The destination in error messages.
    var name: String {
        switch target {
        case .host(let host, _): host
        case .address(let address): "\(address)"
        }
    }
}
