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

    /// Accepts connections from listening sockets that a service manager such as systemd has opened:
    /// `SocketListener(inherited: try InheritedDescriptor.claim(named: "web"))`.
    ///
    /// When this listener closes, the service manager keeps the sockets open, including the connections that
    /// have not been accepted yet. Pass at least one descriptor. If a descriptor cannot be used, the
    /// descriptors before it in the list are closed.
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
        let quota = AcceptQuota(limit: model.maximumConnections, aheadLimit: Self.aheadLimit, loop: loop)
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

    /// The addresses the listener is bound to: one per IP version, IPv4 first, or one per inherited socket.
    /// The value remains available after the listener closes.
    public var localAddresses: [SocketEndpoint] { listener.localAddresses }

    /// The address the listener is bound to.
    ///
    /// With several addresses, this is the IPv4 address if the listener has one, and otherwise the IPv6
    /// address. With inherited sockets, this is the address of the first socket. The value remains available
    /// after the listener closes.
    public var localAddress: SocketEndpoint? { listener.localAddress }

    /// The port the listener is bound to, or 0 for a Unix-domain socket. If the listener was created with
    /// port 0, this is the port that the kernel chose.
    public var localPort: UInt16 { localAddress?.port ?? 0 }

    /// Whether the listener is listening, even if it does not accept connections yet. `false` after
    /// `close(timeout:)`, after the task of `run` is cancelled, and after accepting has failed permanently.
    public var isListening: Bool { reception.isOpen }

    /// The maximum number of accepted connections that may be open simultaneously. Defaults to 10,000; `.max`
    /// sets no limit, and values below 1 are set to 1.
    ///
    /// When the limit is reached, the listener stops accepting, and further connections wait in the kernel's
    /// backlog until a connection closes. A warning is logged, at most once a minute. A change takes effect
    /// immediately. Lowering the limit does not close connections.
    public var maximumConnections: Int {
        get { preparation.model.maximumConnections }
        set {
            preparation.model.maximumConnections = newValue
            reception.quota.setLimit(preparation.model.maximumConnections)
        }
    }

    /// The maximum number of simultaneous handshakes, including PROXY headers. The default is 4,096, and the
    /// minimum is 1.
    ///
    /// When the limit is reached, the listener pauses accepting. A handshake costs 10 to 60 KiB of memory
    /// and one signature, and is limited by `TLSSettings.handshakeTimeout`. Peers that start handshakes
    /// and never finish them can therefore use only a bounded amount of memory for a bounded time. A
    /// handshake that is waiting for a trust decision stops counting when the client resets the
    /// connection, or closes it without having sent data. While the listener closes, the limit does not
    /// apply: the connections that it has accepted by then, at most 64 without a task, start their
    /// handshakes immediately.
    ///
    /// Upgrades that your program starts on an accepted socket with `startTLS` or `acceptStartTLS` do not
    /// count. They are limited by `maximumConnections`, `dialogueTimeout` and the timeouts in `TLSSettings`.
    public var maximumHandshakes: Int {
        get { preparation.slots.limit }
        set { preparation.slots.limit = newValue.clamped(to: 1...) }
    }

    /// The logger of the listener and its sockets, as set by `configure`.
    public var logger: Logger { preparation.model.logger }

    // MARK: - Closing

    /// Closes the listener gracefully: stops accepting, lets connections finish, and cancels the tasks
    /// that take too long.
    ///
    /// The listener stops accepting and frees its port as soon as this is called. Connections that have been
    /// accepted but have no task yet are served too. Connections that are still in the kernel's backlog are
    /// reset, unless another process or a service manager shares the listening socket. This method returns
    /// when the tasks of all connections have finished, and `run` then returns too. Tasks that have not
    /// finished in time are cancelled, which closes their connections. If the calling task is cancelled, all
    /// connections' tasks are cancelled immediately and this method returns. Sockets that `connections` has
    /// delivered belong to the program and stay open.
    ///
    /// You can call this any number of times; the earliest deadline applies. Within a task that serves one of
    /// the listener's connections, this returns immediately, like `beginClosing(timeout:)`, because the task
    /// would otherwise wait for itself. In a child task of such a task, call `beginClosing(timeout:)`
    /// instead.
    ///
    /// - Parameter timeout: How long the connections may take, measured from this call. Defaults to 30
    ///   seconds; `nil` sets no limit.
    public nonisolated(nonsending) func close(timeout: Duration? = .seconds(30)) async {
        beginClosing(timeout: timeout)
        await reception.ended()
    }

    /// Starts to close the listener as `close(timeout:)` does, but returns without waiting for the
    /// connections. Use it where the caller cannot wait, for example when handling a signal.
    public func beginClosing(timeout: Duration? = .seconds(30)) {
        stopAccepting()
        if let timeout { reception.cut(after: timeout) }
    }

    /// Calls `body`, and cancels it when the listener starts to close, or stops listening because of an
    /// error. Returns `nil` if that happens first.
    ///
    /// Use it in a connection's task for reads between two requests, so that connections without a request
    /// close immediately and do not use up the `timeout` of the close:
    ///
    /// ```swift
    /// try await listener.run(untilSignals: [SIGTERM]) { socket in
    ///     var next = try await socket.readLine()
    ///     while let request = next {
    ///         try await respond(to: request, on: socket)
    ///         next = try await listener.untilClosing { try await socket.readLine() }
    ///     }
    /// }
    /// ```
    ///
    /// If the listener is already closing, this returns `nil` without calling `body`. That is why the example
    /// reads the first request directly: its connection may have been accepted just before the close.
    ///
    /// A read that is cancelled in this way loses no bytes. If `body` has already completed, or completes in
    /// spite of the cancellation, its result is returned. To check the state without an operation, use
    /// `isListening`.
    ///
    /// - Parameter body: Runs in a child task, with the executor preference of the current task.
    /// - Returns: The value that `body` returns, or `nil` if the listener starts to close first.
    /// - Throws: The errors of `body`, and `CancellationError` if the current task is cancelled.
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
