/// An object that a receive filter has added to a datagram. It goes from the filter's queue to the
/// delegate's, and the filter does not keep it.
final class FilterContext: Sendable {
    nonisolated(unsafe) let object: AnyObject?

    init(_ object: AnyObject?) {
        self.object = object
    }
}
