import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// An error of one datagram is reported only for this datagram, and the socket stays open (D17 in the
/// original).
@Suite(.timeLimit(.patient)) struct DatagramFailureTests {
    @Test(arguments: ["127.0.0.1", "::1"])
    func anUnreachablePortIsReportedAndLaterSendsSucceed(_ host: String) async throws {
        let recorder = DatagramRecorder()
        let socket = try AsyncUDPSocket.bound(host, AsyncUDPSocket(inlineDelegate: recorder))
        let other = try AsyncUDPSocket.bound(host)
        let (own, refusing) = (try socket.address, try SocketEndpoint.loopback(host, port: RawSocket.freePort()))
        socket.send(Data([1]), toAddress: refusing, withTimeout: -1, tag: 1)
        let (address, error) = try await recorder.first {
            if case .failedToReach(let address, let error) = $0 { (address, error) } else { nil }
        }
        #expect(address == refusing && error.errno == ECONNREFUSED && error.fault == .peer)
        #expect(error.message == "\(refusing): connection refused")
        socket.send(Data([2]), toAddress: try other.address, withTimeout: -1, tag: 2)
        let datagram = try await other.receive()
        #expect(datagram.data == Data([2]) && datagram.sender == own)
        #expect(socket.isOpen)
    }

    @Test func aConnectedSocketGoesOnWhenItsPeerComesBack() async throws {
        let port = try RawSocket.freePort()
        let socket = AsyncUDPSocket()
        try await socket.connect(to: "127.0.0.1", port: port)
        let local = socket.localPort
        var failureCount = 0
        for _ in 0..<20 {
            do { try await socket.send(Data([0])) } catch let error as AsyncSocketError {
                #expect(error.errno == ECONNREFUSED)
                failureCount += 1
            }
        }
        #expect(failureCount < 20)
        let peer = AsyncUDPSocket()
        try peer.bind(toAddress: .loopback(port: port))
        try await eventually("the peer is reached") {
            do { try await socket.send(Data([1])) } catch let error as AsyncSocketError where error.errno == ECONNREFUSED {}
            return peer.isOpen
        }
        let datagram = try await peer.receive()
        try await peer.send(Data([2]), inReplyTo: datagram)
        #expect(try await socket.receive().data == Data([2]))
        #expect(socket.localPort == local)
    }

    @Test func eachFailureIsReportedForItsOwnDatagram() async throws {
        let recorder = DatagramRecorder()
        let other = try AsyncUDPSocket.bound()
        let socket = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        let good = try other.address
        let broadcast = try SocketEndpoint.loopback("255.255.255.255", port: 9)
        for tag in 0..<30 {
            let size = tag % 3 == 2 ? 65_508 : 10
            socket.send(Data(count: size), toAddress: tag % 3 == 1 ? broadcast : good, withTimeout: -1, tag: tag)
        }
        for _ in 0..<10 { #expect(try await other.receive().data.count == 10) }
        socket.disconnectAfterSending()
        #expect(try await recorder.closed() == nil)
        var failed: [Int: Int32] = [:]
        var sent: [Int] = []
        for told in recorder.history {
            if case .sent(let tag) = told { sent.append(tag) }
            if case .notSent(let tag, let error) = told { failed[tag] = error.errno }
        }
        #expect(sent == Array(stride(from: 0, to: 30, by: 3)))
        #expect((0..<30).filter { $0 % 3 == 1 }.allSatisfy { failed[$0] == EACCES })
        #expect((0..<30).filter { $0 % 3 == 2 }.allSatisfy { failed[$0] == EMSGSIZE })
    }

    @Test func aHostWithoutAnAddressFailsItsSendOnly() async throws {
        let socket = AsyncUDPSocket()
        let other = try AsyncUDPSocket.bound()
        socket.resolver = Resolver(concurrency: 1) { .failure(ResolveError($0, code: EAI_NONAME)) }
        let error = await #expect(throws: AsyncSocketError.self) {
            try await socket.send(Data([1]), to: "some.example", port: 9)
        }
        #expect(error?.code == .hostNotFound)
        try await socket.send(Data([1]), to: other.address)
        #expect(try await other.receive().data == Data([1]))
    }

    @Test func aDestinationThatCannotBeUsedIsRefused() async throws {
        let socket = AsyncUDPSocket()
        socket.isIPv6Enabled = false
        for (code, send): (AsyncSocketError.Code, () async throws -> Void) in [
            (.noUsableAddress, { try await socket.send(Data(), to: .loopback("::1", port: 9)) }),
            (.badParameter, { try await socket.send(Data(), to: .loopback(port: 0)) }),
            (.badParameter, { try await socket.send(Data(), to: "127.1", port: 9) }),
            (.badParameter, { try await socket.send(Data(), to: "localhost", port: 70_000) }),
            (.badConfiguration, { try await socket.send(Data()) }),
            (.badConfiguration, { _ = try await socket.receive() }),
        ] {
            let error = await #expect(throws: AsyncSocketError.self) { try await send() }
            #expect(error?.code == code, "\(String(describing: error))")
        }
        #expect(!socket.isOpen)
    }

    /// The send itself fails, so no delivery failure is reported.
    @Test func aDatagramThatIsTooLargeForItsPathIsAnsweredOnce() async throws {
        let recorder = DatagramRecorder()
        let socket = try AsyncUDPSocket.bound("::1", AsyncUDPSocket(inlineDelegate: recorder))
        try socket.setOption(.pathMTUDiscovery, to: .always)
        // The loopback interface's MTU is 65,536 bytes, of which the headers take 48.
        let target = try SocketEndpoint.loopback("::1", port: RawSocket.freePort())
        socket.send(Data(count: 65_500), toAddress: target, withTimeout: -1, tag: 1)
        let (tag, error) = try await recorder.notSent()
        #expect(tag == 1 && error.errno == EMSGSIZE && error.fault == .caller)
        socket.send(Data([1]), toAddress: target, withTimeout: -1, tag: 2)
        let reported = try await recorder.first { if case .failedToReach(_, let error) = $0 { error.errno } else { nil } }
        #expect(reported == ECONNREFUSED)
    }

    // MARK: - The queue

    /// Returns a resolver that completes when the semaphore is signalled.
    private func heldResolver(_ address: SocketEndpoint) -> (Resolver, DispatchSemaphore) {
        let mayAnswer = DispatchSemaphore(value: 0)
        return (
            Resolver(concurrency: 1) { _ in
                mayAnswer.wait()
                return .success([address])
            }, mayAnswer
        )
    }

    @Test func theOrderIsKeptBehindALookup() async throws {
        let other = try AsyncUDPSocket.bound()
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        let (resolver, mayAnswer) = heldResolver(try other.address)
        socket.resolver = resolver
        socket.send(Data([0]), toHost: "some.example", port: other.localPort, withTimeout: -1, tag: 0)
        for tag in 1..<10 { socket.send(Data([UInt8(tag)]), toAddress: try other.address, withTimeout: -1, tag: tag) }
        socket.send(Data([10]), toHost: "some.example", port: other.localPort, withTimeout: -1, tag: 10)
        try await eventually("all wait") { socket.pendingSendByteCount == 11 * 65 }
        mayAnswer.signal()
        for number in UInt8(0)...10 { #expect(try await other.receive().data == Data([number])) }
        for tag in 0...10 { #expect(try await recorder.sent() == tag) }
    }

    @Test func aSendThatIsLateOrCancelledIsRemoved() async throws {
        let other = try AsyncUDPSocket.bound()
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        let (resolver, mayAnswer) = heldResolver(try other.address)
        socket.resolver = resolver
        let port = other.localPort
        socket.send(Data([0]), toHost: "some.example", port: port, withTimeout: 0.01, tag: 7)
        let late = Task.immediate { try await socket.send(Data([1]), to: "some.example", port: port, timeout: .milliseconds(20)) }
        let cancelled = Task.immediate { try await socket.send(Data([2]), to: "some.example", port: port) }
        let (tag, error) = try await recorder.notSent()
        #expect(tag == 7 && error.code == .writeTimeout)
        let lateError = await #expect(throws: AsyncSocketError.self) { try await late.value }
        #expect(lateError?.code == .writeTimeout)
        cancelled.cancel()
        await #expect(throws: CancellationError.self) { try await cancelled.value }
        try await eventually("nothing waits") { socket.pendingSendByteCount == 0 }
        mayAnswer.signal()
        try await socket.send(Data([3]), to: other.address)
        #expect(try await other.receive().data == Data([3]))
    }

    @Test func aFullQueueFailsTheSendAndItsMarksAreDelivered() async throws {
        let other = try AsyncUDPSocket.bound()
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        socket.maximumPendingSendBytes = 10_000
        socket.sendHighWaterMark = 5_000
        let (resolver, mayAnswer) = heldResolver(try other.address)
        socket.resolver = resolver
        for tag in 0..<10 {
            socket.send(Data(count: 1_000), toHost: "some.example", port: other.localPort, withTimeout: -1, tag: tag)
        }
        let (tag, error) = try await recorder.notSent()
        #expect(tag == 9 && error.code == .writeQueueFull)
        #expect(recorder.history.contains { if case .highWater(5 * 1_064) = $0 { true } else { false } })
        mayAnswer.signal()
        _ = try await recorder.first { if case .lowWater(let count) = $0 { count } else { nil } }
        for _ in 0..<9 { #expect(try await other.receive().data.count == 1_000) }
        try await eventually("nothing waits") { socket.pendingSendByteCount == 0 }
    }

    @Test func oneDatagramAloneIsNeverTooMuch() async throws {
        let other = try AsyncUDPSocket.bound()
        let socket = AsyncUDPSocket()
        socket.maximumPendingSendBytes = 10
        let (resolver, mayAnswer) = heldResolver(try other.address)
        socket.resolver = resolver
        let sending = Task.immediate { try await socket.send(Data(count: 1_000), to: "some.example", port: 9) }
        let second = await #expect(throws: AsyncSocketError.self) {
            try await socket.send(Data(), to: "some.example", port: 9)
        }
        #expect(second?.code == .writeQueueFull)
        mayAnswer.signal()
        try await sending.value
        #expect(try await other.receive().data.count == 1_000)
    }

    @Test func aLookupIsSharedOnlyWhileOperationsWait() async throws {
        let other = try AsyncUDPSocket.bound()
        let (lookupCount, mayAnswer) = (Locked(0), DispatchSemaphore(value: 0))
        let target = try other.address
        let socket = AsyncUDPSocket()
        socket.resolver = Resolver(concurrency: 1) { _ in
            lookupCount.withLock { $0 += 1 }
            mayAnswer.wait()
            return .success([target])
        }
        let sends = (0..<5).map { _ in Task.immediate { try await socket.send(Data(), to: "some.example", port: 9) } }
        mayAnswer.signal()
        for send in sends { try await send.value }
        #expect(lookupCount.withLock { $0 } == 1)
        mayAnswer.signal()
        try await socket.send(Data(), to: "some.example", port: 9)
        #expect(lookupCount.withLock { $0 } == 2)
    }
}
