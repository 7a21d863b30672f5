internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// A datagram for a peer's socket, in one allocation.
struct PeerDatagram: Sendable {
    private final class Storage: ManagedBuffer<Header, UInt8> {}

    private struct Header {
        let count: Int
        let arrival: DatagramArrival
    }

    // It is not changed once it is made.
    nonisolated(unsafe) private let storage: ManagedBuffer<Header, UInt8>

    init(_ bytes: UnsafeRawBufferPointer, _ arrival: DatagramArrival) {
        storage = Storage.create(minimumCapacity: bytes.count) { _ in Header(count: bytes.count, arrival: arrival) }
        storage.withUnsafeMutablePointerToElements { room in
            UnsafeMutableRawBufferPointer(start: room, count: bytes.count).copyMemory(from: bytes)
        }
    }

    var arrival: DatagramArrival { storage.withUnsafeMutablePointerToHeader { $0.pointee.arrival } }

    /// Valid as long as the datagram.
    var bytes: UnsafeRawBufferPointer {
        storage.withUnsafeMutablePointers { UnsafeRawBufferPointer(start: $1, count: $0.pointee.count) }
    }
}

/// The memory that the mailboxes of a listener share: forged senders can make many of them.
final class MailboxSpace: Sendable {
    private let used = Atomic(0)
    /// The most bytes that wait in all mailboxes.
    let limit = Atomic(64 * 1024 * 1024)
    /// The most mailboxes.
    let mailboxLimit: Atomic<Int>

    init(mailboxLimit: Int) {
        self.mailboxLimit = Atomic(mailboxLimit)
    }

    /// Takes space for a datagram; false: it does not fit. One alone is never too much.
    ///
    /// Half of the space is kept for one datagram in each mailbox, so that those who fill theirs do not shut
    /// the others out.
    fileprivate func take(_ cost: Int, isFirst: Bool) -> Bool {
        let sum = used.add(cost, ordering: .relaxed).newValue
        let limit = limit.load(ordering: .relaxed)
        let half = limit / 2
        if sum == cost || sum <= half { return true }
        // There may be more mailboxes than the limit, which closes none.
        if isFirst, sum <= limit, cost <= half / mailboxLimit.load(ordering: .relaxed) { return true }
        give(cost)
        return false
    }

    fileprivate func give(_ cost: Int) {
        used.subtract(cost, ordering: .relaxed)
    }
}

/// The datagrams of one peer, on the way from the descriptor that all peers share to the peer's socket: what
/// the receive buffer of the kernel is for other sockets.
final class PeerMailbox: Sendable {
    private struct State {
        /// Few, so that taking the first one is cheap.
        var datagrams: [PeerDatagram] = []
        var byteCount = 0
        /// The socket has been told that there are datagrams.
        var isAnnounced = false
        var isClosed = false
    }

    private let state = Locked(State())
    private let space: MailboxSpace
    private let arrivals = Atomic(0)
    /// The most bytes that wait, with 256 for each datagram.
    private static let limit = 128 * 1024
    private static let costOfDatagram = 256

    /// Has a first datagram, which is announced; nil: it does not fit.
    init?(in space: MailboxSpace, with bytes: UnsafeRawBufferPointer, _ arrival: DatagramArrival) {
        self.space = space
        guard put(bytes, arrival) != nil else { return nil }
    }

    deinit { close() }

    /// Leaves a datagram.
    ///
    /// - Returns: Whether the socket has to be told; nil: the mailbox is full, and the datagram is dropped.
    func put(_ bytes: UnsafeRawBufferPointer, _ arrival: DatagramArrival) -> Bool? {
        arrivals.add(1, ordering: .relaxed)
        let cost = bytes.count + Self.costOfDatagram
        return state.withLock { state in
            guard !state.isClosed, state.byteCount == 0 || state.byteCount + cost <= Self.limit,
                space.take(cost, isFirst: state.byteCount == 0)
            else { return nil }
            state.byteCount += cost
            state.datagrams.append(PeerDatagram(bytes, arrival))
            defer { state.isAnnounced = true }
            return !state.isAnnounced
        }
    }

    /// The oldest; nil for an empty mailbox, and then the next one is announced.
    func take() -> PeerDatagram? {
        state.withLock { state in
            guard !state.datagrams.isEmpty else {
                state.isAnnounced = false
                return nil
            }
            // Mostly it is the only one.
            let datagram = state.datagrams.count == 1 ? state.datagrams.removeLast() : state.datagrams.removeFirst()
            let cost = datagram.bytes.count + Self.costOfDatagram
            state.byteCount -= cost
            space.give(cost)
            return datagram
        }
    }

    /// How many datagrams have come, with those that were dropped.
    var arrivalCount: Int { arrivals.load(ordering: .relaxed) }

    var isEmpty: Bool { state.withLock { $0.datagrams.isEmpty } }

    /// Drops what is there, and what comes.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.datagrams.removeAll()
            space.give(state.byteCount)
            state.byteCount = 0
        }
    }
}
