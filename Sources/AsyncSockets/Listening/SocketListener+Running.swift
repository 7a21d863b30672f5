// Rules of a listener's tasks:
//  1. One task accepts. Each connection has its own task in `ServingTasks` from the start, so no connection
//     waits for the handshake of another. The accepting task finishes last.
//  2. Whatever ends the task of a connection closes the connection.
//  3. The error of a connection ends that connection, and nothing else.
//  4. Cancelling the accepting task, or the deadline of a shutdown, cancels the tasks of all connections.

internal import SocketBuffers
internal import SocketCore

extension SocketListener {
    /// Accepts connections, and calls `body` with each of them in a task of its own.
    ///
    /// `body` gets a socket that is ready: its PROXY header has come, and with `tls` it is secure. When
    /// `body` returns, the connection closes in order (`AsyncSocket.close(timeout:)`); when it throws, or its
    /// task is cancelled, at once. Its errors, and errors of headers and handshakes, end that connection
    /// only.
    ///
    /// Returns after `shutdown(within:)`, once all connections have ended. When the task that calls this is
    /// cancelled, accepting ends, the tasks of all connections are cancelled, and it throws
    /// `CancellationError` when they are over.
    ///
    /// - Parameters:
    ///   - executor: Where `body` runs: on the event loop of the connection by default, which is fastest, and
    ///     where nothing may block. Nil: where the caller runs. For work that computes for long or blocks,
    ///     `.custom(globalConcurrentExecutor)`.
    ///   - idleTimeout: When no byte of a connection has come or gone for so long, it ends, and `body` gets
    ///     `.idleTimeout`; nil: never.
    ///   - onError: Gets the error of each connection that did not end in good order, and its socket, which
    ///     is closed by then: `connectedAddress` is still known. It is called in the connection's task.
    ///     Without it the errors are logged with the peer's address, errors before `body` at the level
    ///     `notice` and errors of `body` at `warning`, one line a second of each kind at most.
    ///   - body: Serves a connection.
    /// - Throws: `CancellationError`, `.badConfiguration` when the listener is in use, or its use has ended,
    ///   and `.system` with the `errno` when the kernel refuses to accept (accept(2)): immediately if
    ///   retrying cannot help, otherwise after twelve failures in a row, about seven seconds. The error is
    ///   logged immediately, and thrown once the accepted connections have been served.
    @concurrent
    public func run(
        executor: ConnectionExecutor? = .eventLoop, idleTimeout: Duration? = nil,
        onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
        _ body: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) async throws {
        _ = try reception.begin(.run)
        let preparation = preparation
        await withTaskCancellationHandler {
            listener.start()
            let pause = { @Sendable (_: Int) async in if !preparation.isEmpty { await preparation.slots.room() } }
            let service = Service(preparation: preparation, idleTimeout: idleTimeout, onError: onError, body: body)
            await reception.serveArrivals(on: executor, after: pause) { await service.serve($0, on: $1) }
        } onCancel: {
            close()
            reception.cut()
        }
        try Task.checkCancellation()
        if let failure = listener.failure { throw failure }
    }
}

/// How `run` serves its connections. One object for all of them: the task of a connection keeps a reference.
private final class Service: Sendable {
    private let preparation: Preparation
    private let idleTimeout: Duration?
    private let onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    private let body: @Sendable (AsyncSocket) async throws -> Void

    init(
        preparation: Preparation, idleTimeout: Duration?, onError: (@Sendable (any Error, AsyncSocket) -> Void)?,
        body: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) {
        (self.preparation, self.idleTimeout, self.onError, self.body) = (preparation, idleTimeout, onError, body)
    }

    func serve(_ accepted: AcceptedConnection, on loop: EventLoop) async {
        guard let socket = await preparation.makeReady(accepted, on: loop, onError) else { return }
        if let idleTimeout { socket.operations?.endWhenIdle(idleTimeout) }
        do {
            try await socket.closing(after: body)
        } catch {
            report(error, socket)
        }
    }

    @inline(never)
    private func report(_ error: any Error, _ socket: AsyncSocket) {
        preparation.report(error, of: socket.connectedAddress, in: .body, socket, onError)
    }
}

extension Reception {
    /// Accepts connections and runs `body` for each in its own task. Returns when all tasks have finished.
    ///
    /// - Parameters:
    ///   - executor: Where `body` runs; nil: where the caller does. Otherwise the accepting task runs on the
    ///     loop that accepts.
    ///   - pause: Called after each batch with its count; nothing is taken until it returns.
    ///   - allOnOneLoop: All are served on the loop that accepts.
    func serveArrivals(
        on executor: ConnectionExecutor?, after pause: @escaping @Sendable (Int) async -> Void = { _ in },
        allOnOneLoop: Bool = false, _ body: @escaping @Sendable (Arrival, EventLoop) async -> Void
    ) async {
        if let executor {
            await complete(
                Task(executorPreference: loop) { await self.serve(on: executor, pause, allOnOneLoop, body) })
        } else {
            await serve(on: nil, pause, allOnOneLoop, body)
        }
        end()
    }

    private func serve(
        on executor: ConnectionExecutor?, _ pause: (Int) async -> Void, _ allOnOneLoop: Bool,
        _ body: @escaping @Sendable (Arrival, EventLoop) async -> Void
    ) async {
        let tasks = ServingTasks()
        // Without a choice, the tasks inherit the caller's preference, as child tasks would.
        let preference: (any TaskExecutor)? = executor == nil ? .preferredByCurrentTask : nil
        await withTaskCancellationHandler {
            while let arrivals = await arrivals() {
                for accepted in arrivals {
                    let loop = allOnOneLoop ? self.loop : (try? EventLoop.next()) ?? self.loop
                    tasks.start(on: executor?.taskExecutor(for: loop) ?? preference) {
                        if !Task.isCancelled {
                            await ServedTask.run(for: self) { await body(accepted, loop) }
                        }
                        self.noteServed()
                    }
                }
                await pause(arrivals.count)
            }
            await lastCall()
            tasks.cancel()
            await tasks.ended()
        } onCancel: {
            tasks.cancel()
        }
    }
}

extension Preparation {
    /// A socket for an accepted connection that is ready for its user; nil when the connection has failed on
    /// the way there, which is reported.
    func makeReady(
        _ accepted: AcceptedConnection, on loop: EventLoop, _ onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    ) async -> AsyncSocket? {
        var opened: AsyncSocket?
        do {
            let socket = try open(accepted, on: loop)
            opened = socket
            if !isEmpty { try await prepare(socket) }
            return socket
        } catch {
            giveUp(accepted, opened, error, onError)
            return nil
        }
    }

    @inline(never)
    private func giveUp(
        _ accepted: AcceptedConnection, _ socket: AsyncSocket?, _ error: any Error,
        _ onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    ) {
        socket?.disconnect(.abandoned)
        report(error, of: accepted.peer, in: .handshake, socket, onError)
        if socket == nil, let error = error as? AsyncSocketError { accepted.deliver(.failed(error)) }
    }

    /// A connection has ended with an error, unless it was the listener that has ended it.
    func report(
        _ error: any Error, of peer: SocketAddress?, in stage: FailureLog.Stage, _ socket: AsyncSocket?,
        _ onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    ) {
        if error is CancellationError, Task.isCancelled { return }
        failures.note(error, of: peer, in: stage, isHandled: onError != nil, model.logger)
        if let socket { onError?(error, socket) }
    }
}
