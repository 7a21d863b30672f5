internal import Dispatch

/// The delegate of a core socket. The core holds it weakly, and its owner keeps it.
///
/// It is a separate object, to keep the core's delegate methods out of the owner's interface. Without an
/// owner, each question is refused, which closes the connection.
final class CoreEvents<Owner: AnyObject> {
    weak var owner: Owner?
    /// The socket queue of the next connection that is accepted.
    var nextQueue: DispatchQueue?
}
