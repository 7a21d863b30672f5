internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A listener that serves connections or peers in tasks. Implements shutdown on signals and the
/// replacement of TLS settings.
protocol ServingListener: AnyObject, Sendable {
    var isListening: Bool { get }
    var logger: Logger { get }
    func beginClosing(timeout: Duration?)
    func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError)
    /// Suspends the task for `interval`, or until it is cancelled.
    func pass(_ interval: Duration) async throws
}

extension ServingListener {
    // MARK: - Signals

    func serve(
        untilSignals signals: [Int32], closeTimeout: Duration?, onShutdown: (@Sendable () async -> Void)?,
        _ run: () async throws -> Void
    ) async throws {
        let (shutdowns, shutdown) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingOldest(1))
        let isAwaited = Locked(true)
        let watch = try beginClosing(onSignals: signals, closeTimeout: closeTimeout, isFirst: isAwaited.take) { shutdown.yield() }
        async let notice: Void = call(onShutdown, after: shutdowns)
        do {
            defer {
                watch.end()
                // If this is `false`, a signal arrived but its thread may not have called `yield()` yet. The
                // notice will follow.
                if isAwaited.take() { shutdown.finish() }
            }
            try await run()
        }
        await notice
    }

    private func call(_ onShutdown: (@Sendable () async -> Void)?, after shutdowns: AsyncStream<Void>) async {
        for await _ in shutdowns { return await onShutdown?() ?? () }
    }

    private func beginClosing(
        onSignals signals: [Int32], closeTimeout: Duration?, isFirst takeFirst: @escaping @Sendable () -> Bool,
        _ noteFirst: @escaping @Sendable () -> Void
    ) throws(AsyncSocketError) -> SignalWatch {
        do throws(SystemError) {
            return try SignalWatch(signals) { [weak self] signal in
                guard let self else { return }
                logger.info("the listener is shutting down", metadata: ["signal": "\(signal)"])
                let isFirst = takeFirst()
                beginClosing(timeout: isFirst ? closeTimeout : .zero)
                if isFirst { noteFirst() }
            }
        } catch {
            throw AsyncSocketError(refusal: error, operation: .run)
        }
    }

    // MARK: - Settings

    /// Replaces the settings when one of the files changes. See `SocketListener.reloadTLS`.
    func reload(
        from files: [String], every interval: Duration, onError: (@Sendable (any Error) -> Void)?,
        _ makeSettings: @Sendable () throws -> TLSServerSettings
    ) async throws {
        var known: [FileStamp]?
        var hasFailed = false
        while isListening {
            let current = files.map { FileStamp(path: $0) }
            if current != known || hasFailed {
                do {
                    try replaceTLS(makeSettings())
                    hasFailed = false
                    logger.info("TLS settings replaced")
                } catch {
                    // Report a repeated failure only once.
                    if current != known {
                        logger.error("TLS settings not replaced", metadata: ["error": "\(error)"])
                        onError?(error)
                    }
                    hasFailed = true
                }
            }
            known = current
            try await pass(max(interval, .milliseconds(1)))
        }
    }
}

extension Locked<Bool> {
    /// Returns `true` on the first call only, which is made either for the first signal or when a listener
    /// finishes without a signal.
    fileprivate func take() -> Bool {
        withLock { isTrue in
            defer { isTrue = false }
            return isTrue
        }
    }
}
