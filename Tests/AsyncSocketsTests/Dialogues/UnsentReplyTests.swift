import AsyncSocketsTesting
import Glibc
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A server's dialogue fails before the reply that starts TLS has been sent. The reply must stay unsent, even
/// if the kernel has room for it by then, because TLS will not start.
@Suite(.timeLimit(.patient), .ownThreads) struct UnsentReplyTests {
    private let end: ChannelEnd
    private let peer: RawSocket
    private let dialogue: UpgradeDialogue
    private let preBuffer = PreBuffer()

    /// The kernel has no room for the greeting and the reply.
    init() throws {
        (end, peer) = try ChannelEnd.pair()
        let makeRequest = DialogueRequest.maker(StartTLSServer.smtp(greeting: "m"), .seconds(60))
        let request = try makeRequest()
        dialogue = UpgradeDialogue(try #require(request))
        let filler = [UInt8](repeating: FullKernel.filler, count: 4_096)
        while case let count = filler.withUnsafeBytes({ end.channel.send($0) }), count > 0 {}
        try peer.send("STARTTLS\r\n")
        try end.wait(for: Int16(POLLIN))
        guard case .incomplete = dialogue.advance(over: end.channel, preBuffer) else {
            throw Unexpected(description: "the dialogue does not wait for the kernel")
        }
    }

    /// Makes room for the reply, sends more bytes, and returns the dialogue's error.
    private func failure(_ sendMore: () throws -> Void) throws -> AsyncSocketError? {
        _ = try peer.receiveArrived(1 << 20)
        try sendMore()
        try end.wait(for: Int16(POLLIN))
        end.channel.note([.readable, .writable])
        guard case .failed(let error) = dialogue.advance(over: end.channel, preBuffer) else { return nil }
        return error
    }

    @Test func anInjectionLeavesTheReplyUnsent() throws {
        let error = try failure { try peer.send("MAIL FROM:<a@example.org>\r\n") }
        #expect(error?.code == .earlyPlaintext && error?.startTLS?.injectedByteCount == 27)
        #expect(dialogue.lastReplies.isEmpty && !end.channel.hasUnsentBytes)
        #expect(try peer.receiveArrived(1_000) == [])
    }

    /// Bytes before the end of the client's direction are an injection, however they arrive.
    @Test func anInjectionBeforeAnEndLeavesTheReplyUnsent() throws {
        let error = try failure {
            try peer.send("QUIT\r\n")
            peer.finish()
        }
        #expect(error?.code == .earlyPlaintext && dialogue.lastReplies.isEmpty)
        #expect(try peer.receiveArrived(1_000) == [])
    }

    /// The kernel is still full when the client closes its direction, so the connection closes with bytes
    /// unsent.
    @Test func theEndOfTheClientLeavesTheReplyUnsent() throws {
        peer.finish()
        try end.wait(for: ChannelEnd.readHangup)
        end.channel.note([.readable, .readHangup])
        guard case .failed(let error) = dialogue.advance(over: end.channel, preBuffer) else {
            throw Unexpected(description: "the end of the client is not noticed")
        }
        #expect(error.startTLS?.code == .closed && dialogue.lastReplies.isEmpty)
    }
}
