internal import Dispatch

/// The delegate of a core socket. The core references it weakly, and the owner references it strongly.
///
/// This is a separate object, so that the core's delegate methods do not appear in the owner's interface.
/// After the owner is released, every peer is rejected, which closes the connection.
final class CoreEvents<Owner: AnyObject> {
    weak var owner: Owner?
    /// The socket queue for the next accepted connection.
    var nextQueue: DispatchQueue?
}
