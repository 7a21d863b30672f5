public import Logging
internal import SocketBuffers
public import SocketCore
public import SocketTLS

/// A listener that serves its connections or peers in tasks: a `SocketListener` or a `DatagramListener`.
public protocol ServingListener: AnyObject, Sendable {
    /// The addresses the listener is bound to: one per IP version, IPv4 first, or one per inherited socket.
    /// The value remains available after the listener closes.
    var localAddresses: [SocketEndpoint] { get }

    /// Whether the listener is open: `true` after its creation, even before `run` is called, and `false`
    /// after `close(timeout:)`, after the task of `run` is cancelled, and after accepting has failed
    /// permanently.
    var isListening: Bool { get }

    /// The current number of connections or peers, and how many were accepted and refused since the listener
    /// was created. Costs a few locks. The numbers are read one after another, so connections that arrive or
    /// close during the call may be missing in some of them.
    var snapshot: ServerSnapshot { get }

    /// The logger of the listener and its sockets, as set by `configure`.
    var logger: Logger { get }

    /// Replaces the TLS settings for later handshakes, for example to install a new certificate or to change
    /// the trusted roots or the server names.
    ///
    /// The new settings are fully checked before the change. Each handshake uses either the old or the new
    /// settings throughout, and handshakes already in progress keep the old settings. A session is resumed
    /// only if the identities, trust and policy are unchanged; otherwise a full handshake is performed.
    ///
    /// - Throws: `.tls` or `.badParameter` if the settings cannot be used, in which case the old settings
    ///   remain in effect; `.badConfiguration` if the listener was created without TLS, or if neither the
    ///   settings nor the listener's `trust` verify certificates.
    func replaceTLS(_ settings: TLSServerSettings) throws(AsyncSocketError)

    /// Closes the listener gracefully: stops accepting, lets connections and peers finish, and cancels the
    /// tasks that take too long.
    ///
    /// The listener stops accepting as soon as this is called. Connections and peers that have been accepted
    /// but have no task yet are served too. This method returns when all tasks have finished, and `run` then
    /// returns too. Tasks that have not finished in time are cancelled, which closes their sockets. If the
    /// calling task is cancelled, all the listener's tasks are cancelled immediately and this method returns.
    /// Sockets that `connections` or `peers` has delivered belong to the program and stay open.
    ///
    /// A `SocketListener` frees its port as soon as this is called. Connections that are still in the
    /// kernel's backlog are reset, unless another process or a service manager shares the listening socket.
    /// A `DatagramListener` drops datagrams from strangers. Its port is free once the last socket is closed.
    ///
    /// You can call this any number of times; the earliest deadline applies. Within a task of the listener,
    /// this returns immediately, like `beginClosing(timeout:)`, because the task would otherwise wait for
    /// itself. In a child task of such a task, call `beginClosing(timeout:)` instead.
    ///
    /// - Parameter timeout: How long the tasks may take, measured from this call. Defaults to 30 seconds;
    ///   `nil` sets no limit.
    nonisolated(nonsending) func close(timeout: Duration?) async

    /// Starts to close the listener as `close(timeout:)` does, and returns without waiting for the tasks. It
    /// takes locks, so do not call it in a C signal handler: use `run(untilSignals:…)`.
    func beginClosing(timeout: Duration?)

    /// Calls `body`. If the listener starts to close or fails first, cancels `body` and returns `nil`.
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
    nonisolated(nonsending) func untilClosing<Result: Sendable>(
        _ body: @escaping @Sendable () async throws -> Result?
    ) async throws -> Result?
}

extension ServingListener {
    /// The first of `localAddresses`.
    public var localAddress: SocketEndpoint? { localAddresses.first }

    /// The port the listener is bound to, or 0 for a Unix-domain socket. If the listener was created with
    /// port 0, this is the port that the kernel chose.
    public var localPort: UInt16 { localAddress?.port ?? 0 }

    // MARK: - Settings

    /// Watches files and replaces the TLS settings, as `replaceTLS(_:)` does, when one of the files changes.
    ///
    /// ```swift
    /// let files = ["server.pem", "server.key"]
    /// Task {
    ///     try await listener.reloadTLS(from: files) {
    ///         .server(identity: try TLSIdentity(certificateFile: files[0], privateKeyFile: files[1]))
    ///     }
    /// }
    /// ```
    ///
    /// Also loads the files immediately, because they may have changed since the listener was created.
    /// Returns when the listener closes. If a file cannot be used, the settings remain unchanged and the
    /// error is logged at level `error`. Related files might not be updated at the same moment, so settings
    /// that failed are tried again after each interval.
    ///
    /// - Parameters:
    ///   - files: The paths of the files to watch for changes. Only `makeSettings` reads their contents.
    ///   - interval: How often to check for changes. The default is every 5 seconds.
    ///   - onError: Called with the error if the files cannot be used.
    ///   - makeSettings: Reads the files and returns the settings. It may block.
    /// - Throws: `CancellationError` if the task is cancelled.
    @concurrent
    public func reloadTLS(
        from files: [String], every interval: Duration = .seconds(5), onError: (@Sendable (any Error) -> Void)? = nil,
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
            let pause = max(interval, .milliseconds(1))
            try await untilClosing { try await Task.sleep(for: pause) }
        }
    }

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
