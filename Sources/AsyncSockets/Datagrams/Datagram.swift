internal import Dispatch
public import FoundationEssentials
public import SocketCore

/// A datagram that has arrived.
///
/// One of zero bytes is a datagram like any other.
public struct Datagram: Sendable {
    /// Its bytes; without its end when `arrival.isTruncated`.
    public let data: Data
    /// Where it comes from. UDP lets a sender write any address here: believe it only of a peer that has
    /// answered.
    public var sender: SocketAddress { origin.socketAddress }
    let origin: InternetAddress
    /// The local address and the interface that it came to, and in which condition.
    public let arrival: DatagramArrival
    /// A value that the receive filter has added.
    public let filterContext: (any Sendable)?

    init(_ data: Data, from origin: InternetAddress, _ arrival: DatagramArrival, filterContext: (any Sendable)? = nil) {
        (self.data, self.origin, self.arrival, self.filterContext) = (data, origin, arrival, filterContext)
    }

    /// The same with what the filter adds.
    func with(_ context: (any Sendable)?) -> Datagram {
        Datagram(data, from: origin, arrival, filterContext: context)
    }

    /// Its share of a limit of memory: one without bytes takes some too.
    var cost: Int { data.count + 256 }
}

/// A task that waits for a datagram, which is its answer.
typealias DatagramWaiter = TaskWaiter<Datagram>

/// The answer to a task that wants a datagram.
enum DirectReceive {
    case served(Datagram)
    case waits(DatagramWaiter)
}

/// The verdict of a receive filter on a datagram.
public enum DatagramVerdict: Sendable {
    /// It is delivered, with `context` as its `filterContext`.
    case accept(context: (any Sendable)? = nil)
    /// It is dropped, as if it had not arrived.
    case drop
}

/// A filter of the program, and where it runs.
struct DatagramFilter<Input: Sendable, Verdict: Sendable>: Sendable {
    /// Nil: inside the turn, at once.
    private let queue: DispatchQueue?
    private let body: @Sendable (Input) -> Verdict

    init(on queue: DispatchQueue?, _ body: @escaping @Sendable (Input) -> Verdict) {
        self.queue = queue
        self.body = body
    }

    /// Asks the filter, which is the program's code. Inside the turn, with no lock held.
    ///
    /// - Parameter later: Gets the verdict on the queue of the filter.
    /// - Returns: The verdict; nil when it comes later.
    func judge(_ input: Input, later: @escaping @Sendable (Verdict) -> Void) -> Verdict? {
        guard let queue else { return body(input) }
        queue.async { [body] in later(body(input)) }
        return nil
    }
}

typealias SendFilter = DatagramFilter<DatagramSendQuestion, Bool>
typealias ReceiveFilter = DatagramFilter<Datagram, DatagramVerdict>

/// A datagram that a send filter judges.
struct DatagramSendQuestion: Sendable {
    let data: Data
    let address: SocketAddress
    let tag: Int
}
