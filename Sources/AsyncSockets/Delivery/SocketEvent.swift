internal import SocketCore

/// An event for a delegate: a plain value.
protocol SocketEvent: Sendable {
    /// The last event of its source.
    var isEnd: Bool { get }
    /// For the last event: false when it has been delivered on another way.
    func claimEnd() -> Bool
    /// Adds the progress in `next` to its own; false when the two are not about the same operation.
    mutating func absorb(_ next: Self) -> Bool
    var isProgress: Bool { get }
    /// The most events of one inline delivery.
    static var deliveryLimit: Int { get }
}

extension SocketEvent {
    static var deliveryLimit: Int { 16 }
    func claimEnd() -> Bool { true }
}

/// The source of events, which also gets the delegate's requests while it is called inline.
protocol EventSource: AnyObject, Sendable {
    var loop: EventLoop { get }
    /// Does what the delegate has asked for in callbacks.
    func serveRequests()
    /// Inside the turn: the callbacks of a delivery are over.
    func endCallbacks()
    /// Anywhere: sends what it has collected.
    func flush()
    /// Publishes the progress, before the delegate can ask for it on its queue.
    func publishProgress()
    /// Inside the turn: it has not ended, and its socket has taken up nothing else.
    var isCurrent: Bool { get }
    /// Inside the turn: the loop is to give it another one when this is over.
    func wishForTurn()
    /// Anywhere: has the loop give it another turn.
    func askForTurn()
}

// For a source that collects nothing.
extension EventSource {
    func endCallbacks() {}
    func flush() {}
}
