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

    // Immutable after initialization.
    nonisolated(unsafe) private let storage: ManagedBuffer<Header, UInt8>

    init(_ bytes: UnsafeRawBufferPointer, _ arrival: DatagramArrival) {
        storage = Storage.create(minimumCapacity: bytes.count) { _ in Header(count: bytes.count, arrival: arrival) }
        storage.withUnsafeMutablePointerToElements { room in
            UnsafeMutableRawBufferPointer(start: room, count: bytes.count).copyMemory(from: bytes)
        }
    }

    var arrival: DatagramArrival { storage.withUnsafeMutablePointerToHeader { $0.pointee.arrival } }

    /// Valid as long as the datagram exists.
    var bytes: UnsafeRawBufferPointer {
        storage.withUnsafeMutablePointers { UnsafeRawBufferPointer(start: $1, count: $0.pointee.count) }
    }
}

/// The memory budget that a listener's mailboxes share. It is limited because forged senders can create many
/// mailboxes.
final class MailboxSpace: Sendable {
    /// The memory that the mailboxes of some sources use together.
    final class Share: Sendable {
        fileprivate let used = Atomic(0)
    }

    private let used = Atomic(0)
    /// Sources share these, chosen by a hash that a sender cannot predict, so their number is constant.
    private let shares = (0..<shareCount).map { _ in Share() }
    /// The maximum number of bytes in all mailboxes together.
    let limit = Atomic(64 * 1024 * 1024)
    let mailboxLimit: Atomic<Int>

    init(mailboxLimit: Int) {
        self.mailboxLimit = Atomic(mailboxLimit)
    }

    private static let shareCount = 128

    /// The number of bytes in all mailboxes together.
    var byteCount: Int { used.load(ordering: .relaxed) }

    /// Swift seeds its hashes differently in each process.
    func share(of source: SourceKey) -> Share { shares[Int(UInt(bitPattern: source.hashValue) % UInt(Self.shareCount))] }

    /// Reserves space for a datagram. Returns false if the datagram does not fit. A single datagram always
    /// fits.
    ///
    /// Half of the space is reserved for one datagram per mailbox, so that peers with full mailboxes do not
    /// shut out other peers. A share has at most four fifths of the other half.
    fileprivate func take(_ cost: Int, isFirst: Bool, in share: Share?) -> Bool {
        let sum = used.add(cost, ordering: .relaxed).newValue
        let ofShare = share?.used.add(cost, ordering: .relaxed).newValue ?? 0
        let limit = limit.load(ordering: .relaxed)
        let half = limit / 2
        if sum == cost || sum <= half && ofShare <= SourceKey.share(of: half) { return true }
        // There may be more mailboxes than the limit, because lowering the limit does not close any.
        if isFirst, sum <= limit, cost <= half / mailboxLimit.load(ordering: .relaxed) { return true }
        give(cost, in: share)
        return false
    }

    fileprivate func give(_ cost: Int, in share: Share?) {
        used.subtract(cost, ordering: .relaxed)
        share?.used.subtract(cost, ordering: .relaxed)
    }
}

/// Passes datagrams from the descriptor that all peers share to the socket of one peer, as the kernel's
/// receive buffer does for other sockets.
final class PeerMailbox: Sendable {
    private struct State {
        /// Only a few datagrams, so removing the first one is cheap.
        var datagrams: [PeerDatagram] = []
        var byteCount = 0
        var isAnnounced = false
        var isClosed = false
    }

    private let state = Locked(State())
    private let space: MailboxSpace
    private let share: MailboxSpace.Share?
    private let arrivals = Atomic(0)
    /// The maximum number of bytes in a mailbox, including an overhead of 256 bytes per datagram.
    private static let limit = 128 * 1024
    private static let costOfDatagram = 256

    /// Creates a mailbox with a first datagram, which is treated as already announced. Returns `nil` if the
    /// datagram does not fit.
    ///
    /// - Parameter share: The share of the peer's source, or `nil` without a limit for each source.
    init?(in space: MailboxSpace, _ share: MailboxSpace.Share?, with bytes: UnsafeRawBufferPointer, _ arrival: DatagramArrival) {
        (self.space, self.share) = (space, share)
        guard put(bytes, arrival) != nil else { return nil }
    }

    deinit { close() }

    /// Adds a datagram.
    ///
    /// - Returns: Whether the socket must be notified, or `nil` if the datagram was dropped because the
    ///   mailbox is full.
    func put(_ bytes: UnsafeRawBufferPointer, _ arrival: DatagramArrival) -> Bool? {
        arrivals.add(1, ordering: .relaxed)
        let cost = bytes.count + Self.costOfDatagram
        return state.withLock { state in
            guard !state.isClosed, state.byteCount == 0 || state.byteCount + cost <= Self.limit,
                space.take(cost, isFirst: state.byteCount == 0, in: share)
            else { return nil }
            state.byteCount += cost
            state.datagrams.append(PeerDatagram(bytes, arrival))
            defer { state.isAnnounced = true }
            return !state.isAnnounced
        }
    }

    /// Removes the oldest datagram. Returns `nil` if the mailbox is empty; then the next datagram is
    /// announced again.
    func take() -> PeerDatagram? {
        state.withLock { state in
            guard !state.datagrams.isEmpty else {
                state.isAnnounced = false
                return nil
            }
            // Usually there is only one datagram.
            let datagram = state.datagrams.count == 1 ? state.datagrams.removeLast() : state.datagrams.removeFirst()
            let cost = datagram.bytes.count + Self.costOfDatagram
            state.byteCount -= cost
            space.give(cost, in: share)
            return datagram
        }
    }

    /// The number of datagrams that have arrived, including dropped ones.
    var arrivalCount: Int { arrivals.load(ordering: .relaxed) }

    var isEmpty: Bool { state.withLock { $0.datagrams.isEmpty } }

    /// Drops all datagrams, now and in the future.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.datagrams.removeAll()
            space.give(state.byteCount, in: share)
            state.byteCount = 0
        }
    }
}
