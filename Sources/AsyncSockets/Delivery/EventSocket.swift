internal import Dispatch
internal import SocketCore

/// A socket that delivers events to its delegate.
protocol EventSocket: AnyObject, Sendable {
    associatedtype Event: SocketEvent
    associatedtype Delegate
    associatedtype Source: EventSource

    /// A queue on which the socket's state is handled, and inline delegates are called.
    var socketQueue: DispatchQueue? { get }
    /// The queue on which the delegate is called; nil: inline.
    var delegateQueue: DispatchQueue? { get }
    /// How many times the delegate has changed.
    var delegateChangeCount: Int { get }
    /// The delegate and its queue, as they are now.
    func copyDelegate(to delegate: inout Delegate?, _ queue: inout DispatchQueue?)
    /// Calls the delegate. This is where user code runs.
    func deliver(_ event: consuming Event, to delegate: Delegate?)
    /// On this thread, until `endCallbacks()`: what the delegate asks for goes to `source` at once.
    func beginCallbacks(of source: Source)
    func endCallbacks()
    /// The outlet as the loop sees it. The socket conforms it, so that the compiler knows all types: the
    /// methods of a generic conformance look them up at run time, which doubled the cost of an echo on a
    /// queue.
    static func batchedWork(of outlet: EventOutlet<Self>) -> any BatchedWork
}

/// An event for a delegate: a plain value.
protocol SocketEvent: Sendable {
    /// The last event of its source.
    var isEnd: Bool { get }
    /// Adds the progress in `next` to its own; false when the two are not about the same operation.
    mutating func absorb(_ next: Self) -> Bool
    var isProgress: Bool { get }
}

/// What events come from, and what the delegate's requests go to while it is called inline.
protocol EventSource: AnyObject, Sendable {
    var loop: EventLoop { get }
    /// Does what the delegate has asked for in callbacks.
    func serveRequests()
    /// Publishes the progress, before the delegate can ask for it on its queue.
    func publishProgress()
    /// Inside the turn: it has not ended, and its socket has taken up nothing else.
    var isCurrent: Bool { get }
    /// Asks for another turn soon.
    func askForTurn()
}
