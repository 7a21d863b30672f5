import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport

/// An event received by the delegate of a UDP socket.
enum DatagramTold: Sendable {
    case connected(SocketEndpoint)
    case notConnected(AsyncSocketError)
    case sent(tag: Int)
    case notSent(tag: Int, AsyncSocketError)
    case highWater(Int)
    case lowWater(Int)
    case received(Datagram)
    case failedToReach(SocketEndpoint?, AsyncSocketError)
    case asked(PeerTrust, answer: @Sendable (Bool) -> Void)
    case secured
    case closed(AsyncSocketError?)
}

/// A delegate that records its events, so that a test can wait for them.
final class DatagramRecorder: AsyncUDPSocketDelegate, Sendable {
    private let events: AsyncStream<DatagramTold>
    private let recording: AsyncStream<DatagramTold>.Continuation
    private let all = Locked<[DatagramTold]>([])
    /// Called with each event within the delegate method.
    private let reaction: (@Sendable (AsyncUDPSocket, DatagramTold) -> Void)?

    /// Evaluates a peer's certificate. If nil, the delegate does not evaluate trust.
    private let trust: (@Sendable (PeerTrust) async -> Bool)?

    init(
        reaction: (@Sendable (AsyncUDPSocket, DatagramTold) -> Void)? = nil,
        trust: (@Sendable (PeerTrust) async -> Bool)? = nil
    ) {
        self.trust = trust
        self.reaction = reaction
        (events, recording) = AsyncStream.makeStream()
    }

    private func record(_ told: DatagramTold, _ socket: AsyncUDPSocket) {
        reaction?(socket, told)
        all.withLock { $0.append(told) }
        recording.yield(told)
    }

    /// All events so far.
    var history: [DatagramTold] { all.withLock { $0 } }

    /// Returns the next event. If there is none, the test's time limit ends the wait.
    func next() async throws -> DatagramTold {
        for await told in events { return told }
        throw CancellationError()
    }

    /// Returns the next event for which `choose` returns a value. Other events are skipped.
    func first<Value>(_ choose: (DatagramTold) -> Value?) async throws -> Value {
        while true {
            if let value = choose(try await next()) { return value }
        }
    }

    func connected() async throws -> SocketEndpoint {
        try await first { if case .connected(let address) = $0 { address } else { nil } }
    }

    func received() async throws -> Datagram {
        try await first { if case .received(let datagram) = $0 { datagram } else { nil } }
    }

    func sent() async throws -> Int {
        try await first { if case .sent(let tag) = $0 { tag } else { nil } }
    }

    func notSent() async throws -> (tag: Int, error: AsyncSocketError) {
        try await first { if case .notSent(let tag, let error) = $0 { (tag, error) } else { nil } }
    }

    func closed() async throws -> AsyncSocketError? {
        try await first { if case .closed(let error) = $0 { .some(error) } else { nil } }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketEndpoint) { record(.connected(address), socket) }
    func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError) { record(.notConnected(error), socket) }
    func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int) { record(.sent(tag: tag), socket) }
    func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError) {
        record(.notSent(tag: tag, error), socket)
    }
    func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedHighWater byteCount: Int) { record(.highWater(byteCount), socket) }
    func udpSocket(_ socket: AsyncUDPSocket, sendQueueReachedLowWater byteCount: Int) { record(.lowWater(byteCount), socket) }
    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
        record(.received(datagram), socket)
    }
    func udpSocket(_ socket: AsyncUDPSocket, didFailToReach address: SocketEndpoint?, dueToError error: AsyncSocketError) {
        record(.failedToReach(address, error), socket)
    }
    func udpSocket(
        _ socket: AsyncUDPSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void
    ) {
        record(.asked(trust, answer: completionHandler), socket)
        guard let decide = self.trust else { return }
        Task { completionHandler(await decide(trust)) }
    }
    func udpSocketDidSecure(_ socket: AsyncUDPSocket) { record(.secured, socket) }
    func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) { record(.closed(error), socket) }
}

extension AsyncUDPSocket {
    /// Bound to a free port of a loopback address.
    static func bound(_ host: String = "127.0.0.1", _ socket: AsyncUDPSocket = AsyncUDPSocket()) throws -> AsyncUDPSocket {
        try socket.bind(toAddress: .loopback(host))
        return socket
    }

    /// The first local address.
    var address: SocketEndpoint {
        get throws {
            guard let localAddress else { throw Unexpected(description: "the socket has no address") }
            return localAddress
        }
    }
}
