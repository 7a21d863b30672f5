internal import Dispatch

/// A socket's delegate and the queue it is called on.
///
/// The delegate protocol is not `Sendable`, so that a delegate may be confined to its queue or to the main actor. This is the one place where that is
/// set aside: the reference is only stored and read, behind the socket's lock; its methods are called on the delegate queue alone.
struct DelegateSlot: @unchecked Sendable {
    // Unchecked: see above.
    weak var delegate: (any AsyncSocketDelegate)?
    var queue: DispatchQueue?

    init(_ delegate: (any AsyncSocketDelegate)?, queue: DispatchQueue?) {
        self.delegate = delegate
        self.queue = queue
    }

    /// Carries the delegate through the lock.
    struct Reference: @unchecked Sendable {
        // Unchecked: see above.
        let delegate: (any AsyncSocketDelegate)?

        init(_ delegate: (any AsyncSocketDelegate)?) {
            self.delegate = delegate
        }
    }
}
