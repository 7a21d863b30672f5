// Rules for collecting writes:
//  1. A write is sent immediately, unless the running code is likely to write more and signals when it
//     finishes. Such code is one delivery to an inline delegate, one block of callbacks on a delegate queue,
//     or one job of a task on the loop of its connection. Borrowed bytes written by a delegate are sent
//     before its callback returns, unless rule 2 applies or the completion of another write has not been
//     delivered yet.
//  2. More writes are likely while the connection's buffer holds unread bytes from the peer, which may
//     contain another message for the delegate; in a block of callbacks if another callback follows; and
//     when a job writes less than 4 KiB, after its first write that found no unread bytes.
//  3. The collected bytes are sent as soon as one of these is true: no more writes are likely; 64 KiB or a
//     limit of the write queue is reached; the code finishes; the connection closes, starts TLS, or accepts
//     no more writes; other code causes the connection to pump; `flush()` is called.
//  4. Receiving pauses while writes are collected.
//  5. Only writes on the thread that runs the code are collected. Writes from other threads are sent
//     immediately, together with the collected bytes.
//  6. A task's collected write is treated as complete, and the collected bytes are limited by rule 3. If the
//     kernel does not accept the bytes, the next write is delayed until they have been sent. If that takes
//     longer than their `timeout`, the connection fails.
//  7. When inline callbacks write more than once, the small writes are copied into one buffer, with a short
//     record of each. If the kernel does not accept the whole buffer, or another operation is queued, the
//     records are turned back into packets.

internal import Glibc
internal import Synchronization

/// The thread that is running code with writes that can be coalesced, because the code signals when it
/// finishes.
struct WriteCollector: ~Copyable, Sendable {
    enum Code: UInt {
        case job = 1
        /// A delivery to an inline delegate. It runs inside the turn, so the outlet detects it without
        /// storing the thread.
        case delivery = 2
        /// A callback in a block, with another callback to follow.
        case block = 3
    }

    // A thread number is an address, so its lowest bits are free for the code. The number equals the current
    // thread only while that code is running.
    private let word = Atomic<UInt>(0)

    /// Marks the start of code on this thread that may write. `close()` must follow.
    func open(for code: Code) {
        word.store(UInt(pthread_self()) | code.rawValue, ordering: .relaxed)
    }

    func close() {
        if code != nil { word.store(0, ordering: .relaxed) }
    }

    /// The code that is running on this thread, if any.
    @inline(__always)
    var code: Code? { Code(rawValue: word.load(ordering: .relaxed) ^ UInt(pthread_self())) }
}
