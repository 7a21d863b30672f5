import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTLS
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Data that is in the kernel without a pending event.
@Suite struct LateBytesTests {
    /// The channel has found nothing to read. Then data and a reset arrive, and a send detects the reset
    /// first.
    @Test func whatCameBeforeAFailedSendIsRead() throws {
        let end = try ChannelEnd.reset(behind: "last words") { end in
            #expect(end.fill().isNothing && !end.channel.mayReceive)
        }
        end.write(Data("hello"))
        #expect(end.submit().isBlocked && end.told.writeFailure?.error.code == .connectionReset)
        // In pieces: a short read is no longer a sign that the kernel is empty.
        #expect(end.channel.mayReceive && end.fill(limit: 4).isBytes && end.takeText() == "last")
        #expect(end.channel.mayReceive && end.fill().isBytes && end.takeText() == " words")
        #expect(end.channel.mayReceive && end.fill().isNothing)
        #expect(end.told.readError?.code == .connectionReset)
    }

    /// A record arrives in so many pieces that the channel yields to others, and reports that it is not done.
    @Test(arguments: TLSProtocolVersion.tested) func aRecordInManyPiecesAsksForAnotherTurn(_ version: TLSProtocolVersion) throws {
        let wire = try ChannelWire.secure(version)
        _ = try wire.receive(at: wire.client)
        for text in ["hello, channel", "and again, the same"] {
            wire.server.write(Data(text))
            #expect(wire.server.submit().isAll)
            try wire.carryDown(inPieces: ByteChannel.roundsPerTurn * 2 + 2)
            var answers: [Bool] = []
            while wire.client.reads.isEmpty, answers.count < 10 {
                let answer = wire.client.fill()
                if case .more = answer { answers.append(true) } else { answers.append(answer.isBytes) }
            }
            #expect(answers == [true, true, true], "\(answers)")
            #expect(wire.client.takeText() == text)
        }
    }
}
