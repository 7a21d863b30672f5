import AsyncSocketsTesting
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

    private func pair() throws -> (peer: RawSocket, own: SocketDescriptor) {
        let (peer, own) = try RawSocket.pair()
        return (peer, SocketDescriptor(takingOver: own.duplicate()))
    }
}
