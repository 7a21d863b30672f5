import AsyncSocketsTesting
import Glibc
import SocketTestSupport
import SocketTestTraits
import StartTLSProtocols
import Testing

@testable import AsyncSockets

/// Bytes that arrive before the reply to STARTTLS, without an event.
@Suite(.timeLimit(.patient)) struct UnannouncedBytesTests {
    @Test func theyAreAnInjection() throws {
        let (end, peer) = try ChannelEnd.tcp()
        let server = StartTLSServer.imap(greeting: "ready")
        let dialogue = UpgradeDialogue(try #require(try DialogueRequest.maker(server, .seconds(60))()))
        try peer.send("a STARTTLS\r\n")
        try end.wait(for: Int16(POLLIN))
        // The short read shows that the kernel has no more bytes, and the next ones announce themselves.
        #expect(end.fill().isBytes && !end.channel.mayReceive)
        try peer.send("b LOGIN a b\r\n")
        try end.wait(for: Int16(POLLIN))
        guard case .failed(let error) = dialogue.advance(over: end.channel, end.reads) else {
            throw Unexpected(description: "the bytes were not found")
        }
        #expect(error.code == .earlyPlaintext)
    }
}
