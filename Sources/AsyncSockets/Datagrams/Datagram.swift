internal import Dispatch
public import FoundationEssentials
public import SocketCore

/// A received datagram.
///
/// A datagram may be empty.
public struct Datagram: Sendable {
    /// The payload. The end is missing if `arrival.isTruncated`.
    public let data: Data
    /// The address of the sender. UDP senders can forge it, so trust it only after the peer has replied to
    /// you.
    public var sender: SocketEndpoint { origin.socketAddress }
    let origin: InternetAddress
    /// Information about the arrival: the local address, the interface, the time, and whether the datagram is
    /// complete.
    public let arrival: DatagramArrival
    /// The value that the receive filter attached, if any.
    public let filterContext: (any Sendable)?

    init(_ data: Data, from origin: InternetAddress, _ arrival: DatagramArrival, filterContext: (any Sendable)? = nil) {
        (self.data, self.origin, self.arrival, self.filterContext) = (data, origin, arrival, filterContext)
    }

    func with(_ context: (any Sendable)?) -> Datagram {
        Datagram(data, from: origin, arrival, filterContext: context)
    }

    /// The number of bytes charged against a memory limit. Even an empty datagram uses memory.
    var cost: Int { data.count + 256 }
}

typealias DatagramWaiter = TaskWaiter<Datagram>

enum DirectReceive {
    case served(Datagram)
    case waits(DatagramWaiter)
}

/// The verdict of a receive filter on a datagram.
public enum DatagramVerdict: Sendable {
    /// The datagram is delivered, with `context` as its `filterContext`.
    case accept(context: (any Sendable)? = nil)
    /// The datagram is dropped, as if it had not arrived.
    case drop
}

struct DatagramFilter<Input: Sendable, Verdict: Sendable>: Sendable {
    /// If `nil`, the filter runs synchronously inside the turn.
    private let queue: DispatchQueue?
    private let body: @Sendable (Input) -> Verdict

    init(on queue: DispatchQueue?, _ body: @escaping @Sendable (Input) -> Verdict) {
        self.queue = queue
        self.body = body
    }

    /// Runs the filter, which is user code. Called inside the turn, with no lock held.
    ///
    /// - Parameter later: Receives the verdict on the filter's queue.
    /// - Returns: The verdict, or `nil` if `later` will receive it.
    func judge(_ input: Input, later: @escaping @Sendable (Verdict) -> Void) -> Verdict? {
        guard let queue else { return body(input) }
        queue.async { [body] in later(body(input)) }
        return nil
    }
}

typealias SendFilter = DatagramFilter<DatagramSendQuestion, Bool>
typealias ReceiveFilter = DatagramFilter<Datagram, DatagramVerdict>

struct DatagramSendQuestion: Sendable {
    let data: Data
    let address: SocketEndpoint
    let tag: Int
}
