import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

/// A recv that does not fill its buffer has emptied the kernel's buffer, except where Linux stops early:
/// before urgent data (tcp(7)) and after a message with descriptors (unix(7)). No further event is reported
/// for the bytes behind them.
@Suite(.timeLimit(.patient)) struct ShortReadTests {
    /// Reads from a raw socket with one of our sockets. All data from `burst` arrives while the loop is busy,
    /// as one event.
    private func read(
        from peer: RawSocket, _ socket: AsyncSocket, _ burst: @escaping @Sendable (CInt) -> Void
    ) async throws -> String {
        let recorder = Recorder { _, told in
            if case .read(_, tag: 0) = told { burst(peer.descriptor) }
        }
        socket.changeDelegate(to: recorder)
        socket.readData(toLength: 2, withTimeout: .patient, tag: 0)
        socket.readData(toLength: 6, withTimeout: .patient, tag: 1)
        try peer.send("go")
        #expect(try await recorder.readText() == "go")
        return try await recorder.readText()
    }

    @Test func whatComesBehindUrgentDataIsRead() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let peer = try RawSocket.connected(to: .loopback(port: listener.localPort))
        let socket = try await atListener.accepted()
        // The urgent byte itself is not part of the stream.
        let text = try await read(from: peer, socket) { peer in
            send(peer, "abc", 3, 0)
            send(peer, "!", 1, CInt(MSG_OOB))
            send(peer, "def", 3, 0)
        }
        #expect(text == "abcdef")
        withExtendedLifetime((listener, atListener, peer)) {}
    }

    @Test func whatComesBehindDescriptorsIsRead() async throws {
        let (peer, other) = try RawSocket.pair()
        let socket = try AsyncSocket(adopting: other.duplicate())
        let text = try await read(from: peer, socket) { peer in
            sendWithDescriptor(Array("abc".utf8), to: peer)
            send(peer, "def", 3, 0)
        }
        #expect(text == "abcdef")
    }
}
