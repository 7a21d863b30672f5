import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// One end of a connection as a channel without a turn or an event loop, with its input and output.
final class ChannelEnd {
    let channel: ByteChannel
    let reads = PreBuffer()
    let writes = WriteHalf()
    var driver: HandshakeDriver?
    private let descriptor: SocketDescriptor

    /// `POLLRDHUP`, which glibc declares only under _GNU_SOURCE.
    static let readHangup: Int16 = 0x2000

    /// Takes ownership of the socket, which is closed with the channel.
    init(_ socket: consuming RawSocket, of family: SocketEndpoint.Family) {
        descriptor = SocketDescriptor(takingOver: socket.duplicate())
        channel = ByteChannel(descriptor, of: family)
    }

    /// Returns a channel and the raw socket at the other end of its TCP connection.
    static func tcp() throws -> (ChannelEnd, RawSocket) {
        let listener = try RawSocket.listening()
        let socket = try RawSocket.connected(to: listener.localAddress)
        return (ChannelEnd(socket, of: .ipv4), try listener.accepted())
    }

    /// Returns a channel whose peer has sent `text`, which is in the kernel, and then reset the connection.
    static func reset(behind text: String, _ beforeBytes: (ChannelEnd) throws -> Void = { _ in }) throws -> ChannelEnd {
        let (end, peer) = try tcp()
        try beforeBytes(end)
        try peer.send(text)
        try end.wait(for: Int16(POLLIN))
        peer.resetWhenClosed()
        _ = consume peer
        try end.wait(for: Int16(POLLHUP))
        return end
    }

    /// Returns a channel and the raw socket at the other end of a socket pair.
    static func pair() throws -> (ChannelEnd, RawSocket) {
        let (mine, other) = try RawSocket.pair()
        return (ChannelEnd(mine, of: .unix), other)
    }

    /// Waits until the kernel reports one of the events for the descriptor. The channel is not notified.
    func wait(for events: Int16) throws {
        var question = pollfd(fd: descriptor.rawValue, events: events, revents: 0)
        // A signal may interrupt it.
        while poll(&question, 1, Patience.milliseconds) != 1 {
            guard errno == EINTR else { throw Unexpected(description: "no event of \(events) within five minutes") }
        }
    }

    // MARK: - Operations

    func fill(limit: Int = ReadHalf.readAheadLimit) -> ByteChannel.FillAnswer {
        channel.fill(reads, limit: limit)
    }

    /// Removes and returns the received text.
    func takeText() -> String {
        String(decoding: takeBytes(), as: UTF8.self)
    }

    func takeBytes() -> [UInt8] {
        defer { reads.reset() }
        return Array(reads.readableBytes)
    }

    func write(_ data: Data) {
        writes.append(WritePacket(data: data, timeout: -1, tag: 0))
    }

    func submit() -> ByteChannel.SubmitAnswer {
        channel.submit(writes)
    }

    /// Submits until nothing is left or the kernel is full.
    func submitAll() -> ByteChannel.SubmitAnswer {
        while true {
            let answer = submit()
            guard case .more = answer else { return answer }
        }
    }

    /// The ending that the channel has reported.
    var told: StreamEnding {
        var ending = StreamEnding()
        channel.report(to: &ending)
        return ending
    }
}

extension ByteChannel.FillAnswer {
    var isBytes: Bool { if case .bytes = self { true } else { false } }
    var isNothing: Bool { if case .nothing = self { true } else { false } }
}

extension ByteChannel.SubmitAnswer {
    var isAll: Bool { if case .all = self { true } else { false } }
    var isMore: Bool { if case .more = self { true } else { false } }
    var isBlocked: Bool { if case .blocked = self { true } else { false } }
}

extension ChannelEnd {
    /// The result of the driver, with what it has passed to its owner.
    enum HandshakeAnswer {
        case complete(TLSSession?, KeyExporter)
        case awaitingTrust(PeerTrust)
        case incomplete
        case more
        case failed(AsyncSocketError)

        var error: AsyncSocketError? { if case .failed(let error) = self { error } else { nil } }
        var isComplete: Bool { if case .complete = self { true } else { false } }
        var isIncomplete: Bool { if case .incomplete = self { true } else { false } }
        var needsAnotherTurn: Bool { if case .more = self { true } else { false } }
    }

    /// Receives the driver's trust question.
    private final class Owner: HandshakeOwner {
        static var upgradeOperation: AsyncSocketError.Operation { .startTLS }
        var observation: ConnectionObservation? { nil }
        var newsSender: @Sendable (UpgradeNews) -> Void { { _ in } }
        var trust: PeerTrust?

        func note(_ message: String, _ details: @autoclosure () -> [String: String]) {}
        func publish(_ session: CopyOnWrite<TLSSession>?, _ exporter: KeyExporter) {}
        func deliverSecured() {}
        func deliver(_ trust: PeerTrust, _ decide: @escaping @Sendable (Bool) -> Void) { self.trust = trust }
    }

    /// Continues the handshake as the connection's turn does.
    func handshake() -> HandshakeAnswer {
        guard let driver else { return .incomplete }
        let owner = Owner()
        var result: (TLSSession?, KeyExporter)?
        let step = driver.shakeHands(over: channel, owner) { result = ($0, $1) }
        if let result { return .complete(result.0, result.1) }
        if let trust = owner.trust { return .awaitingTrust(trust) }
        switch step {
        case .incomplete, .moved: return .incomplete
        case .more: return .more
        case .fails(let error): return .failed(error)
        }
    }
}

extension StreamEnding {
    var hasOrderlyEnd: Bool { if case .orderly = readEnd { true } else { false } }
    var readError: AsyncSocketError? { if readEnd?.isOrderly == false { readEnd?.error } else { nil } }
}
