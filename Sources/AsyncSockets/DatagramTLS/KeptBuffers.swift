internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// Limits the number of idle sockets that keep OpenSSL's buffers. Freeing and reallocating the buffers takes
/// a third of the time needed for a message, and the buffers of one socket take 34 KiB.
package final class KeptBuffers: Sendable {
    package static let shared = KeptBuffers(limit: 256)

    private let limit: Int
    private let count = Atomic(0)

    init(limit: Int) {
        self.limit = limit
    }

    /// The number of sockets that currently keep their buffers.
    package var keptCount: Int { count.load(ordering: .relaxed) }

    /// Reserves a place for a socket's buffers. Returns false if the limit is reached.
    func take() -> Bool {
        if count.add(1, ordering: .relaxed).newValue <= limit { return true }
        give()
        return false
    }

    func give() {
        count.subtract(1, ordering: .relaxed)
    }
}

/// Decides when an idle socket frees its buffers: immediately, or after it has been unused for some time.
struct BufferRest {
    private let shared: KeptBuffers
    /// When to check whether the socket was used; `never` if no place is reserved for its buffers.
    private(set) var deadline = Deadline.never
    private var wasUsed = false

    /// The time between two checks in seconds.
    static let interval = 1.0

    init(_ shared: KeptBuffers) {
        self.shared = shared
    }

    /// Called when the socket is idle. Returns false if its buffers should be freed.
    ///
    /// - Parameter now: The current time. If `nil`, the clock is read only if needed.
    mutating func keep(at now: Deadline? = nil) -> Bool {
        wasUsed = true
        if !deadline.isNever { return true }
        guard shared.take() else { return false }
        deadline = Deadline(after: Self.interval, from: now ?? .now) ?? .never
        wasUsed = false
        return true
    }

    /// Returns true if the socket has not been used since the last check and its buffers should be freed.
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

    /// Called when the buffers are freed or the socket closes.
    mutating func end() {
        guard !deadline.isNever else { return }
        deadline = .never
        shared.give()
    }
}
