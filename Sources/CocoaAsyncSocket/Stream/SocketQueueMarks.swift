internal import Dispatch
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// Where code runs "on the socket's queue": on the queue that the socket was given, on one that was marked,
/// and in a block of `perform(_:)`.
///
/// Without a queue of its own the core runs on its event loops, so that a thread is remembered for `perform`.
final class SocketQueueMarks {
    private let key = DispatchSpecificKey<Bool>()
    private let queues = Locked<[DispatchQueue]>([])
    /// The thread that runs a block of `perform(_:)`; zero: none.
    private let performer = Atomic<pthread_t>(0)
    /// The descriptor that the block may use; -1: none.
    private let openDescriptor = Atomic<Int32>(-1)

    init(_ queue: DispatchQueue?) {
        if let queue { mark(queue) }
    }

    deinit {
        // The address of the key may serve another socket next.
        for queue in queues.withLock({ $0 }) { queue.setSpecific(key: key, value: nil) }
    }

    func mark(_ queue: DispatchQueue) {
        queue.setSpecific(key: key, value: true)
        queues.withLock { $0.append(queue) }
    }

    func unmark(_ queue: DispatchQueue) {
        queue.setSpecific(key: key, value: nil)
        queues.withLock { $0.removeAll { $0 === queue } }
    }

    /// True for code that runs on the socket's queue.
    var isCurrent: Bool {
        performer.load(ordering: .relaxed) == pthread_self() || DispatchQueue.getSpecific(key: key) == true
    }

    /// The descriptor that the core has given to the block that runs here; of a listener a copy.
    var descriptor: Int32? {
        let descriptor = openDescriptor.load(ordering: .relaxed)
        return performer.load(ordering: .relaxed) == pthread_self() && descriptor >= 0 ? descriptor : nil
    }

    /// Runs `block` on the socket's queue, and waits for it: `start` begins its argument there.
    func performAndWait(_ block: @escaping () -> Void, start: (@escaping @Sendable (_ descriptor: Int32?) -> Void) -> Void) {
        if isCurrent { return block() }
        // Handed to one thread, for which this one waits.
        nonisolated(unsafe) let block = block
        nonisolated(unsafe) let marks = self
        let done = DispatchSemaphore(value: 0)
        start { descriptor in
            marks.openDescriptor.store(descriptor ?? -1, ordering: .relaxed)
            marks.performer.store(pthread_self(), ordering: .relaxed)
            block()
            marks.performer.store(0, ordering: .relaxed)
            done.signal()
        }
        done.wait()
    }
}

extension DispatchQueue {
    /// A serial queue to call a delegate on: this one, or for a global queue one of its own with the same
    /// target.
    ///
    /// On a global queue the callbacks of the original could overtake each other.
    var serialForDelegate: DispatchQueue {
        label.hasPrefix("com.apple.root.") ? DispatchQueue(label: "GCDAsyncSocket.delegate", target: self) : self
    }
}
