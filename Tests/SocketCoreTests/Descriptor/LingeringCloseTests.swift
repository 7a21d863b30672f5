import AsyncSocketsTesting
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Connections that linger while closing, and their last bytes.
@Suite(.timeLimit(.patient)) struct LingeringCloseTests {
    /// The peer has closed its side, and the kernel accepts only a part. The rest is sent while the peer
    /// reads. A round that takes as long as the grace period is inconclusive.
    @Test(arguments: [400_000, 1_000_000]) func theRestFollowsThoughThePeerHasEnded(count: Int) async throws {
        let loop = try SocketEventLoop()
        let bytes = [UInt8](pattern(count))
        try await eventually("a round is quick enough") {
            let start = ContinuousClock.now
            let (peer, descriptor) = try pair()
            peer.finish()
            bytes.withUnsafeBytes { LingeringClose.begin(with: descriptor, sending: $0, on: loop) }
            var received: [UInt8] = []
            while case let piece = try peer.receive(), !piece.isEmpty { received += piece }
            let isQuick = start.duration(to: .now) < .seconds(4)
            // The description of a difference between long arrays would take minutes.
            let isWhole = received == bytes
            #expect(isWhole || !isQuick)
            return isQuick
        }
        try await eventually("it has left the loop") { loop.registrationCount == 0 }
    }

    /// The kernel has no memory, and reports no event when it has memory again: the send buffer has room,
    /// but too little for an event. The rest is sent before the grace period is over. A round in which
    /// the machine paused for that long is inconclusive.
    @Test(arguments: [ENOBUFS, ENOMEM]) func theRestFollowsAShortageOfMemory(errno: Int32) async throws {
        let loop = try SocketEventLoop()
        let earlier = [UInt8](repeating: 1, count: 80_000)
        let rest = Array("554 too much data\r\n".utf8)
        try await eventually("a round is quick enough") {
            let (peer, descriptor) = try pair()
            #expect(earlier.withUnsafeBytes { descriptor.send($0) }.isBytes(earlier.count))
            let start = ContinuousClock.now
            try refusing([.sendto], with: errno) {
                rest.withUnsafeBytes { LingeringClose.begin(with: descriptor, sending: $0, on: loop) }
            }
            // The peer does not receive, which would cause an event.
            try await eventually("every byte has arrived") { peer.unreadByteCount == earlier.count + rest.count }
            let isQuick = start.duration(to: .now) < .seconds(4)
            peer.finish()
            let received = try peer.receive() + peer.receive()
            #expect(Array(received.suffix(rest.count)) == rest)
            return isQuick
        }
        try await eventually("it has left the loop") { loop.registrationCount == 0 }
    }

    /// There is no more data to send or discard, so the descriptor is not registered again.
    @Test func aConnectionThatThePeerHasEndedClosesImmediately() throws {
        let loop = try SocketEventLoop()
        let (peer, descriptor) = try pair()
        try peer.send([1, 2, 3])
        peer.finish()
        LingeringClose.begin(with: descriptor, sending: nil, on: loop)
        #expect(loop.registrationCount == 0)
        #expect(try peer.receive().isEmpty)
    }

    private func pair() throws -> (peer: RawSocket, own: SocketDescriptor) {
        let (peer, own) = try RawSocket.pair()
        return (peer, SocketDescriptor(takingOver: own.duplicate()))
    }
}

extension RawSocket {
    /// The number of bytes that have arrived and were not received.
    fileprivate var unreadByteCount: Int {
        var count: CInt = 0
        return ioctl(descriptor, UInt(FIONREAD), &count) == 0 ? Int(count) : 0
    }
}

extension SocketDescriptor.SendAnswer {
    fileprivate func isBytes(_ count: Int) -> Bool { if case .bytes(count) = self { true } else { false } }
}
