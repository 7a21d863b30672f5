/// An object that a receive filter attached to a datagram. It moves from the filter's queue to the delegate's
/// queue, and the filter does not retain it.
final class FilterContext: Sendable {
    nonisolated(unsafe) let object: AnyObject?

    init(_ object: AnyObject?) {
        self.object = object
    }
}
