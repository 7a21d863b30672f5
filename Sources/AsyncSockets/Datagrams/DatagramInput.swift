// Rules of receiving:
//  1. Datagrams are received from the kernel only when the program needs them: a task is waiting, or the
//     delegate is receiving and has consumed most of the earlier datagrams. All other datagrams stay in the
//     kernel. When the kernel's buffer is full, it drops datagrams and counts them.
//  2. Order is preserved: datagrams that were received earlier but not delivered (`inbox`) are delivered
//     first.
//  3. Waiting tasks are served before the delegate. A task is completed with its datagram in one step, so a
//     cancellation loses no datagram: either the task is still waiting, or the cancellation is too late.
//  4. A reply is passed to its exchange before waiting tasks and the delegate. While an exchange is pending,
//     datagrams that nothing else receives are kept in `inbox`, up to 64 KiB.
//  5. A connected socket accepts datagrams only from its peer, even if datagrams from other senders were
//     received before it connected.
//  6. A turn receives a limited number of datagrams and records, so that other sockets on the loop are
//     served.
//  7. After the marker of `startDTLS`, no plaintext is received, except for a `receiveOnce()` called before
//     the marker was set. From the handshake on, all datagrams are passed to the DTLS layer, and the messages
//     that it decrypts are handled like datagrams. Up to 64 KiB of messages are received before they are
//     needed, to detect the end of the connection.

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The receiving half of a UDP socket. Confined to the turn.
final class DatagramInput {
    @exclusivity(unchecked) private var mode = ReceiveMode.off
    /// Tasks waiting for a datagram, oldest first.
    @exclusivity(unchecked) private var receivers: [DatagramWaiter] = []
    /// Datagrams received but not delivered yet, for example because a filter accepted them late.
    @exclusivity(unchecked) private var inbox = Ring<Datagram>()
    @exclusivity(unchecked) private var filter: ReceiveFilter?
    /// The number of datagrams that a filter on a queue has not judged yet.
    @exclusivity(unchecked) private var unjudgedCount = 0
    /// Whether a replaced filter is still judging datagrams. Until it has finished, no datagrams are
    /// received.
    @exclusivity(unchecked) private var isBetweenFilters = false
    @exclusivity(unchecked) private var limiter: SourceRateLimiter?
    /// Whether the marker of `startDTLS` is set. It is removed when the socket is secure.
    @exclusivity(unchecked) private var isStartingTLS = false
    /// The mode that was set after the marker. It takes effect when the socket is secure.
    @exclusivity(unchecked) private var modeBehindTLS: ReceiveMode?
    /// DTLS, or `nil` on a plaintext socket.
    @exclusivity(unchecked) private var layer: DatagramLayer?
    /// The memory cost of `inbox`. On a secure socket, it is limited by `aheadLimit`.
    @exclusivity(unchecked) private var inboxCost = 0
    @exclusivity(unchecked) private(set) var byteCount = 0
    @exclusivity(unchecked) private(set) var datagramCount = 0
    @exclusivity(unchecked) private var exchanges = Exchanges()
    private var failureReaders: [DeliveryFailureReader] = []
    private let credit: ReceiveCredit
    private let outbox: EventOutbox<DatagramEvent>
    private let counts: DatagramCounts
    private let post: @Sendable (DatagramMessage) -> Void
    /// The channel to read first. It alternates so that both channels are served.
    @exclusivity(unchecked) private var firstChannel = 0

    private static let datagramsPerTurn = 128
    private static let bytesPerTurn = 1 << 20
    private static let aheadLimit = 64 * 1024

    init(_ outbox: EventOutbox<DatagramEvent>, _ counts: DatagramCounts, post: @escaping @Sendable (DatagramMessage) -> Void) {
        self.outbox = outbox
        self.counts = counts
        self.post = post
        credit = ReceiveCredit(limit: DatagramConfiguration().maximumPendingReceiveBytes, counts) { post(.roomIsBack) }
    }

    // MARK: - Requests

    func setMode(_ mode: ReceiveMode) {
        guard isStartingTLS else { return self.mode = mode }
        modeBehindTLS = mode
        if mode == .off { self.mode = .off }
    }

    func setFilter(_ filter: ReceiveFilter?) {
        self.filter = filter
        // The old filter must first judge the datagrams that were passed to it.
        isBetweenFilters = unjudgedCount > 0
    }

    func configure(_ old: DatagramConfiguration, _ new: DatagramConfiguration) {
        credit.setLimit(max(new.maximumPendingReceiveBytes, 1))
        if old.rateLimit != new.rateLimit { limiter = new.rateLimit.map { SourceRateLimiter($0) } }
    }

    func append(_ receiver: DatagramWaiter) {
        receivers.append(receiver)
    }

    func serve(_ exchange: Exchange, _ step: ExchangeStep) {
        switch step {
        case .begins: exchanges.begin(exchange)
        case .awaits(let waiter): if !exchanges.await(exchange, waiter) { waiter.answer(.failure(layer?.end ?? .closed)) }
        case .ends: exchanges.end(exchange)
        }
    }

    /// Returns a datagram for a task if a datagram is available and no other task is waiting. Otherwise, adds
    /// the task to the waiting tasks. Returns `nil` if there may be more datagrams than a turn should take,
    /// or if earlier work must be done first.
    func takeOrWait(
        _ channels: [DatagramChannel], _ peer: InternetAddress?, _ limit: OperationLimit
    ) -> DirectReceive? {
        guard receivers.isEmpty, !isStartingTLS else { return nil }
        let recordLimit = recordCount + DatagramLayer.recordsPerTurn
        for _ in 0..<Self.datagramsPerTurn where recordCount < recordLimit {
            if let datagram = takeFromInbox() { return .served(datagram) }
            guard unjudgedCount == 0 else { return nil }
            if takeNext(channels, peer, isForTask: true) { continue }
            let waiter = DatagramWaiter(.receive, limit)
            receivers.append(waiter)
            return .waits(waiter)
        }
        return nil
    }

    private func takeFromInbox() -> Datagram? {
        guard let datagram = inbox.popFirst() else { return nil }
        inboxCost -= datagram.cost
        return datagram
    }

    // MARK: - DTLS

    /// Whether tasks are waiting for datagrams, which could arrive either before or after an upgrade.
    var hasReceivers: Bool { !receivers.isEmpty || exchanges.isPending }

    func appendStartTLS() {
        isStartingTLS = true
    }

    /// Whether all plaintext requested before the marker has been received.
    var isAtStartTLS: Bool { isStartingTLS && layer == nil && unjudgedCount == 0 && mode != .once }

    /// Routes all further datagrams to DTLS. Undelivered plaintext datagrams are dropped.
    func secure(_ layer: DatagramLayer) {
        self.layer = layer
        inbox.removeAll()
        inboxCost = 0
    }

    /// Called when the socket is secure.
    func removeStartTLS() {
        isStartingTLS = false
        if let modeBehindTLS { mode = modeBehindTLS }
    }

    /// Whether all received datagrams have been delivered.
    var isDrained: Bool { inbox.isEmpty && unjudgedCount == 0 }

    // MARK: - The pump

    /// Receives the datagrams that the program needs. Returns whether another turn is required because more
    /// may be available.
    func pump(_ channels: [DatagramChannel], _ peer: InternetAddress?) -> Bool {
        serveInbox()
        if let end = layer?.end { exchanges.refuse(end) }
        let limit = byteCount + Self.bytesPerTurn
        let recordLimit = recordCount + DatagramLayer.recordsPerTurn
        for _ in 0..<Self.datagramsPerTurn where byteCount < limit && recordCount < recordLimit {
            guard wantsDatagram, takeNext(channels, peer) else {
                return wantsDatagram && channels.contains { $0.mayHaveInput }
            }
        }
        return wantsDatagram
    }

    private var recordCount: Int { layer?.acceptedRecordCount ?? 0 }

    private var wantsDatagram: Bool {
        if isBetweenFilters { return false }
        if isStartingTLS { return layer == nil && mode == .once && unjudgedCount == 0 }
        if exchanges.isPending { return layer?.end == nil && unjudgedCount == 0 }
        if let layer { return layer.end == nil && inboxCost < Self.aheadLimit && unjudgedCount == 0 }
        if !receivers.isEmpty { return unjudgedCount < receivers.count }
        switch mode {
        case .off: return false
        case .once: return unjudgedCount == 0
        case .continuous where counts.isUpgradeClaimed.load(ordering: .relaxed): return false
        case .continuous: return credit.hasRoom
        }
    }

    private func next(_ channels: [DatagramChannel]) -> ReceivedDatagram? {
        firstChannel += 1
        for offset in 0..<channels.count {
            if let received = channels[(firstChannel + offset) % channels.count].next() { return received }
        }
        return nil
    }

    /// Handles the next DTLS message or the next datagram. Returns false if neither is available.
    private func takeNext(_ channels: [DatagramChannel], _ peer: InternetAddress?, isForTask: Bool = false) -> Bool {
        if let layer, let last = layer.lastArrival, let message = layer.next() {
            accept(message.count, Datagram(message, from: last.sender, last.arrival), isForTask)
            return true
        }
        guard let received = next(channels) else { return false }
        take(received, peer, isForTask: isForTask)
        return true
    }

    /// - Parameter isForTask: Whether a task takes the accepted datagram immediately from the inbox.
    private func take(_ received: ReceivedDatagram, _ peer: InternetAddress?, isForTask: Bool = false) {
        if let peer, peer != received.sender { return }
        if limiter != nil, limiter?.judge(received.sender.socketAddress, at: .now) != .admitted {
            counts.rateLimited.add(1, ordering: .relaxed)
            return
        }
        if let layer { return layer.receive(received) }
        let datagram = Datagram(Data(received.bytes), from: received.sender, received.arrival)
        accept(received.bytes.count, consume datagram, isForTask)
    }

    /// Counts a datagram, and passes it to the filter if there is a filter.
    private func accept(_ count: Int, _ datagram: consuming Datagram, _ isForTask: Bool) {
        byteCount += count
        datagramCount += 1
        if filter == nil { accept(consume datagram, isForTask) } else { askFilter(datagram, isForTask) }
    }

    private func askFilter(_ datagram: Datagram, _ isForTask: Bool) {
        guard let filter else { return }
        unjudgedCount += 1
        credit.take(datagram.cost)
        let verdict = filter.judge(datagram) { [post] in post(.judgedReceive(datagram, $0)) }
        if let verdict { settle(datagram, verdict, isForTask) }
    }

    func settle(_ datagram: Datagram, _ verdict: DatagramVerdict, _ isForTask: Bool = false) {
        unjudgedCount -= 1
        if unjudgedCount == 0 { isBetweenFilters = false }
        credit.give(datagram.cost)
        switch verdict {
        case .accept(let context): accept(datagram.with(context), isForTask)
        case .drop: break
        }
    }

    private func accept(_ datagram: consuming Datagram, _ isForTask: Bool) {
        if isStartingTLS {
            // The datagram arrived before the marker, as did the `receiveOnce()`. All waiting tasks were
            // added after the marker.
            if mode == .once { deliver(consume datagram) }
        } else if exchanges.isPending, takeForExchange(datagram, isForTask) {
            return
        } else if !isForTask, inbox.isEmpty, !receivers.isEmpty {
            receivers.removeFirst().answer(.success(consume datagram))
        } else if isForTask || !receivers.isEmpty || mode == .off || !inbox.isEmpty || layer != nil {
            inboxCost += datagram.cost
            inbox.append(consume datagram)
            if !isForTask { serveInbox() }
        } else {
            deliver(consume datagram)
        }
    }

    /// Passes a datagram to its exchange, or drops it if keeping it would exceed the memory limit. Without an
    /// exchange, it would have stayed in the kernel.
    ///
    /// A separate function, because its references cost 300 instructions per datagram when it is inlined.
    @inline(never)
    private func takeForExchange(_ datagram: Datagram, _ isForTask: Bool) -> Bool {
        if exchanges.take(datagram) { return true }
        guard !isForTask, exceedsLimit(datagram.cost) else { return false }
        counts.mailboxDrops.add(1, ordering: .relaxed)
        return true
    }

    private func exceedsLimit(_ cost: Int) -> Bool {
        guard receivers.isEmpty else { return false }
        if mode == .continuous, layer == nil, inbox.isEmpty { return !credit.hasRoom }
        return !inbox.isEmpty && inboxCost + cost > Self.aheadLimit
    }

    private func deliver(_ datagram: consuming Datagram) {
        let endsAtUpgrade = layer == nil && mode != .once
        if mode == .once { mode = .off }
        credit.take(datagram.cost)
        outbox.append(.didReceive(DatagramArrived(datagram, credit, endsAtUpgrade: endsAtUpgrade)))
    }

    /// Reports that the network did not deliver a datagram. Other hosts control the number of these reports,
    /// so reports to the delegate are dropped while too many of its events are undelivered.
    func report(_ error: AsyncSocketError, about address: SocketEndpoint?) {
        exchanges.noteFailure(error, at: address)
        for reader in failureReaders { reader.report(DeliveryFailure(address: address, error: error)) }
        guard credit.hasRoom else { return }
        credit.take(ReceiveCredit.costOfReport)
        outbox.append(.didFailToReach(address, error, credit))
    }

    func reportFailures(to reader: DeliveryFailureReader, _ isWanted: Bool) {
        if isWanted { failureReaders.append(reader) } else { failureReaders.removeAll { $0 === reader } }
    }

    /// Delivers received datagrams to the waiting tasks and to the delegate.
    private func serveInbox() {
        if isStartingTLS { return }
        while !receivers.isEmpty, let datagram = takeFromInbox() { receivers.removeFirst().answer(.success(datagram)) }
        while mode != .off, layer == nil || credit.hasRoom, let datagram = takeFromInbox() { deliver(datagram) }
    }

    // MARK: - Cancellation and timeouts

    /// Returns false if the waiter is not in `receivers`.
    func cancel(_ waiter: AnyObject, _ error: any Error) -> Bool {
        guard let index = receivers.firstIndex(where: { $0 === waiter }) else { return exchanges.cancel(waiter, error) }
        receivers.remove(at: index).answer(.failure(error))
        return true
    }

    /// Fails all waiting tasks. Undelivered datagrams are lost.
    func drop(_ error: AsyncSocketError) {
        mode = .off
        filter = nil
        inbox.removeAll()
        refuse(error)
        for reader in failureReaders { reader.finish() }
        failureReaders = []
    }

    func refuse(_ error: AsyncSocketError) {
        exchanges.refuse(error)
        let refused = receivers
        receivers = []
        for receiver in refused { receiver.answer(.failure(error)) }
    }

    var deadline: Deadline? {
        if receivers.isEmpty { return exchanges.deadline }
        return receivers.reduce(exchanges.deadline) { .earlier($0, $1.deadline) }
    }

    /// - Parameter denial: The error that paused receiving, or `nil` if receiving is not paused. It is
    ///   reported instead of the timeout.
    func expire(at now: Deadline, _ denial: AsyncSocketError?) {
        while let late = receivers.first(where: { $0.deadline.map { $0 <= now } ?? false }) {
            _ = cancel(late, denial ?? late.lateError)
        }
        exchanges.expire(at: now, denial)
    }
}
