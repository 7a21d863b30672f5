import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// `exchange`: a request, repeated until its reply arrives.
@Suite(.timeLimit(.patient)) struct ExchangeTests {
    /// Matches datagrams that start with the same byte as the request.
    private static func first(_ byte: UInt8) -> @Sendable (Datagram) -> Bool { { $0.data.first == byte } }

    private let brief = Duration.milliseconds(50)

    @Test(arguments: [false, true]) func theReplyIsReturned(isConnected: Bool) async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), AsyncUDPSocket())
        let serving = Task { for _ in 0..<2 { try await peer.send(Data([7, 1]), inReplyTo: peer.receive()) } }
        if isConnected { try await socket.connect(to: peer.address) }
        for _ in 0..<2 {
            let reply =
                isConnected
                ? try await socket.exchange(Data([7]), matching: Self.first(7))
                : try await socket.exchange(Data([7]), with: peer.address, matching: Self.first(7))
            #expect(try reply.data == Data([7, 1]) && reply.sender == peer.address)
        }
        try await serving.value
    }

    @Test func aRequestIsRepeatedUntilItIsAnswered() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), AsyncUDPSocket())
        let serving = Task {
            for _ in 0..<3 { #expect(try await peer.receive().data == Data([1, 2])) }
            try await peer.send(Data([1, 3]), inReplyTo: peer.receive())
        }
        let reply = try await socket.exchange(
            Data([1, 2]), with: peer.address, attempts: 10_000, timeout: brief, matching: Self.first(1))
        #expect(reply.data == Data([1, 3]))
        try await serving.value
    }

    /// The reply to the first request is accepted while a later attempt is waiting.
    @Test func aLateReplyIsAccepted() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), AsyncUDPSocket())
        let serving = Task {
            let first = try await peer.receive()
            _ = try await peer.receive()
            try await peer.send(Data([1, 9]), inReplyTo: first)
        }
        let reply = try await socket.exchange(
            Data([1]), with: peer.address, attempts: 10_000, timeout: brief, matching: Self.first(1))
        #expect(reply.data == Data([1, 9]))
        try await serving.value
    }

    /// All tasks share a socket and a server, which replies in the opposite order.
    @Test func eachOfManyExchangesGetsItsOwnReply() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let count = UInt8(60)
        let serving = Task {
            var requests: [UInt8: Datagram] = [:]
            while requests.count < count {
                let request = try await peer.receive()
                if let byte = request.data.first { requests[byte] = request }
            }
            for byte in requests.keys.sorted(by: >) {
                if let request = requests[byte] { try await peer.send(Data([byte, 0xFF]), inReplyTo: request) }
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for byte in 0..<count {
                group.addTask {
                    let reply = try await socket.exchange(
                        Data([byte]), with: peer.address, attempts: 100, timeout: .seconds(20), matching: Self.first(byte))
                    #expect(reply.data == Data([byte, 0xFF]))
                }
            }
            try await group.waitForAll()
        }
        try await serving.value
    }

    /// A datagram from another address is not the reply, whatever it contains.
    @Test func otherDatagramsAreReceivedAsUsual() async throws {
        let (peer, stranger, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let serving = Task {
            let request = try await peer.receive()
            try await stranger.send(Data([1, 66]), to: request.sender)
            try await peer.send(Data([2]), inReplyTo: request)
            try await peer.send(Data([1, 1]), inReplyTo: request)
        }
        let reply = try await socket.exchange(Data([1]), with: peer.address, timeout: .patient, matching: Self.first(1))
        #expect(reply.data == Data([1, 1]))
        let rest = [try await socket.receive(), try await socket.receive()]
        #expect(try rest.map(\.sender) == [stranger.address, peer.address])
        #expect(rest.map(\.data) == [Data([1, 66]), Data([2])])
        try await serving.value
    }

    @Test func aDelegateReceivesTheOtherDatagrams() async throws {
        let (peer, recorder) = (try AsyncUDPSocket.bound(), DatagramRecorder())
        let socket = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        try socket.beginReceiving()
        let serving = Task {
            let request = try await peer.receive()
            for bytes in [[2], [1, 1], [3]] as [[UInt8]] { try await peer.send(Data(bytes), inReplyTo: request) }
        }
        let reply = try await socket.exchange(Data([1]), with: peer.address, timeout: .patient, matching: Self.first(1))
        #expect(reply.data == Data([1, 1]))
        #expect(try await recorder.received().data == Data([2]))
        #expect(try await recorder.received().data == Data([3]))
        try await serving.value
    }

    /// Datagrams that nothing receives neither grow without a limit nor delay the reply.
    @Test func aFloodOfOtherDatagramsIsLimited() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let isDone = Locked(false)
        let serving = Task {
            while !isDone.withLock({ $0 }) {
                let request = try await peer.receive()
                for _ in 0..<60 { try await peer.send(Data(count: 1_200), inReplyTo: request) }
                try await peer.send(Data([1, 1]), inReplyTo: request)
            }
        }
        for _ in 0..<3 {
            _ = try await socket.exchange(
                Data([1]), with: peer.address, attempts: 10_000, timeout: .seconds(1), matching: Self.first(1))
        }
        isDone.withLock { $0 = true }
        try await socket.send(Data(), to: peer.address)
        #expect(socket.dropped.overflowed >= 15)
        // 45 of these fit into 64 KiB, because each is charged 256 bytes more.
        for _ in 0..<45 { #expect(try await socket.receive(timeout: .patient).data.count == 1_200) }
        try await serving.value
    }

    /// During an exchange, a socket buffers up to 64 KiB of other datagrams. A datagram stops counting
    /// towards this limit when a task receives it.
    @Test func datagramsThatWereTakenMakeRoomForOthers() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let count = 60
        let serving = Task {
            for _ in 0..<count {
                let request = try await peer.receive()
                for _ in 0..<2 { try await peer.send(Data(count: 1_200), inReplyTo: request) }
                try await peer.send(Data([1]), inReplyTo: request)
            }
        }
        for _ in 0..<count {
            _ = try await socket.exchange(
                Data([1]), with: peer.address, attempts: 1, timeout: .patient, matching: Self.first(1))
            #expect(socket.dropped.overflowed == 0)
            for _ in 0..<2 { #expect(try await socket.receive(timeout: .patient).data.count == 1_200) }
        }
        try await serving.value
    }

    /// An exchange must not make the socket receive more than a slow delegate has room for.
    @Test func aDelegatesLimitAppliesDuringAnExchange() async throws {
        let (peer, recorder) = (try AsyncUDPSocket.bound(), DatagramRecorder())
        let queue = DispatchQueue(label: "delegate")
        let socket = AsyncUDPSocket(delegate: recorder, delegateQueue: queue)
        socket.maximumPendingReceiveBytes = 20_000
        let receiver = try AsyncUDPSocket.bound("127.0.0.1", socket)
        try receiver.beginReceiving()
        queue.suspend()
        let address = try peer.address
        let asking = Task { try await receiver.exchange(Data([1]), with: address, timeout: .patient, matching: Self.first(1)) }
        let request = try await peer.receive()
        // The kernel may drop some of these. Those that the socket receives fill the limit.
        try await eventually("the limit is reached") {
            try await peer.send(Data([2]) + Data(count: 1_000), inReplyTo: request)
            return socket.dropped.overflowed >= 20
        }
        try await peer.send(Data([1]), inReplyTo: request)
        #expect(try await asking.value.data == Data([1]))
        queue.resume()
        _ = try await recorder.received()
        socket.disconnect()
        _ = try await recorder.closed()
        let delivered = recorder.history.count { if case .received = $0 { true } else { false } }
        #expect((1...17).contains(delivered))
    }

    @Test func noReplyIsATimeoutThatNamesTheAttempts() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let error = await #expect(throws: AsyncSocketError.self) {
            try await socket.exchange(Data([1]), with: peer.address, timeout: brief) { _ in true }
        }
        #expect(error?.code == .readTimeout && error?.operation == .exchange && error?.errno == nil)
        #expect(error?.message == "no reply was received within 0.05 seconds, in any of 3 attempts")
        for _ in 0..<3 { #expect(try await peer.receive().data == Data([1])) }
        #expect(socket.isOpen)
    }

    /// The reports of the network explain the timeout, and do not end the exchange, because they can be
    /// forged.
    @Test func refusalsAreInTheTimeout() async throws {
        let refusing = try SocketEndpoint.loopback(port: RawSocket.freePort())
        let socket = try AsyncUDPSocket.bound()
        var error: AsyncSocketError?
        for _ in 0..<100 where error?.errno == nil {
            error = await #expect(throws: AsyncSocketError.self) {
                try await socket.exchange(Data([1]), with: refusing, timeout: brief) { _ in true }
            }
        }
        #expect(error?.code == .readTimeout && error?.errno == ECONNREFUSED)
        #expect(error?.message.contains("; the network reported ") == true)
        #expect(error?.message.hasSuffix("\(refusing): connection refused") == true)
    }

    @Test func aCancelledExchangeKeepsNothing() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        weak var kept: Token?
        do {
            let token = Token()
            kept = token
            let address = try peer.address
            let asking = Task {
                try await socket.exchange(Data([1]), with: address, timeout: .patient) { [token] _ in
                    withExtendedLifetime(token) { false }
                }
            }
            _ = try await peer.receive()
            asking.cancel()
            await #expect(throws: CancellationError.self) { try await asking.value }
        }
        try await eventually("its closure is released") { kept == nil }
        // The socket no longer reads from the kernel.
        try await peer.send(Data([5]), to: socket.address)
        #expect(try await socket.receive().data == Data([5]))
    }

    private final class Token: Sendable {}

    @Test func closingTheSocketEndsTheExchange() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let address = try peer.address
        let asking = Task { try await socket.exchange(Data([1]), with: address, timeout: .patient) { _ in true } }
        _ = try await peer.receive()
        socket.disconnect()
        let error = await #expect(throws: AsyncSocketError.self) { try await asking.value }
        #expect(error?.code == .closed)
        let late = await #expect(throws: AsyncSocketError.self) {
            try await socket.exchange(Data([1]), with: address) { _ in true }
        }
        #expect(late?.code == .closed)
    }

    @Test func aDeadlineEndsTheExchange() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let error = await #expect(throws: AsyncSocketError.self) {
            try await withDeadline(brief) {
                try await socket.exchange(Data([1]), with: peer.address, timeout: .patient) { _ in true }
            }
        }
        #expect(error?.code == .deadlineExceeded)
    }

    @Test func wrongParametersAreErrors() async throws {
        let socket = AsyncUDPSocket()
        let none = await #expect(throws: AsyncSocketError.self) {
            try await socket.exchange(Data([1]), with: .loopback(port: 9), attempts: 0) { _ in true }
        }
        #expect(none?.code == .badParameter && none?.message == "attempts must be at least 1, but is 0")
        let unconnected = await #expect(throws: AsyncSocketError.self) { try await socket.exchange(Data([1])) { _ in true } }
        #expect(unconnected?.code == .badConfiguration)
    }

    // MARK: - DTLS

    @Test func anExchangeOverDTLS() async throws {
        let (client, server) = try await StyledDatagramSocket.pair(.task)
        try await secure(client, TestCertificates.client(), server, TestCertificates.server())
        let serving = Task {
            _ = try await server.receive()
            for text in ["noise", "reply"] { try await server.send(text) }
            _ = try await server.receive()
            server.socket.disconnect()
        }
        let reply = try await client.socket.exchange(Data("request".utf8), timeout: .patient) { $0.data == Data("reply".utf8) }
        #expect(reply.data == Data("reply".utf8))
        #expect(try await client.receive() == "noise")
        let error = await #expect(throws: AsyncSocketError.self) {
            try await client.socket.exchange(Data("last".utf8), timeout: .patient) { _ in true }
        }
        #expect(error?.code == .closedByPeer)
        try await serving.value
    }
}
