internal import Dispatch

/// The delegate of a core socket. The core holds it weakly, and its owner keeps it.
///
/// An object of its own, so that the owner does not show the core's delegate methods beside its own. When the
/// owner has gone, questions get the answer that ends the connection.
final class CoreEvents<Owner: AnyObject> {
    weak var owner: Owner?
    /// The socket queue of the next connection that is accepted.
    var nextQueue: DispatchQueue?
}
