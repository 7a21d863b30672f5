internal import Glibc
public import Logging
internal import SocketBuffers
public import SocketCore
public import SocketTLS
internal import Synchronization

/// A UDP server: one port, with a separate socket for each peer.
///
/// ```swift
/// let listener = try DatagramListener(port: 5684, dtls: .server(identity: identity))
/// try await listener.run { socket in
///     for try await datagram in socket.datagrams { try await socket.send(answer(datagram.data)) }
/// }
/// ```
///
/// A peer is identified by its address and port, together with the local address that it sends to. Its socket
/// is connected: it receives only from that peer, and is used by a task or a delegate. Without DTLS, a peer
/// appears with its first datagram. The sender's address may be forged, so reply to strangers with care: set
/// `rateLimit` of `AsyncUDPSocket` in `configure`. With DTLS, a peer appears once it has returned a cookie,
/// which proves that it receives at its address. Until then the listener allocates no memory for the peer and
/// sends it no more bytes than it has received from it.
///
/// UDP does not report that a peer is gone, so a peer's socket closes after `idleTimeout`.
///
/// The initializer binds the listener, and the kernel buffers datagrams from then on. The listener starts
/// receiving when `run` is called or `peers` is first used. It closes when `close(timeout:)` is called,
/// when the task of `run` is cancelled, or when its last reference is released. It cannot be reused. All its
/// peers are served on one event loop. To use several processors for one port, create several listeners with
/// the option `.reusePort`.
public final class DatagramListener: Sendable {
    let hub: DatagramHub
    let reception: Reception<PeerArrival>
    let preparation: PeerPreparation
    let queue = ReadyQueue<AsyncUDPSocket>()

    /// A closure that decides whether to trust a peer's certificate.
    public typealias TrustDecision = @Sendable (PeerTrust) async throws -> Bool

    /// Creates a listener that is bound to a port.
    ///
    /// - Parameters:
    ///   - port: The port, of any integer type. If 0, the kernel chooses a free port, the same for IPv4 and
    ///     IPv6.
    ///   - interface: The interface: see `AsyncUDPSocket.bind(toPort:interface:)`. If `nil`, the listener is
    ///     bound to all interfaces.
    ///   - dtls: The settings for DTLS 1.2. If `nil`, datagrams are plaintext.
    ///   - maximumPeers: See `maximumPeers`.
    ///   - idleTimeout: The idle timeout of each peer, one minute by default. If no datagram is received from
    ///     or sent to a peer for this time, its socket closes and pending operations fail with
    ///     `.idleTimeout`. `nil` means no limit. Handshakes are limited by
    ///     `TLSSettings.handshakeTimeout` instead. If the peer's task does not receive, closing may take
    ///     twice as long. With DTLS, only authentic datagrams count, and up to 64 KiB of them are received
    ///     ahead of the task.
    ///   - trust: Decides whether to trust a client's certificate: see
    ///     `AsyncUDPSocket.startDTLS(settings:trust:)`.
    ///   - configure: Configures the listener and all its sockets: options, `rateLimit`,
    ///     `maximumDatagramSize`, `logger`. The socket passed to the closure serves only as a model.
    /// - Throws: An `AsyncSocketError`: the errors of `AsyncUDPSocket.bind(toPort:interface:)`, `.tls` for
    ///   unusable settings, `.badConfiguration` if the settings require a trust decision and `trust` is
    ///   `nil`. Also rethrows errors of `configure`.
    public convenience init(
        port: some BinaryInteger, interface: String? = nil, dtls: TLSServerSettings? = nil, maximumPeers: Int = 10_000,
        idleTimeout: Duration? = .seconds(60), trust: TrustDecision? = nil,
        configure: (AsyncUDPSocket) throws -> Void = { _ in }
    ) throws {
        let model = AsyncUDPSocket()
        try configure(model)
        let binding = try model.binding(toPort: AsyncSocketError.port(port, .bind), interface: interface)
        try self.init(model, .address(binding), dtls, maximumPeers, idleTimeout, trust)
    }

    /// Creates a listener that is bound to one address.
    ///
    /// - Throws: The errors of `init(port:interface:dtls:maximumPeers:idleTimeout:trust:configure:)`.
    public convenience init(
        address: SocketEndpoint, dtls: TLSServerSettings? = nil, maximumPeers: Int = 10_000,
        idleTimeout: Duration? = .seconds(60), trust: TrustDecision? = nil,
        configure: (AsyncUDPSocket) throws -> Void = { _ in }
    ) throws {
        let model = AsyncUDPSocket()
        try configure(model)
        try self.init(model, .address(model.binding(toAddress: address)), dtls, maximumPeers, idleTimeout, trust)
    }

    /// Creates a listener from sockets that a service manager such as systemd (`ListenDatagram=`) or the
    /// process that this process replaces (`HotRestart`) has opened.
    ///
    /// Pass at least one descriptor of a socket that is bound and not connected. If a descriptor cannot be
    /// used, the descriptors before it in the list are closed.
    ///
    /// - Throws: `.system` with an `errno`: EINVAL if the list is empty or a socket is not bound, EISCONN if
    ///   a socket is connected, EBADF if a descriptor has already been taken, ESOCKTNOSUPPORT if a descriptor
    ///   is not a UDP socket, or the kernel's error if it rejects an option; otherwise the same errors as
    ///   `init(port:interface:dtls:maximumPeers:idleTimeout:trust:configure:)`.
    public convenience init(
        inherited descriptors: [InheritedDescriptor], dtls: TLSServerSettings? = nil, maximumPeers: Int = 10_000,
        idleTimeout: Duration? = .seconds(60), trust: TrustDecision? = nil,
        configure: (AsyncUDPSocket) throws -> Void = { _ in }
    ) throws {
        let model = AsyncUDPSocket()
        try configure(model)
        try self.init(model, .inherited(descriptors), dtls, maximumPeers, idleTimeout, trust)
    }

    private enum Place {
        case address(DatagramBinding)
        case inherited([InheritedDescriptor])

        func open(with options: SocketOptionSet, _ reception: DatagramReception) throws(SystemError) -> [DatagramDescriptor] {
            switch self {
            case .address(let binding): return try binding.open(with: options)
            case .inherited(let inherited):
                guard !inherited.isEmpty else {
                    throw SystemError("recvmmsg", errno: EINVAL, detail: "pass at least one inherited descriptor")
                }
                return try inherited.map { (inherited) throws(SystemError) in
                    let descriptor = try inherited.takeDatagramSocket(setting: options, isServer: true)
                    // The other process may still be receiving, and might not expect coalesced datagrams.
                    descriptor.prepareAdopted(reception.subtracting(.coalescing))
                    return descriptor
                }
            }
        }
    }

    private init(
        _ model: AsyncUDPSocket, _ place: Place, _ dtls: TLSServerSettings?, _ maximumPeers: Int,
        _ idleTimeout: Duration?, _ trust: TrustDecision?
    ) throws(AsyncSocketError) {
        guard maximumPeers >= 1 else {
            throw .badParameter(.bind, "maximumPeers must be at least 1, but is \(maximumPeers)")
        }
        let tls = try dtls.map { (dtls) throws(AsyncSocketError) in try ListenerTLS(dtls, over: .datagrams, trust: trust) }
        let preparation = PeerPreparation(model: model, tls: tls, idleTimeout: idleTimeout)
        let loop = try model.chooseLoop(.bind)
        let reception = Reception<PeerArrival>(loop: loop, quota: AcceptQuota(loop: loop))
        let configuration = model.configuration
        let options = model.state.withLock { $0.options }
        let setup = DatagramHub.Setup(
            loop: loop, logger: model.logger, rateLimit: configuration.rateLimit, cookies: try Self.cookies(dtls),
            options: options, maximumReceiveSize: configuration.maximumReceiveSize, reception: configuration.reception,
            accept: { channel, key in
                let arrival = PeerArrival(
                    preparation.makeSocket(over: channel, to: key, on: loop), key.peer.socketAddress)
                reception.arrive(arrival)
                return arrival.connection
            },
            taskCount: { reception.unfinishedCount },
            closed: { reception.noteClosed { $0.connection.record.withLock { $0.isClosed } } },
            failed: { [queue] in
                reception.noteLastArrival()
                queue.stop()
            })
        do throws(SystemError) {
            let descriptors = try place.open(with: options, configuration.reception)
            if dtls != nil, options.value(of: .pathMTUDiscovery) == nil {
                for descriptor in descriptors { try descriptor.setIfPossible(.pathMTUDiscovery, to: .always) }
            }
            hub = DatagramHub(descriptors, maximumPeers: maximumPeers, setup)
        } catch {
            throw AsyncSocketError(datagram: error, .bind)
        }
        self.preparation = preparation
        self.reception = reception
    }

    private static func cookies(_ dtls: TLSServerSettings?) throws(AsyncSocketError) -> DTLSCookies? {
        guard dtls != nil else { return nil }
        do throws(TLSError) {
            return try DTLSCookies()
        } catch {
            throw AsyncSocketError(error, operation: .bind)
        }
    }

    deinit {
        stopAccepting()
        reception.cut()
    }

    // MARK: - Properties

    /// See `ServingListener.localAddresses`.
    public var localAddresses: [SocketEndpoint] { hub.localAddresses }

    /// See `ServingListener.isListening`.
    public var isListening: Bool { reception.isOpen }

    /// The maximum number of peers at a time; 10,000 by default, at least 1.
    ///
    /// At the limit, a new peer replaces the oldest unproven peer of the source with the most unproven peers,
    /// so that no source can shut out other sources. A source is an IPv4 address or an IPv6 `/64`. A peer is
    /// proven when its DTLS handshake is complete or, without DTLS, when it sends another datagram, either
    /// after the listener has sent it one or at least one second after its own first. The socket of the
    /// replaced peer closes with `.tooManyConnections` (with DTLS, `.tooManyHandshakes`), and the replacement
    /// is counted in `snapshot`. If all peers are proven, or if many replaced peers have unfinished tasks,
    /// datagrams from strangers are dropped and counted until a peer's socket closes. Lowering the limit does
    /// not close the sockets of existing peers.
    public var maximumPeers: Int {
        get { hub.maximumPeers }
        set { hub.maximumPeers = newValue.clamped(to: 1...) }
    }

    /// The maximum number of peers of one source at a time, at least 1. By default, four fifths of the
    /// current `maximumPeers`, so that no source can shut out other sources.
    ///
    /// At the limit, a new peer replaces the oldest unproven peer of its source. If all peers of the source
    /// are proven, its datagrams from strangers are dropped. Both are counted in `snapshot`. Lowering the
    /// limit does not close the sockets of existing peers. If one address has all your peers, for example a
    /// gateway, set this to `maximumPeers`; the memory for datagrams then has no limit for each source
    /// either.
    ///
    /// Without DTLS, the source of a datagram can be forged: see <doc:Overload>.
    public var maximumPeersPerSource: Int {
        get { hub.maximumPeersPerSource }
        set { hub.maximumPeersPerSource = newValue.clamped(to: 1...) }
    }

    /// The maximum number of incomplete handshakes at a time; 4,096 by default, at least 1.
    ///
    /// At the limit, a new client replaces the oldest handshake of the source with the most handshakes, so
    /// that no source can shut out other sources. The replaced handshake fails with `.tooManyHandshakes` and
    /// is counted in `snapshot`. A source is an IPv4 address or an IPv6 `/64`. Lowering the limit does
    /// not cancel handshakes: new clients are dropped until enough handshakes have completed or failed.
    public var maximumHandshakes: Int {
        get { hub.maximumHandshakes }
        set { hub.maximumHandshakes = newValue.clamped(to: 1...) }
    }

    /// The maximum amount of memory for datagrams that the peers' sockets have not taken yet, for all peers
    /// together; 64 MiB by default, at least 65,536. Each datagram is charged its size plus 256 bytes. A
    /// single datagram is always accepted, and a single peer may use at most 128 KiB.
    ///
    /// Half of the memory is reserved for one datagram per peer, so that peers with slow tasks do not shut
    /// out other peers. A group of sources may use at most four fifths of the other half (an unpredictable
    /// hash divides the sources into 128 groups). To use the reserve, a datagram must not exceed that half
    /// divided by `maximumPeers`, including the 256 bytes: 3,355 bytes by default. Datagrams that do not fit
    /// are dropped. They are counted in `dropped` of the peer's socket, or in `snapshot` if a stranger sent
    /// them. For sockets with a delegate, the socket's `maximumPendingReceiveBytes` also applies.
    public var maximumTotalPendingReceiveBytes: Int {
        get { hub.mailboxes.limit.load(ordering: .relaxed) }
        set { hub.mailboxes.limit.store(newValue.clamped(to: 65_536...), ordering: .relaxed) }
    }

    /// How many leading bits of an address identify a source. Defaults to all 32 bits of an IPv4 address and
    /// the first 64 bits of an IPv6 address. A change applies to later peers. `AsyncUDPSocket.rateLimit`
    /// always uses the default.
    public var sourcePrefix: SourcePrefix {
        get { hub.sourcePrefix }
        set { hub.sourcePrefix = newValue }
    }

    /// See `ServingListener.snapshot`.
    public var snapshot: ServerSnapshot { hub.snapshot(waitingCount: reception.waitingCount) }

    /// See `ServingListener.logger`.
    public var logger: Logger { preparation.model.logger }
}

extension DatagramListener: HandoverListener {
    /// See `ServingListener.replaceTLS(_:)`.
    public func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError) {
        guard let tls = preparation.tls else {
            throw .badConfiguration(.bind, "the listener has no DTLS settings to replace: create it with the dtls parameter")
        }
        try tls.replace(settings)
    }

    // MARK: - Closing

    /// See `ServingListener.close(timeout:)`.
    public nonisolated(nonsending) func close(timeout: Duration? = .seconds(30)) async {
        beginClosing(timeout: timeout)
        await reception.ended()
    }

    /// See `ServingListener.beginClosing(timeout:)`.
    public func beginClosing(timeout: Duration? = .seconds(30)) {
        stopAccepting()
        if let timeout { reception.cut(after: timeout) }
    }

    /// See `ServingListener.untilClosing(_:)`.
    public nonisolated(nonsending) func untilClosing<Result: Sendable>(
        _ body: @escaping @Sendable () async throws -> Result?
    ) async throws -> Result? {
        try await reception.untilStopped(body)
    }

    // MARK: - Handover

    var socketCount: Int { hub.ownDescriptors.count }

    func duplicateSockets(into numbers: inout [CInt]) throws(SystemError) {
        for descriptor in hub.ownDescriptors { numbers.append(try descriptor.socket.duplicate()) }
    }

    var acceptors: [Acceptor] { [] }

    var cookieSecrets: [UInt8]? { hub.cookies?.record }

    func adoptCookieSecrets(_ secrets: [UInt8]) -> Bool { hub.cookies?.adopt(secrets) ?? true }

    nonisolated(nonsending) func leaveSockets() async { await hub.leaveSockets() }

    nonisolated(nonsending) func resumeSockets() async { await hub.resumeSockets() }

    /// Stops accepting peers.
    func stopAccepting() {
        reception.stop()
        hub.stopAccepting()
        // The loop may be adding a peer.
        reception.loop.run { [reception] in reception.noteLastArrival() }
        queue.stop()
    }
}
