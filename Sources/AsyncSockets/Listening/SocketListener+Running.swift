// Rules for a listener's tasks:
//  1. One task accepts. Each connection has its own task in `ServingTasks` from the start, so a connection
//     never has to wait for another connection's handshake. The accepting task finishes last.
//  2. When a connection's task finishes, for whatever reason, the connection closes.
//  3. An error on a connection closes that connection only.
//  4. Cancelling the accepting task cancels the tasks of all connections. So does a shutdown deadline.

internal import SocketBuffers
internal import SocketCore

extension SocketListener {
    /// Accepts connections and calls `body` for each one in its own task.
    ///
    /// `body` receives a socket that is ready to use: its PROXY header has been read, and with `tls` its
    /// handshake is complete. When `body` returns, the connection closes gracefully
    /// (`AsyncSocket.close(timeout:)`). When `body` throws or its task is cancelled, the connection closes
    /// immediately. Errors thrown by `body`, and errors in headers and handshakes, affect that connection
    /// only.
    ///
    /// Returns after `close(timeout:)`, once all connections have finished. If the calling task is
    /// cancelled, accepting stops, the tasks of all connections are cancelled, and this method throws
    /// `CancellationError` when those tasks have finished.
    ///
    /// - Parameters:
    ///   - executor: Where `body` runs. By default it runs on the connection's event loop, which is fastest,
    ///     but code there must not block. If `nil`, it runs where the caller runs or, if built with Swift
    ///     6.2, on the default executor. For blocking or long-running work, use
    ///     `.custom(globalConcurrentExecutor)`.
    ///   - idleTimeout: Closes a connection if no bytes are sent or received for this long; `body` then
    ///     receives `.idleTimeout`. `nil` sets no limit.
    ///   - onError: Called in the connection's task for each connection that fails, with the error and the
    ///     socket. The socket is already closed, but `connectedAddress` is still available. Without this
    ///     closure, errors are logged with the peer's address: errors before `body` at level `notice`, and
    ///     errors thrown by `body` at `warning`. At most one line per second is logged for each kind of
    ///     error.
    ///   - body: Serves a connection.
    /// - Throws: `CancellationError`; `.badConfiguration` if the listener is in use or has already been used;
    ///   `.system` with the `errno` if accepting connections fails permanently (accept(2)): immediately if
    ///   retrying cannot help, and otherwise after twelve consecutive failures, which takes about seven
    ///   seconds. The error is logged immediately and thrown once the accepted connections have been served.
    @concurrent
    public func run(
        executor: ConnectionExecutor? = .eventLoop, idleTimeout: Duration? = nil,
        onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil,
        _ body: nonisolated(nonsending) @escaping @Sendable (AsyncSocket) async throws -> Void
    ) async throws {
        _ = try reception.begin(.run)
        let preparation = preparation
        await withTaskCancellationHandler {
            listener.start()
            let pause = { @Sendable (_: Int) async in if !preparation.isEmpty { await preparation.slots.room() } }
            let service = Service(preparation: preparation, idleTimeout: idleTimeout, onError: onError, body: body)
            await reception.serveArrivals(on: executor, after: pause, by: service)
        } onCancel: {
            stopAccepting()
            reception.cut()
        }
        try Task.checkCancellation()
        if let failure = listener.failure { throw failure }
    }
}

/// How `run` serves its connections. All connections share one object, so each task holds only a reference.
private final class Service: ArrivalService {
    private let preparation: Preparation
    private let idleTimeout: Duration?
    private let onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    private let body: nonisolated(nonsending) @Sendable (AsyncSocket) async throws -> Void

    init(
        preparation: Preparation, idleTimeout: Duration?, onError: (@Sendable (any Error, AsyncSocket) -> Void)?,
        body: nonisolated(nonsending) @escaping @Sendable (AsyncSocket) async throws -> Void
    ) {
        (self.preparation, self.idleTimeout, self.onError, self.body) = (preparation, idleTimeout, onError, body)
    }

    nonisolated(nonsending) func serve(_ accepted: AcceptedConnection, on loop: SocketEventLoop) async {
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

/// Serves the arrivals of a reception. Tasks call this object directly, because each closure in between would
/// add two frames to a task for as long as its connection is open.
protocol ArrivalService<Arrival>: AnyObject, Sendable {
    associatedtype Arrival: Sendable

    nonisolated(nonsending) func serve(_ arrival: Arrival, on loop: SocketEventLoop) async
}

private final class ClosureService<Arrival: Sendable>: ArrivalService {
    private let body: nonisolated(nonsending) @Sendable (Arrival, SocketEventLoop) async -> Void

    init(_ body: nonisolated(nonsending) @escaping @Sendable (Arrival, SocketEventLoop) async -> Void) {
        self.body = body
    }

    nonisolated(nonsending) func serve(_ arrival: Arrival, on loop: SocketEventLoop) async { await body(arrival, loop) }
}

extension Reception {
    /// Accepts connections, and starts a task for each in which `service` serves it. Returns when all tasks
    /// have finished.
    ///
    /// - Parameters:
    ///   - executor: Where the service runs. If `nil`, it runs where the caller runs. Otherwise, the
    ///     accepting task runs on the loop that accepts.
    ///   - pause: Called after each batch with the size of the batch. The next batch is taken when it
    ///     returns.
    ///   - allOnOneLoop: Whether all connections are served on the loop that accepts.
    func serveArrivals(
        on executor: ConnectionExecutor?, after pause: @escaping @Sendable (Int) async -> Void = { _ in },
        allOnOneLoop: Bool = false, by service: some ArrivalService<Arrival>
    ) async {
        if let executor {
            await complete(
                Task(executorPreference: loop) { await self.serve(on: executor, pause, allOnOneLoop, service) })
        } else {
            await serve(on: nil, pause, allOnOneLoop, service)
        }
        end()
    }

    /// For short tasks.
    func serveArrivals(
        on executor: ConnectionExecutor?, after pause: @escaping @Sendable (Int) async -> Void, allOnOneLoop: Bool = false,
        _ body: nonisolated(nonsending) @escaping @Sendable (Arrival, SocketEventLoop) async -> Void
    ) async {
        await serveArrivals(on: executor, after: pause, allOnOneLoop: allOnOneLoop, by: ClosureService(body))
    }

    private func serve(
        on executor: ConnectionExecutor?, _ pause: (Int) async -> Void, _ allOnOneLoop: Bool,
        _ service: some ArrivalService<Arrival>
    ) async {
        let tasks = ServingTasks()
        // If no executor was chosen, the tasks inherit the caller's preference, as child tasks would.
        let preference: (any TaskExecutor)? = executor == nil ? .preferredByCurrentTask : nil
        await withTaskCancellationHandler {
            while let arrivals = await arrivals() {
                for accepted in arrivals {
                    let loop = allOnOneLoop ? self.loop : (try? SocketEventLoop.next()) ?? self.loop
                    let place = tasks.reserve()
                    let task = Task(executorPreference: executor?.taskExecutor(for: loop) ?? preference) {
                        if !Task.isCancelled {
                            await ServedTask.run(for: self) { await service.serve(accepted, on: loop) }
                        }
                        self.noteServed()
                        tasks.end(place)
                    }
                    tasks.put(task, at: place)
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
    /// Returns a socket that is ready for `body`, or reports the error and returns `nil`.
    nonisolated(nonsending) func makeReady(
        _ accepted: AcceptedConnection, on loop: SocketEventLoop, _ onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    ) async -> AsyncSocket? {
        var opened: AsyncSocket?
        do {
            let socket = try open(accepted, on: loop)
            opened = socket
            if !isEmpty { try await prepare(socket, accepted) }
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

    /// Reports that a connection has failed, unless the listener itself cancelled the connection's task.
    func report(
        _ error: any Error, of peer: SocketEndpoint?, in stage: FailureLog.Stage, _ socket: AsyncSocket?,
        _ onError: (@Sendable (any Error, AsyncSocket) -> Void)?
    ) {
        if error is CancellationError, Task.isCancelled { return }
        failures.note(error, of: peer, in: stage, isHandled: onError != nil, model.logger)
        if let socket { onError?(error, socket) }
    }
}
