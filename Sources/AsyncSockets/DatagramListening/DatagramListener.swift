public import Logging
internal import SocketBuffers
public import SocketCore
public import SocketTLS
internal import Synchronization

/// The server side of UDP: one port, and a socket of its own for each peer.
///
/// ```swift
/// let listener = try DatagramListener(port: 5684, dtls: .server(identity: identity))
/// try await listener.run { socket in
///     for try await datagram in socket.datagrams { try await socket.send(answer(datagram.data)) }
/// }
/// ```
///
/// A peer is an address and a port, together with the local address that it sends to. Its socket is
/// connected: it hears that peer alone, and is served by a task or by a delegate. Without DTLS a peer appears
/// with its first datagram. Its sender may be forged, so answer strangers with care: see `rateLimit` of
/// `AsyncUDPSocket`, which you set in `configure`. With DTLS a peer appears once it has sent a cookie back,
/// which proves that it receives at its address; before that nothing is kept for it, and it gets no more
/// bytes than it has sent.
///
/// A peer that falls silent does not say so: its socket closes after `idleTimeout`.
///
/// The listener is bound once it is made; datagrams wait in the kernel. It receives from `run` on, or from
/// the first use of `peers`. It ends with `shutdown(within:)`, with the task of `run`, or with the last
/// reference, and is used once. All its peers are served on one event loop: to use several processors for one
/// port, make several listeners with the option `.reusePort`.
public final class DatagramListener: Sendable {
    let hub: DatagramHub
    let reception: Reception<PeerArrival>
    let preparation: PeerPreparation
    let queue = ReadyQueue<AsyncUDPSocket>()

    /// Decides about the certificate of a peer.
    public typealias TrustDecision = @Sendable (PeerTrust) async throws -> Bool

    /// Binds to a port.
    ///
    /// - Parameters:
    ///   - port: The port, of any type of integer; 0 lets the kernel choose a free one, the same for IPv4 and
    ///     IPv6.
    ///   - interface: As for `AsyncUDPSocket.bind(toPort:interface:)`; nil: every interface.
    ///   - dtls: How to use DTLS 1.2; nil: plain datagrams.
    ///   - maximumPeers: See `maximumPeers`.
    ///   - idleTimeout: When no datagram of a peer has come or gone for so long, its socket closes, and what
    ///     waits gets `.idleTimeout`; nil: never. A minute by default. Not during a handshake, which has
    ///     `TLSSettings.handshakeTimeout`. While its task takes nothing it may be twice as long; with DTLS
    ///     datagrams count that are authentic, of which 64 KiB are received ahead of the task.
    ///   - configure: Sets what the listener and every socket get: options, `rateLimit`,
    ///     `maximumDatagramSize`, `logger`. The socket that it gets is only a model.
    ///   - trust: Decides about a client's certificate: see `AsyncUDPSocket.startDTLS(settings:trust:)`.
    /// - Throws: An `AsyncSocketError`: what `AsyncUDPSocket.bind(toPort:interface:)` throws, `.tls` for
    ///   unusable settings, `.badConfiguration` when nothing decides about certificates; and what `configure`
    ///   throws.
    public convenience init(
        port: some BinaryInteger, interface: String? = nil, dtls: TLSServerSettings? = nil, maximumPeers: Int = 10_000,
        idleTimeout: Duration? = .seconds(60), configure: (AsyncUDPSocket) throws -> Void = { _ in },
        trust: TrustDecision? = nil
    ) throws {
        let model = AsyncUDPSocket()
        try configure(model)
        let binding = try model.binding(toPort: AsyncSocketError.port(port, "bind"), interface: interface)
        try self.init(model, binding, dtls, maximumPeers, idleTimeout, trust)
    }

    /// Binds to one address.
    ///
    /// - Throws: What `init(port:interface:dtls:maximumPeers:idleTimeout:configure:trust:)` throws.
    public convenience init(
        address: SocketAddress, dtls: TLSServerSettings? = nil, maximumPeers: Int = 10_000,
        idleTimeout: Duration? = .seconds(60), configure: (AsyncUDPSocket) throws -> Void = { _ in },
        trust: TrustDecision? = nil
    ) throws {
        let model = AsyncUDPSocket()
        try configure(model)
        try self.init(model, model.binding(toAddress: address), dtls, maximumPeers, idleTimeout, trust)
    }

    private init(
        _ model: AsyncUDPSocket, _ binding: DatagramBinding, _ dtls: TLSServerSettings?, _ maximumPeers: Int,
        _ idleTimeout: Duration?, _ trust: TrustDecision?
    ) throws(AsyncSocketError) {
        guard maximumPeers >= 1 else {
            throw .badParameter("bind", "maximumPeers must be at least 1, and is \(maximumPeers)")
        }
        let tls = try dtls.map { (dtls) throws(AsyncSocketError) in try ListenerTLS(dtls, over: .datagrams, trust: trust) }
        let preparation = PeerPreparation(model: model, tls: tls, idleTimeout: idleTimeout)
        let loop = try model.chooseLoop("bind")
        let reception = Reception<PeerArrival>(loop: loop, quota: AcceptQuota(loop: loop))
        let configuration = model.configuration
        let setup = DatagramHub.Setup(
            loop: loop, logger: model.logger, rateLimit: configuration.rateLimit, cookies: try Self.cookies(dtls),
            maximumReceiveSize: configuration.maximumReceiveSize,
            coalesces: configuration.reception.contains(.coalescing),
            accept: { channel, key in
                let arrival = PeerArrival(
                    preparation.makeSocket(over: channel, to: key, on: loop), key.peer.socketAddress)
                reception.arrive(arrival)
                return arrival.connection
            },
            closed: { reception.noteClosed { $0.connection.record.withLock { $0.isClosed } } },
            failed: { [queue] in
                reception.stop()
                queue.stop()
            })
        do throws(SystemError) {
            var options = model.state.withLock { $0.options }
            if dtls != nil, options.value(of: .pathMTUDiscovery) == nil { try options.set(.pathMTUDiscovery, to: .always) }
            hub = DatagramHub(try binding.open(with: options), maximumPeers: maximumPeers, setup)
        } catch {
            throw AsyncSocketError(datagram: error, "bind")
        }
        self.preparation = preparation
        self.reception = reception
    }

    private static func cookies(_ dtls: TLSServerSettings?) throws(AsyncSocketError) -> DTLSCookies? {
        guard dtls != nil else { return nil }
        do throws(TLSError) {
            return try DTLSCookies()
        } catch {
            throw AsyncSocketError(error, operation: "bind")
        }
    }

    deinit {
        close()
        reception.cut()
    }

    // MARK: - Facts

    /// The local addresses: one for each version of IP, IPv4 first.
    public var localAddresses: [SocketAddress] { hub.localAddresses }

    /// The first of the local addresses.
    public var localAddress: SocketAddress? { hub.localAddresses.first }

    /// The port; the one that the kernel chose, if it was to choose one.
    public var localPort: UInt16 { localAddress?.port ?? 0 }

    /// Whether new peers are accepted. False after `shutdown(within:)`, after the task of `run` has been
    /// cancelled, or after receiving has failed permanently.
    public var isListening: Bool { reception.isOpen }

    /// How many peers there are, with those that shake hands.
    public var peerCount: Int { hub.peerCount }

    /// How many peers there may be at a time; 10,000 by default, at least 1.
    ///
    /// At the limit, datagrams from strangers are dropped and counted in `refusedCount` until a peer's socket
    /// closes. With DTLS, a new client replaces an incomplete handshake instead, if there is one: see
    /// `maximumHandshakes`. Lowering the limit does not close the sockets of existing peers.
    public var maximumPeers: Int {
        get { hub.maximumPeers }
        set { hub.maximumPeers = newValue }
    }

    /// How many peers may shake hands at a time: 4,096 by default, at least 1.
    ///
    /// At the limit, a new client replaces the oldest handshake of the source with the most handshakes, so
    /// that no source can shut out other sources. The replaced handshake fails with `.tooManyHandshakes` and
    /// is counted in `refusedCount`. A source is an IPv4 address or an IPv6 `/64`. Lowering the limit does
    /// not cancel handshakes: new clients are dropped until enough handshakes have completed or failed.
    public var maximumHandshakes: Int {
        get { hub.maximumHandshakes }
        set { hub.maximumHandshakes = newValue }
    }

    /// How much memory the datagrams of all peers together may take that their sockets have not taken; 64 MiB
    /// by default. Each counts with its bytes and 256 more, one alone is never too much, and one peer may
    /// have 128 KiB of them.
    ///
    /// Half of it is kept for one datagram of each peer, of at most that half divided by `maximumPeers`, with
    /// the 256 bytes: 3,355 by default. So peers whose tasks are slow do not shut the others out. Datagrams
    /// that do not fit are dropped and counted, in the `dropCount` of the peer, or in `refusedCount` when a
    /// stranger sent them. A delegate has `maximumPendingReceiveBytes` of its socket besides.
    public var maximumPendingReceiveBytes: ByteLimit {
        get { .bytes(hub.mailboxes.limit.load(ordering: .relaxed)) }
        set { hub.mailboxes.limit.store(newValue.count, ordering: .relaxed) }
    }

    /// The number of datagrams from strangers that were dropped because of `maximumPeers`,
    /// `maximumHandshakes` or `maximumPendingReceiveBytes`, plus the number of handshakes that were replaced
    /// at a limit.
    public var refusedCount: Int { hub.counts.refused.load(ordering: .relaxed) }

    /// With DTLS: how many datagrams of strangers were dropped that do not begin a handshake.
    public var ignoredCount: Int { hub.counts.ignored.load(ordering: .relaxed) }

    /// How many datagrams the rate limit has dropped (`AsyncUDPSocket.rateLimit`, set in `configure`).
    ///
    /// With DTLS, the limit applies to strangers and to peers during their handshake. A peer's datagrams are
    /// not limited once its handshake is complete.
    public var rateLimitedCount: Int { hub.counts.rateLimited.load(ordering: .relaxed) }

    /// The logger of the listener and of its sockets, as `configure` has set it.
    public var logger: Logger { preparation.model.logger }

    // MARK: - The end

    /// Ends the listener in order: drops strangers from now on, has the peers finish, and cuts those that
    /// take too long.
    ///
    /// Returns when the tasks of all peers are over; then `run` returns too. Those that are not over in time
    /// are cancelled, which closes their sockets. If the task that calls this is cancelled, they are
    /// cancelled at once, and it returns. Sockets that `peers` has delivered are yours, and go on. The port
    /// is free once the last socket is closed.
    ///
    /// You may call this any number of times: the earliest deadline counts. In a task that serves one of the
    /// listener's peers, this returns immediately, like `beginShutdown(within:)`, because the task would wait
    /// for its own end. In a child task of such a task, call `beginShutdown(within:)`.
    ///
    /// - Parameter time: How long the peers may take from now on; nil: as long as they need.
    public nonisolated(nonsending) func shutdown(within time: Duration? = nil) async {
        beginShutdown(within: time)
        await reception.ended()
    }

    /// Begins what `shutdown(within:)` does, and waits for nothing.
    public func beginShutdown(within time: Duration? = nil) {
        close()
        if let time { reception.cut(after: time) }
    }

    /// Ends accepting.
    func close() {
        reception.stop()
        hub.stopAccepting()
        queue.stop()
    }
}
