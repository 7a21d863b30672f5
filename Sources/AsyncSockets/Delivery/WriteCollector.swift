// Rules of collecting:
//  1. A write leaves at once, unless code that is running is likely to write more and says when it is over.
//     That code is one delivery to an inline delegate, one block of callbacks on a delegate queue, or one job
//     of a task on the loop of its connection. Bytes that a delegate borrows do not wait for the end of its
//     callback, unless rule 2 holds or another write of it is complete.
//  2. More is likely while bytes of the peer lie unread in the connection's buffer, in which a delegate finds
//     another message; and in a block of callbacks while another callback follows.
//  3. The collected bytes leave as soon as one of these is true: nothing more is likely; 64 KiB are together,
//     or as much as one of the limits of the queue allows; the code is over; the connection ends, begins TLS,
//     or is to write nothing more; anyone else has the connection pump; `flush()` is called.
//  4. Reading waits with the writes: nothing is received while writes are collected.
//  5. Only the thread of that code collects. Writes of others leave at once, and take with them what is
//     collected.
//  6. A task's write that is collected counts as written, and its bytes are at most as many as rule 3 says.
//     When they have to wait for the kernel, the next write waits behind them. If they wait longer than their
//     `timeout`, the connection ends.

internal import Glibc
internal import Synchronization

/// The thread whose code writes, and says when it is over: its writes may leave together.
struct WriteCollector: ~Copyable, Sendable {
    /// The code that runs.
    enum Code: UInt {
        /// A job of a task.
        case job = 1
        /// A delivery to an inline delegate. It is inside the turn, so the outlet knows of it without the
        /// thread.
        case delivery = 2
        /// A callback of a block, in which another one follows.
        case block = 3
    }

    // The number of a thread is an address, so the lowest bits are free. A thread finds its own number here
    // only while its code runs.
    private let word = Atomic<UInt>(0)

    /// The code of this thread writes from now on; `close()` follows.
    func open(for code: Code) {
        word.store(UInt(pthread_self()) | code.rawValue, ordering: .relaxed)
    }

    func close() {
        if code != nil { word.store(0, ordering: .relaxed) }
    }

    /// The code of this thread that has opened it.
    @inline(__always)
    var code: Code? { Code(rawValue: word.load(ordering: .relaxed) ^ UInt(pthread_self())) }
}
