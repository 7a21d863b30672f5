#if ServiceLifecycle
public import AsyncSockets
public import ServiceLifecycle

/// Offers the listeners of a service group to a new process (`HotRestart`), as a service.
///
/// ```swift
/// try await restart.takeOver(["echo": listener])
/// let services: [any Service] = [SocketListenerService(listener, echo), HotRestartService(restart)]
/// var configuration = ServiceGroupConfiguration(
///     services: services.map { .init(service: $0, successTerminationBehavior: .gracefullyShutdownGroup) },
///     logger: logger)
/// configuration.gracefulShutdownSignals = [.sigterm]
/// try await ServiceGroup(configuration: configuration).run()
/// ```
///
/// Call `takeOver` before the group runs. Set `successTerminationBehavior` to `.gracefullyShutdownGroup` for
/// this service and for the services of the listeners: by default, a group cancels its other services when
/// one of them returns, which would close open connections. Add this service last. A group shuts down its
/// services in reverse order, so it withdraws the offer before it closes the listeners.
public struct HotRestartService: Service {
    private let restart: HotRestart
    private let closeTimeout: Duration?
    private let startTimeout: Duration

    /// Creates a service that offers the listeners passed to `takeOver`.
    ///
    /// - Parameters:
    ///   - restart: A `HotRestart` after its `takeOver` succeeded.
    ///   - closeTimeout: How long open connections may take to finish after a handover. The default is 10
    ///     seconds; `nil` sets no limit. The group then shuts down, so the `closeTimeout` of each
    ///     `SocketListenerService` and the group's `maximumGracefulShutdownDuration` also apply.
    ///   - startTimeout: See `HotRestart.untilReplaced(closeTimeout:startTimeout:)`.
    public init(_ restart: HotRestart, closeTimeout: Duration? = .seconds(10), startTimeout: Duration = .seconds(60)) {
        (self.restart, self.closeTimeout, self.startTimeout) = (restart, closeTimeout, startTimeout)
    }

    /// Offers the listeners. Called by the service group. Returns when a new process takes over, when a
    /// listener starts to close, or when the group shuts down. In the last two cases, sends `.stopping` to
    /// the `ServiceManager`.
    ///
    /// - Throws: The errors of `HotRestart.untilReplaced(closeTimeout:startTimeout:)`.
    public func run() async throws {
        do {
            _ = try await cancelWhenGracefulShutdown {
                try await restart.untilReplaced(closeTimeout: closeTimeout, startTimeout: startTimeout)
            }
        } catch is CancellationError where Task.isShuttingDownGracefully {
            try Task.checkCancellation()
            try? ServiceManager.current?.notify(.stopping)
        }
    }
}
#endif
