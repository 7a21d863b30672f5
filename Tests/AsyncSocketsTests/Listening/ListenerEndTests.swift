import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The end of a listener that has several addresses.
@Suite(.timeLimit(.patient)) struct ListenerEndTests {
    private func setup(_ loop: EventLoop, _ ended: @escaping @Sendable (Listener) -> Void) -> Listener.Setup {
        Listener.Setup(
            loop: loop, options: SocketOptionSet(), quota: AcceptQuota(loop: loop), logger: AsyncSocket().logger, observer: nil,
            accepted: { _, _, _ in }, ended: ended)
    }

    /// It keeps itself until its end, and no longer.
    @Test(arguments: 1...4) func aListenerEndsOnceAndIsGone(count: Int) async throws {
        let loop = try EventLoop()
        let ends = Locked(0)
        weak var kept: Listener?
        do {
            let addresses = try (1...count).map { try SocketAddress.loopback("127.0.0.\($0)") }
            let listener = try Listener.listen(on: addresses, setup(loop) { _ in ends.withLock { $0 += 1 } })
            kept = listener
            listener.start()
            #expect(listener.isOpen)
            listener.close()
            #expect(!listener.isOpen)
        }
        try await eventually("it has ended and is gone") { ends.withLock { $0 } > 0 && kept == nil }
        // Everything that the loop had to do before is done.
        await withCheckedContinuation { continuation in loop.run { continuation.resume() } }
        #expect(ends.withLock { $0 } == 1)
    }

    /// A delegate learns of the end of the last address, and not of the others.
    @Test(arguments: Link.Delivery.allCases) func theDelegateLearnsOfTheEndOnce(_ delivery: Link.Delivery) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        for _ in 0..<2 {
            try listener.accept(onPort: 0)
            let port = listener.localPort
            let client = try RawSocket.connected(to: .loopback(port: port))
            // The sockets of a listener have its delegate.
            try await recorder.accepted().changeDelegate(to: Recorder())
            listener.disconnect()
            #expect(try await recorder.disconnected() == nil)
            withExtendedLifetime(client) {}
        }
        await listener.settle()
        #expect(recorder.unread.isEmpty)
    }
}
