public import Logging
internal import SocketBuffers
public import SocketCore
public import SocketTLS

/// The server side for tasks: it accepts connections, and serves each of them in a task of its own.
///
/// ```swift
/// let listener = try SocketListener(port: 8443, tls: .server(identity: identity))
/// try await listener.run { socket in
///     for try await bytes in socket.chunks { try await socket.write(bytes) }
/// }
/// ```
///
/// It is bound and listens once it is made, so that `localAddress` and `localPort` are known; peers that
/// connect wait in the kernel. It accepts them from `run` on, or from the first use of `connections`. It ends
/// with `shutdown(within:)`, with the task of `run`, or with the last reference, and is used once.
public final class SocketListener: Sendable {
    let listener: Listener
    let reception: Reception<AcceptedConnection>
    let preparation: Preparation
    let queue = SocketQueue()

    /// At most so many connections are accepted before a task takes them.
    private static let aheadLimit = 64

    /// Listens on a port.
    ///
    /// - Parameters:
    ///   - port: The port, of any type of integer; 0 lets the kernel choose a free one, the same for IPv4 and
    ///     IPv6.
    ///   - interface: A name (`eth0`: all its addresses), an address (`127.0.0.1`, `::1`), or `localhost` or
    ///     `loopback` for both of these; nil: every interface.
    ///   - tls: How to use TLS from the first byte; nil: not at all, or later by `startTLS(settings:trust:)`.
    ///   - proxyProtocol: Which connections begin with a PROXY header; nil: none.
    ///   - maximumConnections: See `maximumConnections`.
    ///   - configure: Sets what the listener and every accepted socket get: options, `isIPv6Enabled`,
    ///     `writeHighWaterMark`, `logger`. The socket that it gets is only a model.
    ///   - trust: Decides about a client's certificate: see `startTLS(settings:trust:)`.
    /// - Throws: An `AsyncSocketError`: `.badParameter` when there is no such interface or port, for a
    ///   `maximumConnections` below 1, and for settings of a client; `.tls` for unusable settings;
    ///   `.badConfiguration` when every family of the addresses is disabled, or nothing decides about
    ///   certificates; `.system` with an `errno` when it cannot listen on an address; and what `configure`
    ///   throws.
    public convenience init(
        port: some BinaryInteger, interface: String? = nil, tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil,
        maximumConnections: Int? = nil,
        configure: (AsyncSocket) throws -> Void = { _ in }, trust: TrustDecision? = nil
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        let port = try AsyncSocketError.port(port, "accept")
        try self.init(model, tls, trust, proxyProtocol, on: .addresses(model.addresses(of: interface, port: port)))
    }

    /// Listens on one address: IPv4, IPv6, a path of the file system, an abstract name (unix(7)), or a port
    /// of this virtual machine.
    ///
    /// With port 0 the kernel chooses a free one. An IPv6 address does not take IPv4 connections.
    ///
    /// - Throws: What `init(port:interface:tls:proxyProtocol:maximumConnections:configure:trust:)` throws.
    public convenience init(
        address: SocketAddress, tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil,
        maximumConnections: Int? = nil,
        configure: (AsyncSocket) throws -> Void = { _ in }, trust: TrustDecision? = nil
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        try self.init(model, tls, trust, proxyProtocol, on: .addresses([address]))
    }

    /// Listens on a Unix-domain socket. `AsyncSocket.accept(onPath:)` says what becomes of a file at that
    /// path, and who may connect.
    ///
    /// The path has 1 to 107 bytes of UTF-8 without a zero byte (unix(7)); it is never truncated.
    ///
    /// - Throws: `.badParameter` for another path, `.system` with `EADDRINUSE` when something is there, and
    ///   otherwise what `init(port:interface:tls:proxyProtocol:maximumConnections:configure:trust:)` throws.
    public convenience init(
        path: String, tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil, maximumConnections: Int? = nil,
        configure: (AsyncSocket) throws -> Void = { _ in }, trust: TrustDecision? = nil
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        try self.init(model, tls, trust, proxyProtocol, on: .addresses([SocketAddress.ofSocket(at: path, "accept")]))
    }

    /// Accepts from sockets that a service manager has opened, such as systemd:
    /// `SocketListener(inherited: try InheritedDescriptor.claim(named: "web"))`.
    ///
    /// The sockets live on with the manager when this listener ends, and so do the connections that it has
    /// not accepted.
    ///
    /// It takes at least one descriptor. When one cannot be used, those before it are closed.
    ///
    /// - Throws: `.system` with an `errno`: EINVAL when there are none or one does not listen, EBADF when one
    ///   has been handed on already, and what the kernel says when it refuses an option; and otherwise what
    ///   `init(port:interface:tls:proxyProtocol:maximumConnections:configure:trust:)` throws.
    public convenience init(
        inherited descriptors: [InheritedDescriptor], tls: TLSServerSettings? = nil, proxyProtocol: ProxyProtocol? = nil,
        maximumConnections: Int? = nil,
        configure: (AsyncSocket) throws -> Void = { _ in }, trust: TrustDecision? = nil
    ) throws {
        let model = try Self.makeModel(maximumConnections, configure)
        try self.init(model, tls, trust, proxyProtocol, on: .inherited(descriptors))
    }

    /// Decides about the certificate of a peer.
    public typealias TrustDecision = @Sendable (PeerTrust) async throws -> Bool

    private enum Place {
        case addresses([SocketAddress])
        case inherited([InheritedDescriptor])
    }

    private init(
        _ model: AsyncSocket, _ tls: TLSServerSettings?, _ trust: TrustDecision?, _ proxyProtocol: ProxyProtocol?, on place: Place
    ) throws(AsyncSocketError) {
        let tls = try tls.map { (tls) throws(AsyncSocketError) in try ListenerTLS(tls, over: .stream, trust: trust) }
        preparation = Preparation(model: model, tls: tls, proxyProtocol: proxyProtocol)
        let loop = try model.chooseLoop("accept")
        let quota = AcceptQuota(limit: model.maximumAcceptedConnections, aheadLimit: Self.aheadLimit, loop: loop)
        let reception = Reception<AcceptedConnection>(loop: loop, quota: quota)
        let setup = Listener.Setup(
            loop: loop, options: model.state.withLock { $0.options }, quota: quota, logger: model.logger,
            observer: model.observer,
            accepted: { reception.arrive(AcceptedConnection(descriptor: $0, peer: $1, listener: $2)) },
            ended: { [queue, slots = preparation.slots] _ in
                // Accepting may have failed rather than been closed.
                reception.stop()
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
            let addresses = try model.enabled(all)
            return try Self.typed { () throws(SystemError) in try Listener.listen(on: addresses, setup) }
        case .inherited(let descriptors):
            return try Self.typed { () throws(SystemError) in try Listener.listen(onInherited: descriptors, setup) }
        }
    }

    private static func typed(_ listen: () throws(SystemError) -> Listener) throws(AsyncSocketError) -> Listener {
        do throws(SystemError) {
            return try listen()
        } catch {
            throw AsyncSocketError(error, operation: "accept")
        }
    }

    private static func makeModel(
        _ maximumConnections: Int?, _ configure: (AsyncSocket) throws -> Void
    ) throws -> AsyncSocket {
        let model = AsyncSocket()
        model.maximumAcceptedConnections = maximumConnections
        try configure(model)
        let limit = model.maximumAcceptedConnections
        guard limit ?? 1 >= 1 else {
            throw AsyncSocketError.badParameter("accept", "maximumConnections must be at least 1, and is \(limit ?? 0)")
        }
        return model
    }

    deinit {
        close()
        reception.cut()
    }

    // MARK: - Facts

    /// Where it listens: the IPv4 address if it has one, or else the IPv6 one, or the Unix-domain one; of
    /// inherited sockets, the first one's. It stays after the end.
    public var localAddress: SocketAddress? { listener.localAddress }

    /// The port; the one that the kernel chose, if it was to choose one. 0 for a Unix-domain socket.
    public var localPort: UInt16 { localAddress?.port ?? 0 }

    /// Whether the listener accepts connections. False after `shutdown(within:)`, after the task of `run` has
    /// been cancelled, or after accepting has failed permanently.
    public var isListening: Bool { reception.isOpen }

    /// How many accepted connections may be open at a time; nil (the default): any number.
    ///
    /// At the limit accepting stops, and further connections wait in the kernel's backlog until one is
    /// closed. A change takes effect immediately. A lower limit does not close connections, and values below
    /// 1 are treated as 1.
    public var maximumConnections: Int? {
        get { preparation.model.maximumAcceptedConnections }
        set {
            let limit = newValue.map { max(1, $0) }
            preparation.model.maximumAcceptedConnections = limit
            reception.quota.setLimit(limit)
        }
    }

    /// How many connections may shake hands at a time, TLS and PROXY headers: 4,096 by default, at least 1.
    ///
    /// At the limit accepting stops. A handshake costs 10 to 60 KiB and a signature, and has
    /// `TLSSettings.handshakeTimeout`: so peers that begin handshakes and never finish them hold up a bounded
    /// amount of memory, for a bounded time.
    public var maximumHandshakes: Int {
        get { preparation.slots.limit }
        set { preparation.slots.limit = newValue }
    }

    /// The logger of the listener and of its sockets, as `configure` has set it.
    public var logger: Logger { preparation.model.logger }

    // MARK: - The end

    /// Ends the listener in order: stops accepting, has the connections finish, and cuts those that take too
    /// long.
    ///
    /// Nothing is accepted from the moment of the call on, and the port is free. Returns when the tasks of
    /// all connections are over; then `run` returns too. Those that are not over in time are cancelled, which
    /// closes their connections. If the task that calls this is cancelled, they are cancelled at once, and it
    /// returns. Sockets that `connections` has delivered are yours, and go on.
    ///
    /// You may call this any number of times: the earliest deadline counts. In a task that serves one of the
    /// listener's connections, this returns immediately, like `beginShutdown(within:)`, because otherwise the
    /// task would wait for itself. In a child task of such a task, call `beginShutdown(within:)` instead.
    ///
    /// - Parameter time: How long the connections may take from now on; nil: as long as they need.
    public nonisolated(nonsending) func shutdown(within time: Duration? = nil) async {
        beginShutdown(within: time)
        await reception.ended()
    }

    /// Begins what `shutdown(within:)` does, and waits for nothing: for signal handlers and the like.
    public func beginShutdown(within time: Duration? = nil) {
        close()
        if let time { reception.cut(after: time) }
    }

    /// Ends accepting.
    func close() {
        reception.stop()
        listener.close()
        // It ends after its beginning, even if accepting has never begun.
        listener.start()
        queue.stop()
        // The accepting task may wait for a place, and has to see the end.
        preparation.slots.open()
    }
}
