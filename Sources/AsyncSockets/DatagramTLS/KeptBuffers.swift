internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// How many sockets keep the buffers of OpenSSL while they are quiet: to free them and to allocate them again
/// takes a third of a message, and each socket has 34 KiB of them.
package final class KeptBuffers: Sendable {
    package static let shared = KeptBuffers(limit: 256)

    private let limit: Int
    private let count = Atomic(0)

    init(limit: Int) {
        self.limit = limit
    }

    /// The number of sockets that keep theirs.
    package var keptCount: Int { count.load(ordering: .relaxed) }

    /// False: there are enough.
    func take() -> Bool {
        if count.add(1, ordering: .relaxed).newValue <= limit { return true }
        give()
        return false
    }

    func give() {
        count.subtract(1, ordering: .relaxed)
    }
}

/// When a quiet socket frees its buffers: at once, or when it has not been used for a while.
struct BufferRest {
    private let shared: KeptBuffers
    /// When it looks whether the socket was used; `never`: nothing is kept.
    private(set) var deadline = Deadline.never
    private var wasUsed = false

    /// The seconds between two looks.
    static let interval = 1.0

    init(_ shared: KeptBuffers) {
        self.shared = shared
    }

    /// The socket is quiet. False: its buffers are to be freed.
    ///
    /// - Parameter now: Nil: the clock is read if that is needed.
    mutating func keep(at now: Deadline? = nil) -> Bool {
        wasUsed = true
        if !deadline.isNever { return true }
        guard shared.take() else { return false }
        deadline = Deadline(after: Self.interval, from: now ?? .now) ?? .never
        wasUsed = false
        return true
    }

    /// True: the socket was not used since the last look, and its buffers are to be freed.
    mutating func expire(at now: Deadline) -> Bool {
        guard deadline.isAtMost(now) else { return false }
        guard wasUsed else {
            end()
            return true
        }
        wasUsed = false
        deadline = Deadline(after: Self.interval, from: now) ?? .never
        return false
    }

    /// The buffers are freed, or the socket is over.
    mutating func end() {
        guard !deadline.isNever else { return }
        deadline = .never
        shared.give()
    }
}
