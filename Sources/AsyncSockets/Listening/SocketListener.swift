public import Logging
internal import SocketBuffers
public import SocketCore
public import SocketTLS

/// A TCP or Unix-domain server for tasks. It accepts connections and serves each one in its own task.
///
/// ```swift
/// let listener = try SocketListener(port: 8443, tls: .server(identity: identity))
/// try await listener.run { socket in
///     for try await bytes in socket.chunks { try await socket.write(bytes) }
/// }
/// ```
///
/// The initializer binds the addresses and starts listening, so `localAddress` and `localPort` are known
/// immediately and connections queue in the kernel's backlog. The listener accepts connections once `run` is
/// called or the first element of `connections` is requested. It stops after `close(timeout:)`, when the
/// task of `run` is cancelled, or when the last reference is released. A listener can be used only once.
public final class SocketListener: Sendable {
    let listener: Listener
    let reception: Reception<AcceptedConnection>
    let preparation: Preparation
    let queue = SocketQueue()
    private let rate = Locked<SourceRateLimit?>(nil)

    /// The maximum number of accepted connections that have not been taken by a task yet.
    private static let aheadLimit = 64

    /// Listens on a port.
    ///
    /// - Parameters:
    ///   - port: The port, as any integer type. With 0 the kernel chooses a free port, which is the same for
    ///     IPv4 and IPv6.
    ///   - interface: An interface name (`eth0`, for all its addresses), an address (`127.0.0.1`, `::1`), or
    ///     `localhost` or `loopback` for both loopback addresses. `nil` listens on every interface.
    ///   - tls: The TLS settings for connections that use TLS from the first byte. If `nil`, connections
    ///     start without TLS and can be upgraded later with `startTLS(settings:trust:)`.
    ///   - proxyProtocol: Which connections start with a PROXY header. `nil` means no connection does.
    ///   - maximumConnections: See `maximumConnections`.
    ///   - trust: Decides whether to trust a client's certificate. See `startTLS(settings:trust:)`.
    ///   - configure: Configures the listener and every accepted socket: options, `isIPv6Enabled`,
    ///     `writeHighWaterMark`, `logger`. The socket passed to the closure is only a model and never
    ///     connects.
    /// - Throws: An `AsyncSocketError`: `.badParameter` if the interface does not exist, the port is out of
    ///   range, or `maximumConnections` is below 1; `.tls` if the settings cannot be used;
    ///   `.badConfiguration` if the IP versions of all addresses are disabled, or if neither the settings nor
    ///   `trust` verify certificates; `.system` with an `errno` if listening on an address fails. Rethrows
    ///   the errors of `configure`.
    public convenience init(
        port: some BinaryInteger, interface: String? = nil, tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil,
        maximumConnections: Int = 10_000,
        trust: TrustDecision? = nil, configure: (AsyncSocket) throws -> Void = { _ in }
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        let port = try AsyncSocketError.port(port, .listen)
        try self.init(
            model, tls, trust, proxyProtocol, on: .addresses(model.configuration.listenAddresses(of: interface, port: port)))
    }

    /// Listens on a single address: IPv4, IPv6, a file system path, an abstract name (unix(7)), or a vsock
    /// port of this virtual machine.
    ///
    /// With port 0 the kernel chooses a free port. An IPv6 address does not accept IPv4 connections.
    ///
    /// - Throws: The same errors as
    ///   `init(port:interface:tls:proxyProtocol:maximumConnections:trust:configure:)`.
    public convenience init(
        address: SocketEndpoint, tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil,
        maximumConnections: Int = 10_000,
        trust: TrustDecision? = nil, configure: (AsyncSocket) throws -> Void = { _ in }
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        try self.init(model, tls, trust, proxyProtocol, on: .addresses([address]))
    }

    /// Listens on a Unix-domain socket.
    ///
    /// See `AsyncSocket.accept(onPath:)` for how an existing file at the path is treated and which users can
    /// connect. The path has 1 to 107 bytes of UTF-8 without a zero byte (unix(7)). It is never truncated.
    ///
    /// - Throws: `.badParameter` for an invalid path; `.system` with `EADDRINUSE` if the path is in use;
    ///   otherwise the same errors as
    ///   `init(port:interface:tls:proxyProtocol:maximumConnections:trust:configure:)`.
    public convenience init(
        path: String, tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil, maximumConnections: Int = 10_000,
        trust: TrustDecision? = nil, configure: (AsyncSocket) throws -> Void = { _ in }
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        try self.init(model, tls, trust, proxyProtocol, on: .addresses([SocketEndpoint.ofSocket(at: path, .listen)]))
    }

    /// Accepts connections from listening sockets that were opened by a service manager such as systemd, or
    /// by the process that this process replaces (`HotRestart`):
    /// `SocketListener(inherited: try InheritedDescriptor.claim(named: "web"))`.
    ///
    /// A service manager keeps its copies of the sockets open when this listener closes, including the
    /// connections that have not been accepted yet. Pass at least one descriptor. If a descriptor cannot be
    /// used, the descriptors before it in the list are closed.
    ///
    /// - Throws: `.system` with an `errno`: EINVAL if the list is empty or a descriptor is not a listening
    ///   socket, EBADF if a descriptor has already been taken, or the kernel's error if it rejects an option;
    ///   otherwise the same errors as
    ///   `init(port:interface:tls:proxyProtocol:maximumConnections:trust:configure:)`.
    public convenience init(
        inherited descriptors: [InheritedDescriptor], tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil,
        maximumConnections: Int = 10_000,
        trust: TrustDecision? = nil, configure: (AsyncSocket) throws -> Void = { _ in }
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        try self.init(model, tls, trust, proxyProtocol, on: .inherited(descriptors))
    }

    /// A function that decides whether to trust a peer's certificate.
    public typealias TrustDecision = @Sendable (PeerTrust) async throws -> Bool

    private enum Place {
        case addresses([SocketEndpoint])
        case inherited([InheritedDescriptor])
    }

    private init(
        _ model: AsyncSocket, _ tls: TLSServerSettings?, _ trust: TrustDecision?, _ proxyProtocol: ProxyProtocol?, on place: Place
    ) throws(AsyncSocketError) {
        let tls = try tls.map { (tls) throws(AsyncSocketError) in try ListenerTLS(tls, over: .stream, trust: trust) }
        preparation = Preparation(model: model, tls: tls, proxyProtocol: proxyProtocol)
        let loop = try model.chooseLoop(.listen)
        let quota = AcceptQuota(
            limit: model.maximumConnections, limitPerSource: model.configuration.maximumConnectionsPerSource,
            aheadLimit: Self.aheadLimit, loop: loop, isExempt: { proxyProtocol?.sources.contains($0) ?? false })
        let reception = Reception<AcceptedConnection>(loop: loop, quota: quota)
        let setup = Listener.Setup(
            loop: loop, options: model.state.withLock { $0.options }, quota: quota, logger: model.logger,
            observer: model.observer,
            accepted: { reception.arrive(AcceptedConnection(descriptor: $0, peer: $1, listener: $2)) },
            ended: { [queue, slots = preparation.slots] _ in
                // Accepting may have failed, in which case `close()` was never called.
                reception.noteLastArrival()
                queue.stop()
                slots.open()
            })
        self.reception = reception
        listener = try Self.listen(at: place, model, setup)
    }

    private static func listen(
        at place: Place, _ model: AsyncSocket, _ setup: Listener.Setup
    ) throws(AsyncSocketError) -> Listener {
        switch place {
        case .addresses(let all):
            let addresses = try model.configuration.enabled(all)
            return try Self.typed { () throws(SystemError) in try Listener.listen(on: addresses, setup) }
        case .inherited(let descriptors):
            return try Self.typed { () throws(SystemError) in try Listener.listen(onInherited: descriptors, setup) }
        }
    }

    private static func typed(_ listen: () throws(SystemError) -> Listener) throws(AsyncSocketError) -> Listener {
        do throws(SystemError) {
            return try listen()
        } catch {
            throw AsyncSocketError(error, operation: .listen)
        }
    }

    private static func makeModel(
        _ maximumConnections: Int, _ configure: (AsyncSocket) throws -> Void
    ) throws -> AsyncSocket {
        guard maximumConnections >= 1 else {
            throw AsyncSocketError.badParameter(
                .listen, "maximumConnections must be at least 1, but is \(maximumConnections)")
        }
        let model = AsyncSocket()
        model.maximumConnections = maximumConnections
        try configure(model)
        return model
    }

    deinit {
        stopAccepting()
        reception.cut()
    }

    // MARK: - Properties

    /// See `ServingListener.localAddresses`.
    public var localAddresses: [SocketEndpoint] { listener.localAddresses }

    /// See `ServingListener.isListening`.
    public var isListening: Bool { reception.isOpen }

    /// The maximum number of accepted connections that may be open simultaneously. Defaults to 10,000; `.max`
    /// sets no limit, and values below 1 are set to 1.
    ///
    /// When the limit is reached, the listener stops accepting, and further connections wait in the kernel's
    /// backlog until a connection closes or is replaced. A warning is logged, at most once a minute. A change
    /// takes effect immediately. Lowering the limit does not close connections.
    ///
    /// At the limit, each new connection replaces an unproven connection: the oldest from the source with the
    /// most unproven connections. During its TLS handshake, or during `acceptStartTLS`, a connection is
    /// unproven. Without TLS, a connection is unproven until the first data in either direction, including a
    /// greeting from the server and a PROXY header. The replaced connection is reset and fails with
    /// `.tooManyConnections`. Three kinds of connections are not replaced: those in their first second, those
    /// that were accepted while the listener was at most half full, and those outside an IP network.
    public var maximumConnections: Int {
        get { preparation.model.maximumConnections }
        set {
            preparation.model.maximumConnections = newValue
            reception.quota.setLimit(preparation.model.maximumConnections)
        }
    }

    /// The maximum number of accepted connections from one source that may be open simultaneously. Defaults
    /// to four fifths of `maximumConnections`, also after that has changed, so that no client can shut out
    /// all other clients; values below 1 are set to 1.
    ///
    /// A source is an IPv4 address or an IPv6 `/64`. With `proxyProtocol`, the client address in the header
    /// counts, and the proxies are not limited. When the limit is reached, further connections from the
    /// source are reset immediately after they are accepted, or closed after their PROXY header, and counted
    /// in `snapshot`. A warning is logged, at most once a minute. A change takes effect immediately.
    /// Lowering the limit does not close connections. Peers that are not on an IP network are not limited.
    ///
    /// If a proxy without the PROXY protocol forwards all connections, set this to `maximumConnections`.
    public var maximumConnectionsPerSource: Int {
        get { reception.quota.limitPerSource }
        set { reception.quota.setLimitPerSource(newValue.clamped(to: 1...)) }
    }

    /// See `ServingListener.snapshot`.
    public var snapshot: ServerSnapshot {
        let (quota, slots) = (reception.quota, preparation.slots)
        let counts = quota.counts
        var refused = ServerSnapshot.Refusals()
        (refused.bySource, refused.byRate) = (counts.refusedBySource, counts.refusedByRate)
        (refused.byConnections, refused.byHandshakes) = (counts.replaced, slots.gaveWayCount)
        return ServerSnapshot(
            isListening: isListening, openCount: counts.open, handshakeCount: slots.takenCount,
            waitingCount: reception.waitingCount + slots.waitingConnectionCount, acceptedCount: counts.accepted, refused: refused)
    }

    /// How many leading bits of an address identify a source. Defaults to all 32 bits of an IPv4 address and
    /// the first 64 bits of an IPv6 address. A change applies to later connections.
    public var sourcePrefix: SourcePrefix {
        get { reception.quota.prefix }
        set { reception.quota.prefix = newValue }
    }

    /// The maximum rate of new connections, per source and in total. If `nil` (the default), the rate is not
    /// limited.
    ///
    /// Connections over the limit are treated like connections over `maximumConnectionsPerSource`: they are
    /// reset, or closed after their PROXY header, and counted in `snapshot`. Changing the limit discards the
    /// rates measured so far. Peers that are not on an IP network are not limited.
    ///
    /// ```swift
    /// listener.rateLimit = SourceRateLimit(perSource: .init(perSecond: 10, burst: 100))
    /// ```
    public var rateLimit: SourceRateLimit? {
        get { rate.withLock { $0 } }
        set {
            rate.withLock { rate in
                rate = newValue
                reception.quota.setRateLimit(newValue)
            }
        }
    }

    /// The maximum number of simultaneous handshakes, including PROXY headers. The default is 4,096, and the
    /// minimum is 1.
    ///
    /// One source has at most four fifths of them (the whole limit if it is below five); its other
    /// connections wait, and sources take turns. At the limit, a connection from a source with clearly fewer
    /// handshakes replaces the oldest handshake of the source with the most handshakes, which fails with
    /// `.tooManyHandshakes`. Until then, no other connection is accepted. Handshakes are kept in their first
    /// second, and if the peer is not on an IP network.
    ///
    /// A handshake costs 10 to 60 KiB of memory and one signature, and is limited by
    /// `TLSSettings.handshakeTimeout`. Peers that start handshakes and never finish them can therefore use
    /// only a bounded amount of memory for a bounded time. A handshake that is waiting for a trust decision
    /// stops counting when the client resets the connection, or closes it without having sent data. While the
    /// listener is closing, the limit does not apply: connections that are already accepted start their
    /// handshakes immediately. At most 64 of them have no task yet.
    ///
    /// Upgrades that your program starts on an accepted socket with `startTLS` or `acceptStartTLS` do not
    /// count. They are limited by `maximumConnections`, `maximumConnectionsPerSource`, `dialogueTimeout` and
    /// the timeouts in `TLSSettings`.
    public var maximumHandshakes: Int {
        get { preparation.slots.limit }
        set { preparation.slots.limit = newValue.clamped(to: 1...) }
    }

    /// See `ServingListener.logger`.
    public var logger: Logger { preparation.model.logger }
}

extension SocketListener: ServingListener {
    /// See `ServingListener.replaceTLS(_:)`.
    public func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError) {
        guard let tls = preparation.tls else {
            throw .badConfiguration(.listen, "the listener has no TLS settings to replace: create it with the tls parameter")
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

    func stopAccepting() {
        reception.stop()
        listener.close()
        // The listener's end is delivered only after its start, so start it even if it never accepted.
        listener.start()
        queue.stop()
        // The accepting task may be suspended until a handshake slot is free. Lifting the limit resumes it.
        preparation.slots.open()
    }
}
