internal import Dispatch
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// Tracks which code runs "on the socket's queue": code on the queue passed to the socket, code on a marked
/// queue, and blocks passed to `perform(_:)`.
///
/// Without a socket queue, the core runs on its event loops. The thread that runs a `perform` block is
/// therefore recorded.
final class SocketQueueMarks {
    private let key = DispatchSpecificKey<Bool>()
    private let queues = Locked<[DispatchQueue]>([])
    /// The thread that runs a block passed to `perform(_:)`, or 0.
    private let performer = Atomic<pthread_t>(0)
    /// The descriptor available to the block, or -1.
    private let openDescriptor = Atomic<Int32>(-1)

    init(_ queue: DispatchQueue?) {
        if let queue { mark(queue) }
    }

    deinit {
        // The key's address may be reused for another socket's key.
        for queue in queues.withLock({ $0 }) { queue.setSpecific(key: key, value: nil) }
    }

    func mark(_ queue: DispatchQueue) {
        queue.setSpecific(key: key, value: true)
        queues.withLock { queues in
            if !queues.contains(where: { $0 === queue }) { queues.append(queue) }
        }
    }

    func unmark(_ queue: DispatchQueue) {
        queue.setSpecific(key: key, value: nil)
        queues.withLock { $0.removeAll { $0 === queue } }
    }

    var isCurrent: Bool {
        performer.load(ordering: .relaxed) == pthread_self() || DispatchQueue.getSpecific(key: key) == true
    }

    /// The descriptor that the core passed to the block running on this thread. For a listener, it is a
    /// duplicate.
    var descriptor: Int32? {
        let descriptor = openDescriptor.load(ordering: .relaxed)
        return performer.load(ordering: .relaxed) == pthread_self() && descriptor >= 0 ? descriptor : nil
    }

    /// Runs `block` on the socket's queue and blocks until it returns. `start` schedules its argument on this
    /// queue.
    func performAndWait(_ block: @escaping () -> Void, start: (@escaping @Sendable (_ descriptor: Int32?) -> Void) -> Void) {
        if isCurrent { return block() }
        // Safe, because these values are used by only one other thread, and only while this thread is
        // blocked.
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
    /// A serial queue for calling a delegate. For a global queue, this is a new serial queue that targets it.
    ///
    /// On Apple platforms, callbacks on a global queue can overtake each other.
    var serialForDelegate: DispatchQueue {
        label.hasPrefix("com.apple.root.") ? DispatchQueue(label: "GCDAsyncSocket.delegate", target: self) : self
    }
}
