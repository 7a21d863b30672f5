import AsyncSocketsTesting
import Foundation
import Logging
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Listeners on descriptors inherited from a service manager.
@Suite(.timeLimit(.patient)) struct InheritedListeningTests {
    private enum Event: Sendable {
        case accepted(SocketEndpoint)
        case ended
    }

    private static func setup(_ loop: SocketEventLoop) -> (Listener.Setup, AsyncStream<Event>.Iterator) {
        let (events, continuation) = AsyncStream<Event>.makeStream()
        let setup = Listener.Setup(
            loop: loop, options: SocketOptionSet(), quota: AcceptQuota(loop: loop), logger: Logger(label: "test"),
            observer: nil,
            accepted: { _, peer, _ in continuation.yield(.accepted(peer)) }, ended: { _ in continuation.yield(.ended) })
        return (setup, events.makeAsyncIterator())
    }

    private static func inherit(_ socket: RawSocket) -> InheritedDescriptor {
        InheritedDescriptor(socket.duplicate(), name: "web")
    }

    @Test func oneListenerServesAllInheritedSocketsAndEndsOnce() async throws {
        let folder = try TemporaryFolder()
        let sockets = [
            try RawSocket.listening(), try .listening("::1"),
            try .listening(on: try #require(SocketEndpoint(unixPath: folder.path("s")))),
        ]
        let loop = try SocketEventLoop()
        var (setup, events) = Self.setup(loop)
        let listener = try Listener.listen(onInherited: sockets.map(Self.inherit), setup)
        #expect(try listener.localAddress == sockets[0].localAddress)
        listener.start()
        for socket in sockets {
            let client = try RawSocket.connected(to: try socket.localAddress)
            guard case .accepted(let peer) = await events.next() else { throw Unexpected(description: "no connection") }
            #expect(try peer == client.localAddress)
        }
        listener.close()
        guard case .ended = await events.next() else { throw Unexpected(description: "no end") }
        #expect(loop.registrationCount == 0)
        for socket in sockets {
            let client = try RawSocket.connected(to: try socket.localAddress)
            #expect(try socket.accepted().peerAddress == client.localAddress)
        }
        #expect(try folder.names == ["s"])
    }

    @Test func oneWrongDescriptorLeavesNothingBehind() throws {
        let loop = try SocketEventLoop()
        let (setup, _) = Self.setup(loop)
        let good = Self.inherit(try RawSocket.listening())
        let wrong = Self.inherit(try RawSocket.refusing())
        let error = #expect(throws: SystemError.self) { try Listener.listen(onInherited: [good, wrong], setup) }
        #expect(error?.description == "the inherited descriptor \"web\": not a listening socket")
        #expect(loop.registrationCount == 0)
        #expect(good.relinquish() == nil && wrong.relinquish().map { close($0) } == 0)
        let none = #expect(throws: SystemError.self) { try Listener.listen(onInherited: [], setup) }
        #expect(none?.errno == EINVAL)
    }
}
