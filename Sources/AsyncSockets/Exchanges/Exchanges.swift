internal import SocketBuffers
internal import SocketCore

/// One call of `exchange`: a request, and the condition for its reply.
final class Exchange: Sendable {
    let peer: InternetAddress
    let isReply: @Sendable (Datagram) -> Bool
    let failures = Locked(FailureTally())

    /// - Parameter peer: The address. An IPv4-mapped address is converted to IPv4, because a dual-stack
    ///   socket reports IPv4 senders in mapped form.
    init(with peer: InternetAddress, _ isReply: @escaping @Sendable (Datagram) -> Bool) {
        self.peer = peer.unmapped
        self.isReply = isReply
    }
}

/// A step of an exchange, as a message to its socket.
enum ExchangeStep: Sendable {
    case begins
    /// The task has sent the request. The waiter is completed with the reply.
    case awaits(DatagramWaiter)
    case ends
}

/// The exchanges of a UDP socket. Confined to the turn.
///
/// An exchange is registered from before the first attempt until `exchange` returns, so that a reply to an
/// earlier request is not lost while the request is repeated.
struct Exchanges {
    private struct Entry {
        let exchange: Exchange
        var waiter: DatagramWaiter?
        var reply: Datagram?
    }

    private var entries: [InternetAddress: [Entry]] = [:]
    /// The peers of the waiters.
    private var peers: [ObjectIdentifier: InternetAddress] = [:]
    /// The number of exchanges without a reply.
    private var pendingCount = 0
    /// No later than the earliest deadline. Not updated when a waiter is served, because that would compare
    /// all deadlines.
    private(set) var deadline: Deadline?

    var isPending: Bool { pendingCount > 0 }

    mutating func begin(_ exchange: Exchange) {
        entries[exchange.peer, default: []].append(Entry(exchange: exchange))
        pendingCount += 1
    }

    mutating func end(_ exchange: Exchange) {
        guard let index = index(of: exchange), let entry = entries[exchange.peer]?.remove(at: index) else { return }
        if entry.reply == nil { pendingCount -= 1 }
        if let waiter = entry.waiter { peers[ObjectIdentifier(waiter)] = nil }
        if entries[exchange.peer]?.isEmpty == true { entries[exchange.peer] = nil }
    }

    /// Completes the waiter when the reply arrives.
    ///
    /// - Returns: Whether the exchange is registered.
    mutating func await(_ exchange: Exchange, _ waiter: DatagramWaiter) -> Bool {
        guard let index = index(of: exchange) else { return false }
        if let reply = entries[exchange.peer]?[index].reply {
            waiter.answer(.success(reply))
        } else {
            entries[exchange.peer]?[index].waiter = waiter
            peers[ObjectIdentifier(waiter)] = exchange.peer
            deadline = .earlier(deadline, waiter.deadline)
        }
        return true
    }

    private func index(of exchange: Exchange) -> Int? {
        entries[exchange.peer]?.firstIndex { $0.exchange === exchange }
    }

    /// Passes a datagram to the oldest exchange that accepts it.
    mutating func take(_ datagram: borrowing Datagram) -> Bool {
        guard pendingCount > 0 else { return false }
        let datagram = copy datagram
        let peer = datagram.origin.unmapped
        guard let candidates = entries[peer],
            let index = candidates.firstIndex(where: { $0.reply == nil && $0.exchange.isReply(datagram) })
        else { return false }
        pendingCount -= 1
        entries[peer]?[index].reply = datagram
        takeWaiter(of: peer, index)?.answer(.success(datagram))
        return true
    }

    private mutating func takeWaiter(of peer: InternetAddress, _ index: Int) -> DatagramWaiter? {
        guard let waiter = entries[peer]?[index].waiter.take() else { return nil }
        peers[ObjectIdentifier(waiter)] = nil
        return waiter
    }

    /// Notes that a datagram to an address was not delivered.
    func noteFailure(_ error: AsyncSocketError, at address: SocketEndpoint?) {
        guard !entries.isEmpty, let address else { return }
        for entry in entries[InternetAddress(address).unmapped] ?? [] { entry.exchange.failures.withLock { $0.note(error) } }
    }

    /// Returns false if no exchange has this waiter.
    mutating func cancel(_ waiter: AnyObject, _ error: any Error) -> Bool {
        guard let peer = peers[ObjectIdentifier(waiter)],
            let index = entries[peer]?.firstIndex(where: { $0.waiter === waiter })
        else { return false }
        takeWaiter(of: peer, index)?.answer(.failure(error))
        return true
    }

    /// Fails all exchanges.
    mutating func refuse(_ error: AsyncSocketError) {
        let refused = entries
        self = Exchanges()
        for case let waiter? in refused.values.joined().map(\.waiter) { waiter.answer(.failure(error)) }
    }

    /// - Parameter denial: The error that paused receiving, reported instead of the timeout.
    mutating func expire(at now: Deadline, _ denial: AsyncSocketError?) {
        guard let deadline, deadline <= now else { return }
        var next: Deadline?
        for (peer, list) in entries {
            for (index, entry) in list.enumerated() {
                guard let end = entry.waiter?.deadline else { continue }
                if end <= now, let late = takeWaiter(of: peer, index) {
                    late.answer(.failure(denial ?? late.lateError))
                } else {
                    next = .earlier(next, end)
                }
            }
        }
        self.deadline = next
    }
}

/// Counts the reports of the network (ICMP) that datagrams were not delivered, for the message of a timeout.
struct FailureTally: Sendable {
    private var count = 0
    private var last: AsyncSocketError?

    mutating func note(_ error: AsyncSocketError) {
        count += 1
        last = error
    }

    /// Returns a timeout with the reports in its message, and with the last report's errno. The reports may
    /// be forged, so they do not change the code.
    func explain(_ timeout: AsyncSocketError) -> AsyncSocketError {
        guard let last else { return timeout }
        var explained = timeout
        explained.errno = last.errno
        explained.message += "; the network reported \(count == 1 ? "once" : "\(count) times"): \(last.message)"
        return explained
    }
}
