internal import SocketCore

/// An event for a delegate, as a plain value.
protocol SocketEvent: Sendable {
    /// Whether this is the last event of its source.
    var isEnd: Bool { get }
    /// For the last event: returns `false` if another path has already delivered it.
    func claimEnd() -> Bool
    /// Adds the progress of `next` to this event. Returns `false` if the events belong to different
    /// operations.
    mutating func absorb(_ next: Self) -> Bool
    var isProgress: Bool { get }
    /// The maximum number of events in one inline delivery.
    static var deliveryLimit: Int { get }
}

extension SocketEvent {
    static var deliveryLimit: Int { 16 }
    func claimEnd() -> Bool { true }
}

/// The source of events. While the delegate is called inline, its requests are passed to the source.
protocol EventSource: AnyObject, Sendable {
    var loop: SocketEventLoop { get }
    /// Serves the requests that the delegate made in callbacks.
    func serveRequests()
    /// Called inside the turn after the callbacks of a delivery.
    func endCallbacks()
    /// Sends the collected writes. May be called on any thread.
    func flush()
    /// Publishes the progress of operations, before the delegate can query it on its queue.
    func publishProgress()
    /// Whether the source is still open and its socket is not used for something else. Call inside the turn.
    var isCurrent: Bool { get }
    /// Requests another turn from the loop after the current one. Call inside the turn.
    func wishForTurn()
    /// Requests another turn from the loop. May be called on any thread.
    func askForTurn()
}

// Defaults for a source that does not collect writes.
extension EventSource {
    func endCallbacks() {}
    func flush() {}
}
