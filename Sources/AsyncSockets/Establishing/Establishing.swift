// Rules of establishing:
//  1. Establishing finishes once: with a descriptor connected to the target, with an error, or because
//     `cancel` was called.
//  2. A new descriptor is first registered with the loop. If this fails, the descriptor is closed and no
//     event is delivered for it.
//  3. With a proxy, the transport is connected before the connection is established. Until the connection is
//     established, only the negotiation (`Tunnel`) sends and receives bytes.
//  4. The time limit starts with the call to `connect` and covers all steps.

internal import SocketBuffers
internal import SocketCore

/// Establishes a connection: looks up the host, connects, and negotiates with a proxy.
///
/// Confined to the turn of the connection.
final class Establishing {
    enum Step {
        /// No progress is possible until another event.
        case incomplete
        /// Continue in another turn.
        case more
        /// The channel is connected to the target. The owner completes the waiter for the connection or,
        /// without a waiter, delivers the event.
        case established(DelegateEvent, peer: SocketEndpoint)
        /// The channel belongs to an already connected descriptor. No waiter is completed and no event is
        /// delivered.
        case adopted
        case fails(AsyncSocketError)
    }

    @exclusivity(unchecked) private var opening: Opening
    /// Set during the negotiation with a proxy.
    @exclusivity(unchecked) private var tunnel: Tunnel?
    /// The address to which the transport is connected. It is stored because the kernel no longer reports it
    /// after the peer has reset the connection.
    @exclusivity(unchecked) private var peer: SocketEndpoint?
    private let seconds: Double
    private let end: Deadline?

    init(to destination: Destination, timeout seconds: Double, on loop: SocketEventLoop) {
        self.seconds = seconds
        end = Deadline(after: seconds)
        opening = Opening(to: destination, on: loop)
    }

    /// Starts to establish the connection. Called after the descriptor of the socket's previous connection
    /// has been closed.
    func begin(_ data: DataPath, _ owner: any PartOwner) -> Step {
        owner.note("connecting", ["to": "\(opening.destination.name)"])
        let address = opening.resolve { [weak owner] in owner?.post(.establishing(.resolved($0))) }
        guard let address else { return .incomplete }
        return follow(opening.connect(to: [address], Self.options(owner), Self.reports(to: owner)), data, owner)
    }

    /// Handles a lookup result or an event of an attempt.
    func receive(_ news: EstablishingNews, _ data: DataPath, _ owner: any PartOwner) -> Step {
        switch news {
        case .resolved(let answer):
            follow(opening.resolved(answer, Self.options(owner), Self.reports(to: owner)), data, owner)
        case .attempt(let number, let events): follow(opening.handle(events, ofAttempt: number), data, owner)
        }
    }

    var deadline: Deadline? { .earlier(end, opening.deadline) }

    func expire(at now: Deadline, _ data: DataPath, _ owner: any PartOwner) -> Step {
        if let end, end <= now { return .fails(naming(.timeout(.connectTimeout, .connect, seconds: seconds))) }
        return follow(opening.expire(at: now), data, owner)
    }

    /// Adds the name of the unresponsive host or proxy to a timeout error.
    func naming(_ error: AsyncSocketError) -> AsyncSocketError {
        guard error.code == .connectTimeout, error.fault == .peer else { return error }
        var named = error
        named.message += ": \(tunnel.map { "the \($0.proxy)" } ?? "\"\(opening.destination.name)\"") did not respond"
        return named
    }

    /// Cancels the lookup and all attempts, and releases their resources.
    func cancel() {
        opening.cancel()
    }

    private static func options(_ owner: any PartOwner) -> SocketOptionSet { owner.record.withLock { $0.live.options } }

    private static func reports(to owner: any PartOwner) -> @Sendable (Int, LoopEvents) -> Void {
        { [weak owner] in owner?.post(.establishing(.attempt($0, $1))) }
    }

    private func follow(_ steps: [Opening.Step], _ data: DataPath, _ owner: any PartOwner) -> Step {
        for step in steps {
            switch step {
            case .progressed(let progress): owner.events.append(.progressed(progress))
            case .connected(let descriptor, let peer): return didConnect(descriptor, peer, data, owner)
            case .failed(let error): return .fails(error)
            }
        }
        return .incomplete
    }

    /// Called when the transport is connected, before any event is delivered.
    private func didConnect(
        _ descriptor: SocketDescriptor, _ peer: SocketEndpoint, _ data: DataPath, _ owner: any PartOwner
    ) -> Step {
        do throws(AsyncSocketError) {
            try Self.open(descriptor, of: peer, .connect, data, owner)
        } catch {
            return .fails(error)
        }
        owner.events.append(.progressed(.connected(peer)))
        tunnel = opening.destination.tunnel
        self.peer = peer
        guard tunnel == nil else { return .incomplete }
        let event =
            peer.unixPath.map { DelegateEvent.didConnectToPath($0) }
            ?? .didConnect(host: peer.host ?? "\(peer)", port: peer.port ?? 0)
        return .established(event, peer: peer)
    }

    /// Exchanges messages with the proxy as far as possible.
    func negotiate(_ data: DataPath) -> Step {
        guard let channel = data.channel, let peer, var tunnel else { return .incomplete }
        defer { self.tunnel = tunnel }
        switch tunnel.negotiate(over: channel, data.reads.preBuffer) {
        case .incomplete: return .incomplete
        case .more: return .more
        case .failed(let error): return .fails(error)
        case .established: return .established(.didConnect(host: tunnel.host, port: tunnel.port), peer: peer)
        }
    }

    // MARK: - Descriptors

    /// Adopts a connected descriptor, such as an accepted one.
    static func adopt(
        _ descriptor: SocketDescriptor, _ data: DataPath, _ owner: any PartOwner
    ) -> Step {
        do throws(AsyncSocketError) {
            try open(descriptor, of: owner.record.remoteAddress ?? descriptor.remoteAddress, .accept, data, owner)
            return .adopted
        } catch {
            return .fails(error)
        }
    }

    private static func open(
        _ descriptor: SocketDescriptor, of peer: SocketEndpoint?, _ operation: AsyncSocketError.Operation, _ data: DataPath,
        _ owner: any PartOwner
    ) throws(AsyncSocketError) {
        do throws(SystemError) {
            try owner.watch(descriptor)
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
        // Sets TCP_NODELAY, unless the caller has explicitly set or cleared it.
        let options = options(owner)
        if options.isEmpty || options.value(of: .noDelay) == nil { descriptor.setNoDelay() }
        data.open(ByteChannel(descriptor, of: peer?.family))
    }
}
