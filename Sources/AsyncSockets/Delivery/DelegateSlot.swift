internal import Dispatch

/// A weak reference to a delegate. Each kind of delegate has one of its own: Swift has none to an existential
/// that a generic type does not know.
protocol WeakDelegate {
    associatedtype Delegate

    init(_ delegate: Delegate?)

    var delegate: Delegate? { get }
}

/// A socket's delegate and the queue it is called on; without a queue it is `Sendable`, and called on the
/// event loop.
///
/// A delegate protocol is not `Sendable`, so that a delegate may be confined to its queue or to the main
/// actor. This is the one place where that is set aside: the reference is only stored and read, behind the
/// socket's lock, and always together with its queue.
struct DelegateSlot<Reference: WeakDelegate>: @unchecked Sendable {
    // Unchecked: see above.
    private let reference: Reference
    let queue: DispatchQueue?

    init(_ delegate: Reference.Delegate?, queue: DispatchQueue?) {
        reference = Reference(delegate)
        self.queue = queue
    }

    // Methods of the slot, since they are called where it lies: to copy a weak reference is expensive.

    func copy(to delegate: inout Reference.Delegate?, _ queue: inout DispatchQueue?) {
        delegate = reference.delegate
        queue = self.queue
    }
}

extension DispatchQueue {
    /// Traps for a global queue, which is concurrent. libdispatch does not say whether another queue is.
    func requireSerial() {
        precondition(
            !label.hasPrefix("com.apple.root."),
            "a socket needs a serial queue, and \(label) is a global one: make one with DispatchQueue(label:), or use .main")
    }
}
