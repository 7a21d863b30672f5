import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import Logging
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Parts of the API that no other suite tests. See `Documentation/GCDAsyncSocketReference.md`.
@Suite(.timeLimit(.patient)) struct BeyondTheOriginalTests {
    @Test func aReadToTheEndReturnsAllBytes() async throws {
        let peer = try ScriptedPeer.listening([.send("one\r\n"), .send("two"), .finish, .expectEnd])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        socket.readDataToEnd(withTimeout: .patient)
        #expect(try await recorder.readText() == "one\r\ntwo")
        #expect(try await recorder.disconnected()?.isOrderlyEnd == true)
        _ = try await peer.finish()
        withExtendedLifetime(socket) {}
    }

    private final class TypedDelegate: AsyncSocketDelegate, Sendable {
        let ends = AsyncStream<String>.makeStream()

        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
            ends.continuation.yield("typed: \(error?.code.description ?? "no error")")
        }
    }

    private final class OriginalDelegate: AsyncSocketDelegate, Sendable {
        let ends = AsyncStream<String>.makeStream()

        func socketDidDisconnect(_ socket: AsyncSocket, withError error: (any Error)?) {
            ends.continuation.yield("original: \((error as? AsyncSocketError)?.code.description ?? "no error")")
        }
    }

    @Test func bothSpellingsOfDidDisconnectAreCalled() async throws {
        let typed = TypedDelegate()
        let original = OriginalDelegate()
        let sockets = [AsyncSocket(inlineDelegate: typed), AsyncSocket(inlineDelegate: original)]
        for socket in sockets {
            let peer = try ScriptedPeer.listening([.finish, .expectEnd])
            try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
            _ = try await peer.finish()
        }
        var typedEnds = typed.ends.stream.makeAsyncIterator()
        var originalEnds = original.ends.stream.makeAsyncIterator()
        #expect(await typedEnds.next() == "typed: closedByPeer")
        #expect(await originalEnds.next() == "original: closedByPeer")
        withExtendedLifetime(sockets) {}
    }

    /// A log handler that stores its messages.
    private struct Notes: LogHandler {
        let messages: Locked<[String]>
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.debug

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let role = event.metadata?["role"].map { "\($0)" } ?? "none"
            messages.withLock { $0.append("\(role): \(event.message)") }
        }
    }

    @Test func aSocketLogsToItsLogger() async throws {
        let messages = Locked<[String]>([])
        let peer = try ScriptedPeer.listening([.finish, .expectEnd])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.logger = Logger(label: "mine") { _ in Notes(messages: messages) }
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        _ = try await recorder.disconnected()
        _ = try await peer.finish()
        withExtendedLifetime(socket) {}
        let noted = messages.withLock { $0 }
        #expect(!noted.isEmpty && noted.allSatisfy { $0.hasPrefix("client: ") })
    }
}
