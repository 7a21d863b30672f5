import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Plaintext that was received but not delivered before `startDTLS` is never delivered as data of the secure
/// connection.
@Suite(.timeLimit(.patient)) struct EarlyPlaintextTests {
    /// A filter that blocks until the test continues it.
    private struct SlowFilter {
        let queue = DispatchQueue(label: "filter")
        let mayAccept = DispatchSemaphore(value: 0)
        let isAsked = DispatchSemaphore(value: 0)

        func install(on socket: AsyncUDPSocket) {
            socket.setReceiveFilter(on: queue) { [isAsked, mayAccept] _ in
                isAsked.signal()
                mayAccept.wait()
                return .accept()
            }
        }

        func waitUntilAsked() async { await offLoop { isAsked.wait() } }

        /// Accepts the datagram, and returns after the socket has received the verdict.
        func accept() async {
            mayAccept.signal()
            await offLoop { queue.sync {} }
        }

        private func offLoop(_ body: @escaping @Sendable () -> Void) async {
            await withCheckedContinuation { continuation in
                DispatchQueue.global().async {
                    body()
                    continuation.resume()
                }
            }
        }
    }

    /// The receive is cancelled while the filter runs, so the accepted datagram stays in the socket.
    @Test(arguments: Style.allCases, [true, false])
    func aDatagramThatAFilterAcceptsLateIsNotData(_ style: Style, isBeforeTheUpgrade: Bool) async throws {
        let (client, server) = try await StyledDatagramSocket.pair(style)
        let filter = SlowFilter()
        filter.install(on: client.socket)
        try await server.send("injected")
        if style == .task {
            let receiving = Task.immediate { try await client.socket.receive() }
            await filter.waitUntilAsked()
            receiving.cancel()
            await #expect(throws: CancellationError.self) { try await receiving.value }
        } else {
            try client.socket.beginReceiving()
            await filter.waitUntilAsked()
            client.socket.pauseReceiving()
        }
        if isBeforeTheUpgrade { await filter.accept() }
        client.socket.setReceiveFilter(nil)
        async let securing: Void = secure(client, TestCertificates.client(), server, TestCertificates.server())
        if !isBeforeTheUpgrade { await filter.accept() }
        try await securing
        try await server.send("new")
        #expect(try await client.receive() == "new")
    }

    /// A stranger's datagram that arrived before `connect` is not passed to the engine.
    @Test(arguments: Style.allCases) func aStrangersEarlierDatagramIsIgnored(_ style: Style) async throws {
        let (client, server) = (try StyledDatagramSocket(style), try StyledDatagramSocket(style))
        let stranger = try AsyncUDPSocket.bound()
        for target in [client, server] {
            try await stranger.send(Data([22, 0xFE, 0xFD, 0, 0, 0, 0]), to: target.socket.address)
        }
        try await client.connect(to: server.socket.address)
        try await server.connect(to: client.socket.address)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        #expect(client.socket.dropped.invalid == 0 && server.socket.dropped.invalid == 0)
    }

    /// The delegate queue is suspended while a datagram arrives and the upgrade starts.
    @Test func aDatagramQueuedForADelegateIsNotDelivered() async throws {
        let (queue, recorder) = (DispatchQueue(label: "delegate"), DatagramRecorder())
        let client = AsyncUDPSocket(delegate: recorder, delegateQueue: queue)
        let server = try AsyncUDPSocket.bound()
        try client.bind(toAddress: .loopback())
        try await client.connect(to: server.address)
        try await server.connect(to: client.address)
        let isReceived = try TestSignal()
        client.setReceiveFilter { _ in
            isReceived.fire()
            return .accept()
        }
        queue.suspend()
        try client.beginReceiving()
        try await server.send(Data("injected".utf8))
        try await isReceived.wait()
        try client.beginDTLS(settings: TestCertificates.client())
        queue.resume()
        try await server.startDTLS(settings: TestCertificates.server())
        try await server.send(Data("new".utf8))
        #expect(try await recorder.received().data == Data("new".utf8))
    }
}
