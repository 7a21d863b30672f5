import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The kernel has no memory to send (ENOBUFS, ENOMEM), and does not report an event when it has memory again.
@Suite(.timeLimit(.patient)) struct ShortageTests {
    @Test func aSendIsTriedAgainAfterItsTimeAndNotBefore() throws {
        let (end, peer) = try ChannelEnd.pair()
        let before = Deadline.now
        #expect(end.channel.note(SocketDescriptor.SendAnswer.exhausted) == nil)
        let retry = try #require(end.channel.retry)
        #expect(retry > before)
        end.write(Data("hello"))
        #expect(end.submit().isBlocked)
        // An event for the other direction, or an earlier one, has no effect.
        end.channel.note([.readable, .writable])
        end.channel.retryIfDue(at: before)
        #expect(end.submit().isBlocked && end.channel.retry == retry && !peer.hasInput)
        end.channel.retryIfDue(at: retry)
        #expect(end.channel.retry == nil && end.submit().isAll)
        #expect(try peer.receiveText() == "hello")
        // It can happen again.
        #expect(end.channel.note(SocketDescriptor.SendAnswer.exhausted) == nil)
        end.channel.retryIfDue(at: try #require(end.channel.retry))
        #expect(end.channel.retry == nil)
    }

    /// Nothing else happens on the connection, so it continues after its own timer.
    @Test(arguments: [false, true]) func aWriteGoesOnByItself(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        for text in ["first", "second"] {
            let connection = try #require(pair.client.connection)
            try await eventually("the turn is free") {
                guard connection.turn.enterIfFree() else { return false }
                defer { connection.turn.leaveOrDrain(connection) }
                guard let channel = connection.data.channel else { return false }
                return channel.note(SocketDescriptor.SendAnswer.exhausted) == nil
            }
            let write = Task.immediate { try await pair.client.write(text, timeout: .patient) }
            #expect(try await pair.server.read(exactly: text.utf8.count, timeout: .patient) == Data(text))
            try await write.value
        }
    }
}
