import AsyncSocketsTesting
import Glibc
import SocketBuffers
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Every combination of two arguments, for tests with more than two arguments.
func pairs<First, Second>(_ first: [First], _ second: [Second]) -> [(First, Second)] {
    first.flatMap { one in second.map { (one, $0) } }
}

/// Why the kernel does not accept a message. After `noMemory` (ENOBUFS), no event reports that it does.
enum Shortage: CaseIterable, Sendable { case noRoom, noMemory }

/// A connection whose kernel buffer the test can fill, so that the next send of the socket fails with EAGAIN.
struct FullKernel: Sendable {
    /// The other end. It reads only what the test reads.
    let peer: RawSocket
    /// A second descriptor for the socket's own end.
    private let own: Locked<RawSocket?>

    /// Returns a connection and a socket at its own end. The kernel's buffer is as small as possible.
    static func make(_ style: Style) throws -> (FullKernel, StyledSocket) {
        let (peer, own) = try RawSocket.pair()
        let socket = try StyledSocket(style, adopting: own)
        try socket.socket.setOption(.sendBufferSize, to: 1)
        return (FullKernel(peer: peer, own: Locked(own)), socket)
    }

    /// The bytes that fill the buffer. No protocol sends them.
    static let filler = UInt8(ascii: "~")

    /// Makes the socket's next send fail. Returns the number of bytes that the peer must read first.
    func exhaust(_ socket: AsyncSocket, _ shortage: Shortage) async throws -> Int {
        if shortage == .noRoom { return fill() }
        try await socket.turn("the channel is open") { connection in
            connection.data.channel.map { $0.note(SocketDescriptor.SendAnswer.exhausted) == nil } ?? false
        }
        return 0
    }

    /// Sends bytes until the kernel accepts no more. Returns their number.
    func fill() -> Int {
        guard let own = own.withLock({ $0 }) else { return 0 }
        var count = 0
        let flags = Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL)
        for size in [512, 1] {
            let bytes = [UInt8](repeating: Self.filler, count: size)
            while case let sent = send(own.descriptor, bytes, size, flags), sent > 0 {
                count += sent
            }
        }
        return count
    }

    /// Closes the second descriptor, so that the peer receives the FIN of a closed socket.
    func release() { own.withLock { $0 = nil } }

    /// Receives the bytes of `fill()`, after which the kernel has room.
    func drain(_ count: Int) async throws {
        let bytes = try await peer.received(exactly: count)
        #expect(bytes.allSatisfy { $0 == Self.filler } && bytes.count == count)
    }
}

extension RawSocket {
    // These methods do not block a thread, because the tasks of a test need the few threads that there are.

    /// Receives at most this number of available bytes. Returns `nil` if there are none, and an empty array
    /// after the end.
    private func receiveAvailable(_ limit: Int) throws -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: limit)
        let count = recv(descriptor, &bytes, limit, Int32(MSG_DONTWAIT))
        if count < 0, errno == EAGAIN || errno == EINTR { return nil }
        guard count >= 0 else { throw Unexpected(description: "recv: errno \(errno)") }
        return Array(bytes.prefix(count))
    }

    /// Receives pieces until `isComplete` accepts the bytes or the other side closes the connection.
    private func receive(
        inPiecesOf limit: (Int) -> Int, until isComplete: ([UInt8]) -> Bool
    ) async throws -> [UInt8] {
        var bytes: [UInt8] = []
        try await eventually("everything has arrived") {
            while !isComplete(bytes) {
                guard let piece = try receiveAvailable(limit(bytes.count)) else { return false }
                if piece.isEmpty { return true }
                bytes += piece
            }
            return true
        }
        return bytes
    }

    /// Receives exactly this number of bytes, or fewer if the other side closes the connection.
    func received(exactly count: Int) async throws -> [UInt8] {
        try await receive(inPiecesOf: { count - $0 }, until: { $0.count == count })
    }

    /// Receives bytes up to the end of this suffix.
    func received(through suffix: ArraySlice<UInt8>) async throws -> [UInt8] {
        try await receive(inPiecesOf: { _ in 1 }, until: { $0.suffix(suffix.count).elementsEqual(suffix) })
    }

    /// Receives everything until the other side closes the connection.
    func everything() async throws -> [UInt8] {
        try await receive(inPiecesOf: { _ in 65_536 }, until: { _ in false })
    }

    /// Receives bytes that have already arrived.
    func receiveArrived(_ count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count, let piece = try receiveAvailable(count - bytes.count), !piece.isEmpty { bytes += piece }
        return bytes
    }
}

extension AsyncSocket {
    /// Runs `body` inside the connection's turn, so that the connection does not run in the meantime.
    func held<Value>(_ what: String, _ body: (StreamConnection) throws -> Value?) async throws -> Value {
        var value: Value?
        try await eventually(what) {
            guard let connection, connection.turn.enterIfFree() else { return false }
            defer { connection.turn.leaveOrDrain(connection) }
            value = try body(connection)
            return value != nil
        }
        guard let value else { throw Unexpected(description: what) }
        return value
    }
}
