import AsyncSockets
import Dispatch
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct AcceptingTests {
    /// While the first connection is told, a number of others come; then the listener is stopped from within that callback.
    @Test(arguments: [Link.Delivery.inline, .delegateQueue])
    func nothingIsAcceptedAfterADisconnectFromWithinTheCallback(_ delivery: Link.Delivery) async throws {
        let othersHaveCome = DispatchSemaphore(value: 0)
        let atListener = Recorder { listener, told in
            guard case .accepted = told else { return }
            _ = othersHaveCome.wait(timeout: .now() + 60)
            listener.disconnect()
        }
        let listener = AsyncSocket(delegate: atListener, delegateQueue: delivery.delegateQueue)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        let clients = try (0..<20).map { _ in try RawClient(to: address) }
        othersHaveCome.signal()
        let first = try await atListener.accepted()
        guard case .disconnected(nil) = await atListener.next() else {
            Issue.record("another connection was told")
            return
        }
        #expect(first.isConnected)
        for client in clients.dropFirst() { #expect(try client.receive() == "") }
        #expect(try #require(clients.first).isQuiet)
        #expect(throws: RawClient.Refused.self) { try RawClient(to: address) }
        withExtendedLifetime((atListener, listener)) {}
    }
}
