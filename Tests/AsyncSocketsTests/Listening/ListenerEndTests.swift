import AsyncSocketsTesting
import Foundation
import Glibc
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

    /// If another holder of a listening socket shuts it down, accept4(2) fails from then on. The listener
    /// does not continue with its other address.
    @Test func aListenerThatCanNoLongerAcceptThrowsTheError() async throws {
        let listener = try SocketListener(port: 0)
        #expect(listener.listener.localAddresses.count == 2)
        let copy = try #require(listener.listener.duplicateDescriptor())
        defer { close(copy) }
        let running = Task { try await listener.run { _ in } }
        try await eventually("it accepts") { listener.reception.isBegun }
        #expect(shutdown(copy, Int32(SHUT_RDWR)) == 0)
        let error = await #expect(throws: AsyncSocketError.self) { try await running.value }
        #expect(error?.code == .system && error?.errno == EINVAL && error?.message == "accept4: invalid argument")
        #expect(!listener.isListening && !listener.listener.isOpen)
    }

    @Test(arguments: Link.Delivery.allCases) func theDelegateGetsTheErrorOfAccepting(_ delivery: Link.Delivery) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        listener.perform { descriptor in
            if let descriptor { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
        let error = try await recorder.disconnected()
        #expect(error?.code == .system && error?.errno == EINVAL)
        #expect(listener.isDisconnected)
        // The socket may be used again.
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        listener.disconnect()
        #expect(try await recorder.disconnected() == nil)
    }
}
