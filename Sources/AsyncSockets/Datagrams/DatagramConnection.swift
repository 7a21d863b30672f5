internal import Dispatch
internal import FoundationEssentials
internal import Logging
internal import SocketBuffers
internal import SocketCore

/// A UDP socket from its first use to its last event. Owns the turn to which its `DatagramService` is
/// confined.
final class DatagramConnection: EventHandler, EventSource, OperationOwner, TurnOwner {
    typealias Message = DatagramMessage

    let loop: SocketEventLoop
    let outlet: EventOutlet<AsyncUDPSocket>
    let record: Locked<DatagramRecord>
    let counts = DatagramCounts()
    let turn: SocketTurn<Message>
    private let log: ConnectionLog
    // Not `Sendable`: used only inside the turn. Its registration is set before the first message.
    nonisolated(unsafe) private let service: DatagramService

    init(for socket: AsyncUDPSocket, as role: ConnectionRole, on loop: SocketEventLoop) {
        self.loop = loop
        outlet = EventOutlet(of: socket)
        turn = SocketTurn(queue: socket.socketQueue)
        log = ConnectionLog(as: role)
        record = Locked(DatagramRecord())
        let mailbox = Mailbox()
        service = DatagramService(outlet, on: loop, record, counts, log) { mailbox.connection?.post($0) }
        mailbox.connection = self
    }

    /// A weak reference to the connection, for closures that must not keep the connection alive.
    private final class Mailbox: Sendable {
        // Set once, before the connection is shared. The runtime reads weak references atomically.
        nonisolated(unsafe) weak var connection: DatagramConnection?
    }

    /// Registers the connection with its loop, which keeps the connection alive until it has closed. Call it
    /// once, before the first message.
    func register() {
        service.registration = loop.register(self)
    }

    /// Undoes `register()`. Call it only while no other thread has access to the connection.
    func deregister() {
        if let registration = service.registration { loop.deregister(registration) }
    }

    /// Sets the initial configuration. Call it before the first message, while no other thread has access to
    /// the connection.
    func begin(_ configuration: DatagramConfiguration.Shared, _ options: SocketOptionSet) {
        service.configuration = configuration
        record.withLock { $0.options = options }
    }

    /// Prepares the connection to serve a listener's peer. Call it under the same conditions as `begin`.
    func serve(_ channel: PeerChannel, to key: PeerKey) {
        service.serve(channel, to: key)
    }

    // MARK: - On any thread

    /// Closes the socket when no data has been sent or received for `timeout`, except during a handshake.
    func endWhenIdle(_ timeout: Duration) {
        post(.awaitEnd(IdleWaiter(timeout, error: .idleDatagrams(for: timeout)) { [unowned self] in service.progress }))
    }

    func post(_ message: Message) {
        turn.post(message, to: self)
    }

    /// Queues a datagram and reports its result to the delegate. Posts no message if the caller is already
    /// inside the turn.
    func send(_ packet: consuming DatagramPacket) {
        guard turn.isOpen(within: self) else { return post(.send(packet)) }
        let wasDelivering = outlet.leaveCallback()
        service.send(packet)
        outlet.resumeCallback(wasDelivering)
    }

    func giveUp(_ waiter: any AnyObject & Sendable) { post(.cancel(waiter)) }

    func handle(_ events: LoopEvents) {
        turn.post(.events(events), to: self, from: .loop)
    }

    var logMetadata: Logger.Metadata { log.name(peer: record.withLock { $0.peer }) }

    func drainTurn(on executor: TurnExecutor) { turn.drain(self, on: executor) }

    func leaveRestToLoop() {
        guard let registration = service.registration, !loop.isRegistered(registration) else { return askForTurn() }
        // The connection is no longer registered. The remaining messages fail, because the socket is closed.
        DispatchQueue.global().async { [self] in post(.retire) }
    }

    func askForTurn() {
        if let registration = service.registration { loop.resume(registration) }
    }

    // MARK: - Inside the turn

    /// Whether the turn is currently calling user code. Requests made by that code take effect immediately.
    var isCallingUser: Bool { outlet.isDelivering }

    var isCurrent: Bool { !service.isOver }

    func receive(_ message: Message) {
        let wasDelivering = outlet.leaveCallback()
        switch message {
        case .changeDelegateQueue: outlet.changeQueue()
        case .perform(let body): AsyncUDPSocket.call(body, with: record.withLock { $0.descriptors.map(\.socket.rawValue) })
        default: service.serve(message)
        }
        outlet.resumeCallback(wasDelivering)
    }

    func serveRequests() {
        service.pump()
    }

    func wishForTurn() {
        service.wishForTurn()
    }

    func publishProgress() {}

    func finishTurn(on executor: TurnExecutor) -> Bool {
        service.pump()
        outlet.deliver(on: executor, for: self)
        if service.isOver { retireIfSilent() } else { service.armDeadline() }
        return service.takeWish()
    }

    /// Deregisters from the loop once all events have been delivered.
    private func retireIfSilent() {
        guard outlet.isEmpty, let registration = service.registration else { return }
        loop.deregister(registration)
    }

    // MARK: - Tasks

    nonisolated(nonsending) func receive(_ limit: OperationLimit) async throws -> Datagram {
        try limit.check(.receive)
        let datagram: Datagram
        switch beginReceive(limit) {
        case .served(let served): datagram = served
        case .waits(let waiter): datagram = try await waiter.value(from: self)
        }
        if JobBudget.isUsedUp(by: self) { await JobBudget.renew() }
        return datagram
    }

    // A separate function, because a task that suspends keeps memory for the functions it is in.
    @inline(never)
    private func beginReceive(_ limit: OperationLimit) -> DirectReceive {
        if turn.enterIfFree() {
            let answer = service.takeOrWait(limit)
            leaveTurn()
            if let answer { return answer }
        }
        let waiter = DatagramWaiter(.receive, limit)
        post(.receive(waiter))
        return .waits(waiter)
    }

    nonisolated(nonsending) func send(_ data: Data, to target: DatagramTarget, _ limit: OperationLimit) async throws {
        try limit.check(.send)
        if let result = sendAtOnce(data, to: target) {
            // Checked even after a failure, because a task may retry in a loop.
            if JobBudget.isUsedUp(by: self) { await JobBudget.renew() }
            return try result.get()
        }
        try await askToSend(data, to: target, limit).value(from: self)
        if JobBudget.isUsedUp(by: self) { await JobBudget.renew() }
    }

    /// A separate function, so that the waiting task does not hold the packet in memory.
    @inline(never)
    private func askToSend(_ data: Data, to target: DatagramTarget, _ limit: OperationLimit) -> DoneWaiter {
        let waiter = DoneWaiter(.send, limit)
        post(.send(DatagramPacket(data, to: target, timeout: -1, completion: .waiter(waiter))))
        return waiter
    }

    private func sendAtOnce(_ data: Data, to target: DatagramTarget) -> Result<Void, any Error>? {
        guard turn.enterIfFree() else { return nil }
        defer { leaveTurn() }
        return data.withUnsafeBytes { service.sendAtOnce($0, to: target) }
    }

    private func leaveTurn() {
        turn.leaveOrDrain(self, asking: finishTurn(on: .caller))
    }
}
