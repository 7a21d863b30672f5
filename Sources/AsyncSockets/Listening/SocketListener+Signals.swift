internal import Logging
internal import SocketBuffers
internal import SocketCore

extension SocketListener {
    /// Serves connections as `run(executor:idleTimeout:onError:_:)` does, until one of `signals` comes;
    /// then it ends as `shutdown(within:)` does.
    ///
    /// ```swift
    /// try await listener.run(untilSignals: [SIGTERM, SIGINT], within: .seconds(30)) { socket in … }
    /// ```
    ///
    /// The first signal ends accepting, and the connections may finish in `time`. A second one cancels them
    /// at once. When this returns, a signal does what it did before; several listeners may wait for the same
    /// signals, and all get them.
    ///
    /// - Parameters:
    ///   - signals: Numbers of signals (signal(7)), such as `SIGTERM`.
    ///   - time: How long the connections may take from the first signal on, 30 seconds by default; nil: as
    ///     long as they need.
    ///   - executor: As for `run(executor:idleTimeout:onError:_:)`, as for the next three.
    ///   - idleTimeout: When a silent connection ends.
    ///   - onError: Gets the error of each connection that did not end in good order.
    ///   - body: What to do with a connection.
    /// - Throws: What `run(executor:idleTimeout:onError:_:)` throws; `.badParameter` for a signal that a
    ///   program cannot wait for, such as `SIGKILL`, and `.system` when descriptors have run out.
    @concurrent
    public func run(
        untilSignals signals: [Int32], within time: Duration? = .seconds(30),
        executor: ConnectionExecutor? = .eventLoop, idleTimeout: Duration? = nil,
        onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
        _ body: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) async throws {
        let watch = try beginShutdown(onSignals: signals, within: time)
        defer { watch.end() }
        try await run(executor: executor, idleTimeout: idleTimeout, onError: onError, body)
    }

    private func beginShutdown(onSignals signals: [Int32], within time: Duration?) throws(AsyncSocketError) -> SignalWatch {
        let isFirst = Locked(true)
        do throws(SystemError) {
            return try SignalWatch(signals) { [weak self] signal in
                guard let self else { return }
                logger.info("the listener ends", metadata: ["signal": "\(signal)"])
                let isFirst = isFirst.withLock { isFirst in
                    defer { isFirst = false }
                    return isFirst
                }
                beginShutdown(within: isFirst ? time : .zero)
            }
        } catch {
            throw AsyncSocketError(refusal: error, operation: "accept")
        }
    }
}
