internal import SocketCore

/// The steps that lead to a connected descriptor: the lookup of a host, then the attempts to connect to its
/// addresses.
///
/// Late results have no effect, because the phase is `.over` or the connector no longer has the attempt.
struct Opening {
    /// An event on the way to a connected descriptor. Arrays of steps are in chronological order.
    enum Step {
        case progressed(ConnectionProgress)
        case connected(SocketDescriptor, peer: SocketEndpoint)
        case failed(AsyncSocketError)
    }

    private enum Phase {
        /// The descriptor of the previous connection is still open. It may occupy the port that this
        /// connection needs.
        case waiting
        /// The lookup, or `nil` if no lookup is needed and the result has already been posted.
        case resolving(Resolver.Lookup?)
        case connecting(Connector)
        case over
    }

    let destination: Destination
    private let loop: SocketEventLoop
    private var phase = Phase.waiting

    init(to destination: Destination, on loop: SocketEventLoop) {
        self.destination = destination
        self.loop = loop
    }

    /// When `expire(at:)` must be called.
    var deadline: Deadline? {
        if case .connecting(let connector) = phase { connector.deadline } else { nil }
    }

    /// Looks up the host. If the target is an address, returns it immediately; call `connect` with it.
    mutating func resolve(_ answer: @escaping @Sendable (Resolver.Answer) -> Void) -> SocketEndpoint? {
        switch destination.target {
        case .address(let address): return address
        case .host(let host, let port):
            let query = HostQuery(host: host, port: port, families: destination.policy.families)
            phase = .resolving(nil)
            phase = .resolving(destination.resolver.resolve(query, completion: answer))
            return nil
        }
    }

    mutating func resolved(
        _ answer: Resolver.Answer, _ options: SocketOptionSet, _ deliver: @escaping @Sendable (Int, LoopEvents) -> Void
    ) -> [Step] {
        guard case .resolving = phase else { return [] }
        switch answer {
        case .success(let addresses): return connect(to: addresses, options, deliver)
        case .failure(let error): return [.failed(AsyncSocketError(error))]
        }
    }

    /// Starts attempts to connect to addresses.
    ///
    /// - Parameter deliver: Called on the loop with the number of an attempt and its events, to be passed to
    ///   `handle`.
    mutating func connect(
        to addresses: [SocketEndpoint], _ options: SocketOptionSet, _ deliver: @escaping @Sendable (Int, LoopEvents) -> Void
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

    func handle(_ events: LoopEvents, ofAttempt number: Int) -> [Step] {
        guard case .connecting(let connector) = phase else { return [] }
        return translate(connector.handle(events, of: number))
    }

    /// Continues after the delay before the next attempt.
    func expire(at now: Deadline) -> [Step] {
        guard case .connecting(let connector) = phase else { return [] }
        return translate(connector.expire(at: now))
    }

    /// Cancels the lookup and all attempts, and releases their resources.
    mutating func cancel() {
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
                .progressed(.failed(address, AsyncSocketError(error, operation: .connect)))
            case .connected(let descriptor, let peer): .connected(descriptor, peer: peer)
            case .exhausted(let failures):
                .failed(AsyncSocketError(failedAttempts: failures, destination: destination.name))
            }
        }
    }
}
