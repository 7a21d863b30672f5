import AsyncSocketsTesting
import Foundation
import Glibc
import Logging
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The end of a listener with several addresses.
@Suite(.timeLimit(.patient)) struct ListenerEndTests {
    private func setup(_ loop: SocketEventLoop, _ ended: @escaping @Sendable (Listener) -> Void) -> Listener.Setup {
        Listener.Setup(
            loop: loop, options: SocketOptionSet(), quota: AcceptQuota(loop: loop), logger: AsyncSocket().logger, observer: nil,
            accepted: { _, _, _ in }, ended: ended)
    }

    /// A listener retains itself until its end.
    @Test(arguments: 1...4) func aListenerEndsOnceAndIsGone(count: Int) async throws {
        let loop = try SocketEventLoop()
        let ends = Locked(0)
        weak var kept: Listener?
        do {
            let addresses = try (1...count).map { try SocketEndpoint.loopback("127.0.0.\($0)") }
            let listener = try Listener.listen(on: addresses, setup(loop) { _ in ends.withLock { $0 += 1 } })
            kept = listener
            listener.start()
            #expect(listener.isOpen)
            listener.close()
            #expect(!listener.isOpen)
        }
        try await eventually("it has ended and is gone") { ends.withLock { $0 } > 0 && kept == nil }
        // Wait until the loop has processed everything before.
        await withCheckedContinuation { continuation in loop.run { continuation.resume() } }
        #expect(ends.withLock { $0 } == 1)
    }

    /// The delegate is notified only when the last address ends.
    @Test(arguments: Link.Delivery.allCases) func theDelegateLearnsOfTheEndOnce(_ delivery: Link.Delivery) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        for _ in 0..<2 {
            try listener.accept(onPort: 0)
            let port = listener.localPort
            let client = try RawSocket.connected(to: .loopback(port: port))
            // A listener's sockets inherit its delegate.
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
        let listener = try SocketListener(port: 0, configure: { $0.logger = LogRecorder.logger(of: "shut down") })
        #expect(listener.listener.localAddresses.count == 2)
        let copy = try #require(listener.listener.duplicateDescriptor())
        defer { close(copy) }
        let running = Task { try await listener.run { _ in } }
        try await eventually("it accepts") { listener.reception.isBegun }
        #expect(shutdown(copy, Int32(SHUT_RDWR)) == 0)
        let error = await #expect(throws: AsyncSocketError.self) { try await running.value }
        #expect(error?.code == .system && error?.errno == EINVAL && error?.message == "accept4: invalid argument")
        #expect(!listener.isListening && !listener.listener.isOpen)
        #expect(LogRecorder.warnings(of: "shut down").map(\.level) == [.error])
    }

    /// If the descriptor of a datagram listener cannot be watched, here because it has become /dev/null, the
    /// listener ends, and so does each call that waits for it.
    @Test(arguments: [false, true]) func aListenerThatCannotBeWatchedHasEnded(runs: Bool) async throws {
        let listener = try DatagramListener(address: .loopback())
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        defer { close(null) }
        // Other tests may have opened thousands of descriptors before.
        let descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap { Int32($0) }
        let bound = try #require(descriptors.first { Self.localPort(of: $0) == listener.localPort })
        #expect(dup2(null, bound) == bound)
        let error = await #expect(throws: AsyncSocketError.self) {
            if runs {
                try await listener.run { _ in }
            } else {
                for try await _ in listener.peers {}
            }
        }
        #expect(error?.code == .system && error?.errno == EPERM)
        #expect(!listener.isListening)
        let hasEnded = try TestSignal()
        let end = Task {
            await listener.close()
            if !runs { for try await _ in listener.peers {} }
            hasEnded.fire()
        }
        try await hasEnded.wait(within: .patient)
        try await end.value
    }

    /// Returns the port of a UDP socket.
    private static func localPort(of descriptor: Int32) -> UInt16? {
        var (address, length) = (sockaddr_in(), socklen_t(MemoryLayout<sockaddr_in>.size))
        let isNamed = withUnsafeMutableBytes(of: &address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { getsockname(descriptor, $0.baseAddress, &length) == 0 }
        }
        var (type, size) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
        guard isNamed, address.sin_family == sa_family_t(AF_INET),
            getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0, type == Int32(SOCK_DGRAM.rawValue)
        else { return nil }
        return UInt16(bigEndian: address.sin_port)
    }

    @Test(arguments: Link.Delivery.allCases) func theDelegateGetsTheErrorOfAccepting(_ delivery: Link.Delivery) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        let log = "shut down, \(delivery)"
        listener.logger = LogRecorder.logger(of: log)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        listener.perform { descriptor in
            if let descriptor { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
        let error = try await recorder.disconnected()
        #expect(error?.code == .system && error?.errno == EINVAL)
        #expect(listener.isDisconnected)
        #expect(LogRecorder.warnings(of: log).map(\.message) == ["a listener failed"])
        // The socket can be reused.
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        listener.disconnect()
        #expect(try await recorder.disconnected() == nil)
    }
}
