import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// One end of a connection as a channel without a turn and without a loop: what it reads and writes.
final class ChannelEnd {
    let channel: ByteChannel
    let reads = PreBuffer()
    let writes = WriteHalf()
    private let descriptor: SocketDescriptor

    /// `POLLRDHUP`, which glibc declares under _GNU_SOURCE only.
    static let readHangup: Int16 = 0x2000

    /// Takes the socket over, which is closed with the channel.
    init(_ socket: consuming RawSocket, of family: SocketAddress.Family) {
        descriptor = SocketDescriptor(takingOver: socket.duplicate())
        channel = ByteChannel(descriptor, of: family)
    }

    /// A channel, and the raw socket at the other end of its TCP connection.
    static func tcp() throws -> (ChannelEnd, RawSocket) {
        let listener = try RawSocket.listening()
        let socket = try RawSocket.connected(to: listener.localAddress)
        return (ChannelEnd(socket, of: .ipv4), try listener.accepted())
    }

    /// A channel whose peer has sent `text`, which is in the kernel, and reset the connection behind it.
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

    /// A channel, and the raw socket at the other end of a socket pair.
    static func pair() throws -> (ChannelEnd, RawSocket) {
        let (mine, other) = try RawSocket.pair()
        return (ChannelEnd(mine, of: .unix), other)
    }

    /// Waits until the kernel says one of these of the descriptor; the channel is not told.
    func wait(for events: Int16) throws {
        var question = pollfd(fd: descriptor.rawValue, events: events, revents: 0)
        // A signal may interrupt it.
        while poll(&question, 1, Patience.milliseconds) != 1 {
            guard errno == EINTR else { throw Unexpected(description: "no event of \(events) within five minutes") }
        }
    }

    // MARK: - Verbs

    func fill(limit: Int = ReadHalf.readAheadLimit) -> ByteChannel.FillAnswer {
        channel.fill(reads, limit: limit)
    }

    /// What has been received, taken out.
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

    /// Submits until there is nothing left, or the kernel is full.
    func submitAll() -> ByteChannel.SubmitAnswer {
        while true {
            let answer = submit()
            guard case .more = answer else { return answer }
        }
    }

    /// What the channel tells of an end.
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

extension ByteChannel.HandshakeAnswer {
    var error: AsyncSocketError? { if case .failed(let error) = self { error } else { nil } }
    var isComplete: Bool { if case .complete = self { true } else { false } }
    var isIncomplete: Bool { if case .incomplete = self { true } else { false } }
}

extension StreamEnding {
    var hasOrderlyEnd: Bool { if case .orderly = readEnd { true } else { false } }
    var readError: AsyncSocketError? { if readEnd?.isOrderly == false { readEnd?.error } else { nil } }
}
