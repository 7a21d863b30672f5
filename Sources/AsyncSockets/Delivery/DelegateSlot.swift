internal import Dispatch

/// A weak reference to a delegate. Each kind of delegate needs its own conforming type, because Swift has no
/// weak references to an existential type that is a generic parameter.
protocol WeakDelegate {
    associatedtype Delegate

    init(_ delegate: Delegate?)

    var delegate: Delegate? { get }
}

/// A socket's delegate and the queue on which it is called. A delegate without a queue is `Sendable` and is
/// called on the event loop.
///
/// The delegate protocols are not `Sendable`, so that a delegate can be confined to its queue or to the main
/// actor. Only this type disregards that: the reference is only stored and read, under the socket's lock, and
/// always together with its queue.
struct DelegateSlot<Reference: WeakDelegate>: @unchecked Sendable {
    // Unchecked: see above.
    private let reference: Reference
    let queue: DispatchQueue?

    init(_ delegate: Reference.Delegate?, queue: DispatchQueue?) {
        reference = Reference(delegate)
        self.queue = queue
    }

    // A method, so that it is called in place: copying a weak reference is expensive.

    func copy(to delegate: inout Reference.Delegate?, _ queue: inout DispatchQueue?) {
        delegate = reference.delegate
        queue = self.queue
    }
}

extension DispatchQueue {
    /// Traps for a global queue, which is concurrent. libdispatch does not reveal whether any other queue is
    /// concurrent.
    func requireSerial() {
        precondition(
            !label.hasPrefix("com.apple.root."),
            "the queue \"\(label)\" is a global, concurrent queue: use a serial queue made with DispatchQueue(label:) or .main")
    }
}
