#if ServiceLifecycle
public import AsyncSockets
public import ServiceLifecycle

/// A `SocketListener` as a service: it serves until the service group shuts down, and then has its
/// connections finish.
///
/// ```swift
/// let echo = SocketListenerService(try SocketListener(port: 7)) { socket in
///     for try await bytes in socket.chunks { try await socket.write(bytes) }
/// }
/// let group = ServiceGroup(
///     services: [echo], gracefulShutdownSignals: [.sigterm], cancellationSignals: [.sigint], logger: logger)
/// try await group.run()
/// ```
///
/// The listener is bound when it is made, before the group runs. A graceful shutdown stops accepting at once,
/// and gives the connections `gracePeriod` to finish; then their tasks are cancelled. In the connections'
/// tasks `cancelWhenGracefulShutdown` and the like work: one that only waits for its peer's next request can
/// end at once.
public struct SocketListenerService: Service {
    private let listener: SocketListener
    private let gracePeriod: Duration?
    private let executor: ConnectionExecutor?
    private let idleTimeout: Duration?
    private let onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    private let body: @Sendable (AsyncSocket) async throws -> Void

    /// A service that serves the connections of a listener.
    ///
    /// - Parameters:
    ///   - listener: The listener, which nothing else uses.
    ///   - gracePeriod: How long connections may take to finish after a graceful shutdown has begun; 10
    ///     seconds by default; nil: as long as they need. `maximumGracefulShutdownDuration` of the group ends
    ///     them too.
    ///   - executor: As for `SocketListener.run(executor:idleTimeout:onError:_:)`.
    ///   - idleTimeout: As for `SocketListener.run(executor:idleTimeout:onError:_:)`.
    ///   - onError: As for `SocketListener.run(executor:idleTimeout:onError:_:)`.
    ///   - body: Serves one connection.
    public init(
        _ listener: SocketListener, gracePeriod: Duration? = .seconds(10),
        executor: ConnectionExecutor? = .eventLoop, idleTimeout: Duration? = nil,
        onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
        _ body: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) {
        self.listener = listener
        self.gracePeriod = gracePeriod
        self.executor = executor
        self.idleTimeout = idleTimeout
        self.onError = onError
        self.body = body
    }

    /// Serves connections. The service group calls it.
    ///
    /// Returns after a graceful shutdown, once all connections have ended.
    ///
    /// - Throws: The errors of `SocketListener.run(executor:idleTimeout:onError:_:)`.
    public func run() async throws {
        try await withGracefulShutdownHandler {
            try await listener.run(executor: executor, idleTimeout: idleTimeout, onError: onError, body)
        } onGracefulShutdown: {
            listener.beginShutdown(within: gracePeriod)
        }
    }
}
#endif
