internal import Dispatch
internal import SocketBuffers
internal import Synchronization

/// A socket's delegate and the queue it is called on. The socket and its connections share one.
///
/// The delegate protocol is not `Sendable`, so that a delegate may be confined to its queue or to the main actor. This is the one place where that is
/// set aside: the reference is only stored and read here; its methods are called on the delegate queue alone.
final class DelegateSlot: Sendable {
    private let contents: Locked<Contents>
    private let changes = Atomic(0)
    private let hasQueue: Atomic<Bool>

    private struct Contents: @unchecked Sendable {
        // Unchecked: see above.
        weak var delegate: (any AsyncSocketDelegate)?
        var queue: DispatchQueue?
    }

    init(_ delegate: (any AsyncSocketDelegate)?, queue: DispatchQueue?) {
        contents = Locked(Contents(delegate: delegate, queue: queue))
        hasQueue = Atomic(queue != nil)
    }

    /// Held weakly.
    var delegate: (any AsyncSocketDelegate)? {
        get { contents.withLock { Reference($0.delegate) }.delegate }
        set {
            let reference = Reference(newValue)
            contents.withLock { $0.delegate = reference.delegate }
            changes.add(1, ordering: .releasing)
        }
    }

    /// Grows with each change of the delegate: who keeps the delegate for a while can see whether it still is the one.
    var changeCount: Int { changes.load(ordering: .acquiring) }

    var queue: DispatchQueue? {
        get { hasQueue.load(ordering: .acquiring) ? contents.withLock { $0.queue } : nil }
        set {
            contents.withLock { $0.queue = newValue }
            hasQueue.store(newValue != nil, ordering: .releasing)
        }
    }

    /// Carries the delegate through the lock.
    private struct Reference: @unchecked Sendable {
        let delegate: (any AsyncSocketDelegate)?

        init(_ delegate: (any AsyncSocketDelegate)?) {
            self.delegate = delegate
        }
    }
}
