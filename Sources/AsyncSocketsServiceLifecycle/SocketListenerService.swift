#if ServiceLifecycle
public import AsyncSockets
public import ServiceLifecycle

/// Runs a `SocketListener` as a service. It serves connections until the service group shuts down, and then
/// lets them finish.
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
/// The listener is bound when it is created, before the group runs. A graceful shutdown stops accepting
/// immediately and gives the connections `closeTimeout` to finish. Tasks that are still running after that
/// are cancelled. Functions such as `cancelWhenGracefulShutdown` work in the connections' tasks, so a
/// connection that is only waiting for its peer's next request can close immediately.
public struct SocketListenerService: Service {
    private let listener: SocketListener
    private let closeTimeout: Duration?
    private let executor: ConnectionExecutor?
    private let idleTimeout: Duration?
    private let onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    private let body: nonisolated(nonsending) @Sendable (AsyncSocket) async throws -> Void

    /// Creates a service that serves the connections of a listener.
    ///
    /// - Parameters:
    ///   - listener: The listener. It must not be used by other code.
    ///   - closeTimeout: How long connections may take to finish after a graceful shutdown has started. The
    ///     default is 10 seconds; `nil` sets no limit. The group's `maximumGracefulShutdownDuration` also
    ///     applies.
    ///   - executor: See `SocketListener.run(executor:idleTimeout:onError:_:)`.
    ///   - idleTimeout: See `SocketListener.run(executor:idleTimeout:onError:_:)`.
    ///   - onError: See `SocketListener.run(executor:idleTimeout:onError:_:)`.
    ///   - body: Serves one connection.
    public init(
        _ listener: SocketListener, closeTimeout: Duration? = .seconds(10),
        executor: ConnectionExecutor? = .eventLoop, idleTimeout: Duration? = nil,
        onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
        _ body: nonisolated(nonsending) @escaping @Sendable (AsyncSocket) async throws -> Void
    ) {
        self.listener = listener
        self.closeTimeout = closeTimeout
        self.executor = executor
        self.idleTimeout = idleTimeout
        self.onError = onError
        self.body = body
    }

    /// Serves connections. Called by the service group.
    ///
    /// Returns after a graceful shutdown, once all connections have closed.
    ///
    /// - Throws: The errors of `SocketListener.run(executor:idleTimeout:onError:_:)`.
    public func run() async throws {
        try await withGracefulShutdownHandler {
            try await listener.run(executor: executor, idleTimeout: idleTimeout, onError: onError, body)
        } onGracefulShutdown: {
            listener.beginClosing(timeout: closeTimeout)
        }
    }
}
#endif
