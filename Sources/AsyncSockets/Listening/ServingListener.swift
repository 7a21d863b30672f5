internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A listener whose connections or peers are served by tasks: its end by signals, and the replacement of its
/// settings.
protocol ServingListener: AnyObject, Sendable {
    var isListening: Bool { get }
    var logger: Logger { get }
    func beginShutdown(within time: Duration?)
    func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError)
    /// Waits for so long, or until the task is cancelled.
    func pass(_ interval: Duration) async throws
}

extension ServingListener {
    // MARK: - Signals

    /// Serves as `run` does, until one of `signals` comes.
    func serve(
        untilSignals signals: [Int32], within time: Duration?, onShutdown: (@Sendable () async -> Void)?,
        _ run: () async throws -> Void
    ) async throws {
        let (shutdowns, shutdown) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingOldest(1))
        let isAwaited = Locked(true)
        let watch = try beginShutdown(onSignals: signals, within: time, isFirst: isAwaited.take) { shutdown.yield() }
        async let notice: Void = call(onShutdown, after: shutdowns)
        do {
            defer {
                watch.end()
                // The thread of a signal may not have come so far yet: then the notice is on its way.
                if isAwaited.take() { shutdown.finish() }
            }
            try await run()
        }
        await notice
    }

    private func call(_ onShutdown: (@Sendable () async -> Void)?, after shutdowns: AsyncStream<Void>) async {
        for await _ in shutdowns { return await onShutdown?() ?? () }
    }

    private func beginShutdown(
        onSignals signals: [Int32], within time: Duration?, isFirst takeFirst: @escaping @Sendable () -> Bool,
        _ noteFirst: @escaping @Sendable () -> Void
    ) throws(AsyncSocketError) -> SignalWatch {
        do throws(SystemError) {
            return try SignalWatch(signals) { [weak self] signal in
                guard let self else { return }
                logger.info("the listener ends", metadata: ["signal": "\(signal)"])
                let isFirst = takeFirst()
                beginShutdown(within: isFirst ? time : .zero)
                if isFirst { noteFirst() }
            }
        } catch {
            throw AsyncSocketError(refusal: error, operation: "run")
        }
    }

    // MARK: - Settings

    /// Replaces the settings when one of the files changes: see `SocketListener.reloadTLS`.
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
                    // The same failure is told once.
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
    /// True the first time: for the first signal, or for the end of a listener without one.
    fileprivate func take() -> Bool {
        withLock { isTrue in
            defer { isTrue = false }
            return isTrue
        }
    }
}
