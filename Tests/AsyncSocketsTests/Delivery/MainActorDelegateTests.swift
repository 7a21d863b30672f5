import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// A delegate on the main actor, as in the documentation of `AsyncSocketDelegate`.
@Suite(.timeLimit(.patient)) struct MainActorDelegateTests {
    @MainActor @Test func aDelegateOnTheMainActorReceivesData() async throws {
        let peer = try ScriptedPeer.listening([.send("one\r\ntwo\r\n"), .expectEnd])
        let session = Session()
        let socket = AsyncSocket(delegate: session)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        for tag in 1...2 { socket.readData(to: AsyncSocket.crlf, withTimeout: .patient, tag: tag) }
        socket.disconnectAfterReading()
        for await _ in session.end.stream {}
        #expect(session.events == ["one", "two", "the end"])
        _ = try await peer.finish()
        withExtendedLifetime(socket) {}
    }
}

/// Its state has no lock, because the compiler restricts it to the main actor.
@MainActor
private final class Session {
    var events: [String] = []
    /// Finishes when the connection closes.
    let end = AsyncStream<Never>.makeStream()
}

extension Session: @MainActor AsyncSocketDelegate {
    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        events.append(String(decoding: data.dropLast(2), as: UTF8.self))
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        events.append(error?.description ?? "the end")
        end.continuation.finish()
    }
}
