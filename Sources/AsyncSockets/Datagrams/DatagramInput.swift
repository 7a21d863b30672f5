// Rules of receiving:
//  1. The kernel is asked for datagrams only when the program wants one: a task waits, or the delegate
//     receives and has had most of those before. All others wait in the kernel, which drops what it has no
//     room for, and counts that.
//  2. Order is kept: what was received before, and is not delivered yet, comes first (`inbox`).
//  3. A task that waits comes before the delegate. Its answer and its datagram are one, so a cancellation
//     loses none: it finds the task waiting, or comes too late.
//  4. A connected socket hears its peer alone, also when others were received before it connected.
//  5. A turn takes a limited number, of datagrams and of records, so that others on the loop get theirs.
//  6. Behind the marker of `startDTLS` nothing in plaintext is received, except for a `receiveOnce()` that
//     came before it. From the handshake on all that arrives goes to the layer, and its messages take the
//     same way as datagrams do. Up to 64 KiB of them are received ahead, since an end must be noticed.

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The receiving half of a UDP socket. Confined to the turn.
final class DatagramInput {
    @exclusivity(unchecked) private var mode = ReceiveMode.off
    /// Tasks that wait for a datagram, oldest first.
    @exclusivity(unchecked) private var receivers: [DatagramWaiter] = []
    /// Datagrams that are received and not delivered yet: a filter has accepted it late.
    @exclusivity(unchecked) private var inbox = Ring<Datagram>()
    @exclusivity(unchecked) private var filter: ReceiveFilter?
    /// Datagrams that a filter on a queue has not judged yet.
    @exclusivity(unchecked) private var unjudgedCount = 0
    /// Some of them are for an earlier filter: nothing is received until they are judged.
    @exclusivity(unchecked) private var isBetweenFilters = false
    @exclusivity(unchecked) private var limiter: DatagramRateLimiter?
    /// The marker of `startDTLS` is here, and goes when the socket is secure.
    @exclusivity(unchecked) private var isStartingTLS = false
    /// The mode that was set behind the marker.
    @exclusivity(unchecked) private var modeBehindTLS: ReceiveMode?
    /// DTLS; nil on a socket in plaintext.
    @exclusivity(unchecked) private var layer: DatagramLayer?
    /// The share of the memory limit that `inbox` takes on a secure socket.
    @exclusivity(unchecked) private var inboxCost = 0
    /// The bytes that were received.
    @exclusivity(unchecked) private(set) var byteCount = 0
    @exclusivity(unchecked) private(set) var datagramCount = 0
    /// Tasks that want to know of datagrams that did not arrive.
    private var failureReaders: [DeliveryFailureReader] = []
    private let credit: ReceiveCredit
    private let outbox: EventOutbox<DatagramEvent>
    private let counts: DatagramCounts
    private let post: @Sendable (DatagramMessage) -> Void
    /// The channel that is asked first, so that both get their turn.
    @exclusivity(unchecked) private var firstChannel = 0

    private static let datagramsPerTurn = 128
    private static let bytesPerTurn = 1 << 20
    /// Of DTLS. A datagram may have thousands, and each costs, also one that is not authentic.
    static let recordsPerTurn = 256
    private static let aheadLimit = 64 * 1024

    init(_ outbox: EventOutbox<DatagramEvent>, _ counts: DatagramCounts, post: @escaping @Sendable (DatagramMessage) -> Void) {
        self.outbox = outbox
        self.counts = counts
        self.post = post
        credit = ReceiveCredit(limit: DatagramConfiguration().maximumPendingReceiveBytes.count, counts) { post(.roomIsBack) }
    }

    // MARK: - Asking

    func setMode(_ mode: ReceiveMode) {
        guard isStartingTLS else { return self.mode = mode }
        modeBehindTLS = mode
        if mode == .off { self.mode = .off }
    }

    func setFilter(_ filter: ReceiveFilter?) {
        self.filter = filter
        // Datagrams that the old one has not judged come first.
        isBetweenFilters = unjudgedCount > 0
    }

    func configure(_ old: DatagramConfiguration, _ new: DatagramConfiguration) {
        credit.setLimit(max(new.maximumPendingReceiveBytes.count, 1))
        if old.rateLimit != new.rateLimit { limiter = new.rateLimit.map { DatagramRateLimiter($0) } }
    }

    func append(_ receiver: DatagramWaiter) {
        receivers.append(receiver)
    }

    /// A datagram for a task, if there is one now, and no other task waits for it. When nothing is there, the
    /// task waits. Nil: there may be more than a turn should take, or something else comes first.
    func takeOrWait(
        _ channels: [DatagramChannel], _ peer: InternetAddress?, _ limit: OperationLimit
    ) -> DirectReceive? {
        guard receivers.isEmpty, !isStartingTLS else { return nil }
        let recordLimit = recordCount + Self.recordsPerTurn
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

    /// Tasks wait: their datagrams could come before or after an upgrade.
    var hasReceivers: Bool { !receivers.isEmpty }

    func appendStartTLS() {
        isStartingTLS = true
    }

    /// Nothing in plaintext is wanted any more.
    var isAtStartTLS: Bool { isStartingTLS && layer == nil && unjudgedCount == 0 && mode != .once }

    /// From here on all that arrives is of DTLS. Datagrams in plaintext that were not delivered are dropped.
    func secure(_ layer: DatagramLayer) {
        self.layer = layer
        inbox.removeAll()
        inboxCost = 0
    }

    /// The socket is secure.
    func removeStartTLS() {
        isStartingTLS = false
        if let modeBehindTLS { mode = modeBehindTLS }
    }

    /// All that was received is delivered.
    var isDrained: Bool { inbox.isEmpty && unjudgedCount == 0 }

    // MARK: - The pump

    /// Receives what is wanted; true when there may be more than a turn should take.
    func pump(_ channels: [DatagramChannel], _ peer: InternetAddress?) -> Bool {
        serveInbox()
        let limit = byteCount + Self.bytesPerTurn
        let recordLimit = recordCount + Self.recordsPerTurn
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

    /// Takes the next datagram, or the next message of one; false: nothing has come.
    private func takeNext(_ channels: [DatagramChannel], _ peer: InternetAddress?, isForTask: Bool = false) -> Bool {
        if let layer, let last = layer.lastArrival, let message = layer.next() {
            accept(message.count, Datagram(message, from: last.sender, last.arrival), isForTask)
            return true
        }
        guard let received = next(channels) else { return false }
        take(received, peer, isForTask: isForTask)
        return true
    }

    /// - Parameter isForTask: A task takes what is accepted at once.
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

    /// Has the filter judge a datagram.
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

    /// The filter has answered.
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
            // It came before the marker, as `receiveOnce()` did, and all others who wait came behind it.
            if mode == .once { deliver(consume datagram) }
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

    private func deliver(_ datagram: consuming Datagram) {
        let endsAtUpgrade = layer == nil && mode != .once
        if mode == .once { mode = .off }
        credit.take(datagram.cost)
        outbox.append(.didReceive(DatagramArrived(datagram, credit, endsAtUpgrade: endsAtUpgrade)))
    }

    /// A datagram did not arrive, as the network says. Others decide how many of these reports there are: a
    /// delegate that is behind gets no more.
    func report(_ error: AsyncSocketError, about address: SocketAddress?) {
        for reader in failureReaders { reader.report(DeliveryFailure(address: address, error: error)) }
        guard credit.hasRoom else { return }
        credit.take(ReceiveCredit.costOfReport)
        outbox.append(.didFailToReach(address, error, credit))
    }

    func reportFailures(to reader: DeliveryFailureReader, _ isWanted: Bool) {
        if isWanted { failureReaders.append(reader) } else { failureReaders.removeAll { $0 === reader } }
    }

    /// Gives what was received to those who wait for it.
    private func serveInbox() {
        if isStartingTLS { return }
        while !receivers.isEmpty, let datagram = takeFromInbox() { receivers.removeFirst().answer(.success(datagram)) }
        while mode != .off, layer == nil || credit.hasRoom, let datagram = takeFromInbox() { deliver(datagram) }
    }

    // MARK: - The end of a wait

    /// False when the waiter does not wait here.
    func cancel(_ waiter: AnyObject, _ error: any Error) -> Bool {
        guard let index = receivers.firstIndex(where: { $0 === waiter }) else { return false }
        receivers.remove(at: index).answer(.failure(error))
        return true
    }

    /// Ends all waits. Datagrams that were not delivered are lost.
    func drop(_ error: AsyncSocketError) {
        mode = .off
        filter = nil
        inbox.removeAll()
        refuse(error)
        for reader in failureReaders { reader.finish() }
        failureReaders = []
    }

    /// Answers the tasks that wait with an error.
    func refuse(_ error: AsyncSocketError) {
        let refused = receivers
        receivers = []
        for receiver in refused { receiver.answer(.failure(error)) }
    }

    var deadline: Deadline? {
        receivers.isEmpty ? nil : receivers.reduce(nil) { .earlier($0, $1.deadline) }
    }

    /// - Parameter denial: Why receiving is paused, if it is. Reported instead of the timeout.
    func expire(at now: Deadline, _ denial: AsyncSocketError?) {
        while let late = receivers.first(where: { $0.deadline.map { $0 <= now } ?? false }) {
            _ = cancel(late, denial ?? late.lateError)
        }
    }
}
