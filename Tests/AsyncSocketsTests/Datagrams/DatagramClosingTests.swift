import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// Closing a socket whose datagrams are waiting, and the addresses of datagrams.
@Suite(.timeLimit(.patient)) struct DatagramClosingTests {
    /// Sends, closes after sending, and then calls `letGo` so that the datagrams can be sent.
    private func expectDelivery(
        _ socket: AsyncUDPSocket, _ recorder: DatagramRecorder, to other: AsyncUDPSocket, host: String? = nil,
        letGo: () -> Void
    ) async throws {
        for tag in 0..<3 {
            let data = Data([UInt8(tag)])
            if let host {
                socket.send(data, toHost: host, port: other.localPort, withTimeout: -1, tag: tag)
            } else {
                socket.send(data, toAddress: try other.address, withTimeout: -1, tag: tag)
            }
        }
        socket.disconnectAfterSending()
        // The failure of a later send shows that the close has been processed.
        socket.send(Data([9]), toAddress: try other.address, withTimeout: -1, tag: 9)
        let (tag, error) = try await recorder.notSent()
        #expect(tag == 9 && error.code == .closed)
        letGo()
        #expect(try await recorder.closed() == nil)
        let told = recorder.history.compactMap { told -> Int? in
            switch told {
            case .sent(let tag): tag
            case .notSent(let tag, _) where tag != 9: -1
            default: nil
            }
        }
        #expect(told == [0, 1, 2])
        for tag in UInt8(0)..<3 { #expect(try await other.receive().data == Data([tag])) }
    }

    @Test func closingAfterSendingWaitsForALookup() async throws {
        let (recorder, other, mayAnswer) = (DatagramRecorder(), try AsyncUDPSocket.bound(), DispatchSemaphore(value: 0))
        let (socket, address) = (AsyncUDPSocket(inlineDelegate: recorder), try other.address)
        socket.resolver = Resolver(concurrency: 1) { _ in
            mayAnswer.wait()
            return .success([address])
        }
        try await expectDelivery(socket, recorder, to: other, host: "some.example") { mayAnswer.signal() }
    }

    /// A socket with a queued datagram that cannot be sent before the semaphore is signalled.
    private func waitingSocket(_ recorder: DatagramRecorder, to other: AsyncUDPSocket) throws -> (
        AsyncUDPSocket, DispatchSemaphore
    ) {
        let (socket, address, mayAnswer) = (
            AsyncUDPSocket(inlineDelegate: recorder), try other.address, DispatchSemaphore(value: 0)
        )
        socket.resolver = Resolver(concurrency: 1) { _ in
            mayAnswer.wait()
            return .success([address])
        }
        socket.send(Data([7]), toHost: "some.example", port: other.localPort, withTimeout: -1, tag: 7)
        return (socket, mayAnswer)
    }

    @Test func aTasksCloseReturnsWhenAllIsSent() async throws {
        let (recorder, other) = (DatagramRecorder(), try AsyncUDPSocket.bound())
        let (socket, mayAnswer) = try waitingSocket(recorder, to: other)
        let closing = Task { try await socket.close(timeout: .patient) }
        mayAnswer.signal()
        try await closing.value
        #expect(socket.isClosed)
        #expect(try await other.receive().data == Data([7]))
        // A socket that is closed, or was never in use, has nothing to send.
        try await socket.close(timeout: .patient)
        try await AsyncUDPSocket().close(timeout: .patient)
    }

    @Test func aTasksCloseHasALimitAndMayBeCancelled() async throws {
        for isCancelled in [false, true] {
            let (recorder, other) = (DatagramRecorder(), try AsyncUDPSocket.bound())
            let (socket, mayAnswer) = try waitingSocket(recorder, to: other)
            defer { mayAnswer.signal() }
            let receiving = Task { try await socket.receive() }
            let closing = Task { try await socket.close(timeout: isCancelled ? .patient : .milliseconds(20)) }
            if isCancelled { closing.cancel() }
            let reason = await #expect(throws: (any Error).self) { try await closing.value }
            #expect((reason is CancellationError) == isCancelled)
            #expect((reason as? AsyncSocketError)?.code == (isCancelled ? nil : .writeTimeout))
            let (tag, error) = try await recorder.notSent()
            #expect(tag == 7 && error.code == .closed)
            // The program has asked for the end, so it is no error of the socket.
            #expect(try await recorder.closed() == nil)
            #expect(await outcome { try await receiving.value } == .failed(.closed))
            #expect(socket.isClosed)
        }
    }

    @Test func closingAfterSendingWaitsForAFilter() async throws {
        let (recorder, other, mayAnswer) = (DatagramRecorder(), try AsyncUDPSocket.bound(), DispatchSemaphore(value: 0))
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        socket.setSendFilter(on: DispatchQueue(label: "test.filter")) { _, _, _ in
            mayAnswer.wait()
            mayAnswer.signal()
            return true
        }
        try await expectDelivery(socket, recorder, to: other) { mayAnswer.signal() }
    }

    /// More datagrams than are sent in one turn.
    @Test func thousandsOfWaitingDatagramsAllComplete() async throws {
        let (recorder, other, mayAnswer) = (DatagramRecorder(), try AsyncUDPSocket.bound(), DispatchSemaphore(value: 0))
        let (socket, address) = (AsyncUDPSocket(inlineDelegate: recorder), try other.address)
        socket.resolver = Resolver(concurrency: 1) { _ in
            mayAnswer.wait()
            return .success([address])
        }
        for tag in 0..<2_000 {
            socket.send(Data([1]), toHost: "some.example", port: other.localPort, withTimeout: -1, tag: tag)
        }
        mayAnswer.signal()
        for tag in 0..<2_000 { #expect(try await recorder.sent() == tag) }
        #expect(socket.pendingSendByteCount == 0)
    }

    @Test(arguments: [SocketEndpoint.Family.ipv4, .ipv6]) func thePreferredFamilyIsSentTo(family: SocketEndpoint.Family)
        async throws
    {
        let other = AsyncUDPSocket()
        try other.bind(toPort: 0)
        let (socket, port) = (AsyncUDPSocket(), other.localPort)
        let addresses = try ["127.0.0.1", "::1"].map { try SocketEndpoint.loopback($0, port: port) }
        // Returns the other family first.
        socket.resolver = Resolver(concurrency: 1) { _ in .success(family == .ipv4 ? addresses.reversed() : addresses) }
        socket.preferredFamily = family
        try await socket.send(Data([1]), to: "some.example", port: port)
        #expect(try await other.receive().sender.family == family)
    }

    /// The name resolves to an IPv6 address first, and the socket supports only IPv4.
    @Test func anAddressThatNoDescriptorReachesIsPassedOver() async throws {
        let (socket, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let port = other.localPort
        let addresses = try ["::1", "127.0.0.1"].map { try SocketEndpoint.loopback($0, port: port) }
        socket.resolver = Resolver(concurrency: 1) { _ in .success(addresses) }
        try await socket.send(Data([1]), to: "some.example", port: port)
        #expect(try await other.receive().sender.family == .ipv4)
    }

    /// Includes replies that wait in the queue, and several replies from different sources to one
    /// destination.
    @Test(arguments: [false, true]) func aReplyLeavesFromTheAddressThatWasAsked(isDelegate: Bool) async throws {
        let recorder = DatagramRecorder()
        let server = AsyncUDPSocket(inlineDelegate: recorder)
        try server.bind(toPort: 0)
        let client = try AsyncUDPSocket.bound()
        var requests: [Datagram] = []
        for host in ["127.0.0.5", "127.0.0.6", "127.0.0.7"] {
            try await client.send(Data(host.utf8), to: host, port: server.localPort)
            requests.append(try await server.receive())
        }
        for (tag, request) in requests.enumerated() {
            if isDelegate {
                server.send(request.data, inReplyTo: request, withTimeout: -1, tag: tag)
            } else {
                try await server.send(request.data, inReplyTo: request)
            }
        }
        for _ in requests {
            let reply = try await client.receive()
            #expect(reply.sender.host == String(decoding: reply.data, as: UTF8.self))
        }
    }

    /// Runs of equal size, which the kernel splits, among datagrams of other sizes.
    @Test func runsStayInOrder() async throws {
        var options = SocketOptionSet()
        try options.set(.receiveBufferSize, to: 1_000_000)
        let (peer, recorder, mayAnswer) = (try DatagramParty(options: options), DatagramRecorder(), DispatchSemaphore(value: 0))
        let (socket, address) = (AsyncUDPSocket(inlineDelegate: recorder), try peer.address)
        socket.resolver = Resolver(concurrency: 1) { _ in
            mayAnswer.wait()
            return .success([address])
        }
        // All of them are queued, and sent in batches.
        let sizes = [7: 30, 13: 900]
        let payloads = (0..<120).map { number in [UInt8](repeating: UInt8(number), count: sizes[number % 20] ?? 500) }
        for (tag, payload) in payloads.enumerated() {
            socket.send(Data(payload), toHost: "some.example", port: address.port ?? 0, withTimeout: -1, tag: tag)
        }
        mayAnswer.signal()
        #expect(try peer.take(120).map(\.bytes) == payloads)
        for tag in 0..<120 { #expect(try await recorder.sent() == tag) }
    }
}
