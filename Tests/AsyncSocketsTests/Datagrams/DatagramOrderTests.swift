import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Calls in quick succession, from one or several threads. Each call acts as if all earlier calls were
/// complete.
@Suite(.timeLimit(.patient)) struct DatagramOrderTests {
    /// The first of them binds the socket for the others.
    @Test func theFirstSendsOfSeveralTasksAllLeave() async throws {
        let target = try AsyncUDPSocket.bound().address
        for _ in 0..<300 {
            let socket = AsyncUDPSocket()
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<4 { group.addTask { try await socket.send(Data([1]), to: target) } }
                try await group.waitForAll()
            }
            socket.disconnect()
        }
    }

    @Test func disconnectIsInEffectForTheCallsThatFollow() async throws {
        let (recorder, queue) = (DatagramRecorder(), DispatchQueue(label: "socket"))
        let (first, second) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let socket = AsyncUDPSocket(inlineDelegate: recorder, socketQueue: queue)
        // Everything is requested before anything is processed.
        queue.suspend()
        try socket.connect(toAddress: first.address)
        // More than are sent in one turn.
        let count = 700
        for number in 0..<count { socket.send(Data([UInt8(number % 256)]), withTimeout: -1, tag: number) }
        socket.dissolveAssociation()
        try socket.connect(toAddress: second.address)
        socket.send(Data([77]), withTimeout: -1, tag: count)
        queue.resume()
        // The first attempt has its peer immediately, because it is an address.
        #expect(try await recorder.connected() == first.address)
        #expect(try await recorder.connected() == second.address)
        for number in 0..<count { #expect(try await first.receive().data == Data([UInt8(number % 256)])) }
        #expect(try await second.receive().data == Data([77]))
        for tag in 0...count { #expect(try await recorder.sent() == tag) }
        #expect(try socket.connectedAddress == second.address)
    }

    @Test func aSocketThatGivesUpItsLookupMayConnectAtOnce() async throws {
        let (mayAnswer, queue) = (DispatchSemaphore(value: 0), DispatchQueue(label: "socket"))
        defer { mayAnswer.signal() }
        let (recorder, peer) = (DatagramRecorder(), try AsyncUDPSocket.bound())
        let socket = AsyncUDPSocket(inlineDelegate: recorder, socketQueue: queue)
        socket.resolver = Resolver(concurrency: 1) {
            mayAnswer.wait()
            return .failure(ResolveError($0, code: EAI_NONAME))
        }
        try socket.connect(toHost: "some.example", onPort: 9)
        queue.suspend()
        socket.dissolveAssociation()
        try socket.connect(toAddress: peer.address)
        let busy = #expect(throws: AsyncSocketError.self) { try socket.connect(toAddress: peer.address) }
        #expect(busy?.code == .badConfiguration)
        queue.resume()
        let error = try await recorder.first { if case .notConnected(let error) = $0 { error } else { nil } }
        #expect(error.code == .closed)
        #expect(try await recorder.connected() == peer.address)
        socket.dissolveAssociation()
        try await eventually("it is disconnected") { !socket.isConnected }
        try await socket.connect(to: peer.address)
    }

    /// `close()` discards a datagram that does not fit into the kernel's buffer. If the kernel has no room,
    /// the round is inconclusive.
    @Test func whatWasSentJustBeforeTheEndLeaves() async throws {
        let other = try AsyncUDPSocket.bound()
        try await eventually("the kernel has room") {
            let (recorder, queue) = (DatagramRecorder(), DispatchQueue(label: "socket"))
            let socket = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder, socketQueue: queue))
            queue.suspend()
            socket.send(Data([1]), toAddress: try other.address, withTimeout: -1, tag: 1)
            socket.disconnect()
            queue.resume()
            guard case .sent(tag: 1) = try await recorder.next() else { return false }
            #expect(try await recorder.closed() == nil)
            return true
        }
        #expect(try await other.receive().data == Data([1]))
    }

    /// A reply keeps its destination even if the connected peer changes.
    @Test func aReplyGoesToTheSenderThoughThePeerChanges() async throws {
        let (recorder, queue) = (DatagramRecorder(), DispatchQueue(label: "socket"))
        let (first, second) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let socket = AsyncUDPSocket(inlineDelegate: recorder, socketQueue: queue)
        try await socket.connect(to: first.address)
        try await socket.send(Data([1]))
        try await first.send(Data([2]), inReplyTo: first.receive())
        let request = try await socket.receive()
        socket.send(Data([3]), inReplyTo: request, withTimeout: -1, tag: 3)
        #expect(try await first.receive().data == Data([3]))
        queue.suspend()
        socket.dissolveAssociation()
        try socket.connect(toAddress: second.address)
        socket.send(Data([4]), inReplyTo: request, withTimeout: -1, tag: 4)
        socket.send(Data([5]), withTimeout: -1, tag: 5)
        queue.resume()
        #expect(try await second.receive().data == Data([5]))
        let (tag, error) = try await recorder.notSent()
        #expect(tag == 4 && error.code == .badConfiguration)
    }

    @Test func datagramsBehindAnEarlierFilterKeepTheirOrder() async throws {
        let (mayDecide, isAsked) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let (recorder, sender) = (DatagramRecorder(), try AsyncUDPSocket.bound())
        let socket = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        socket.setReceiveFilter(on: DispatchQueue(label: "filter")) { _ in
            isAsked.signal()
            mayDecide.wait()
            return .accept()
        }
        try socket.beginReceiving()
        try await sender.send(Data([0]), to: socket.address)
        isAsked.wait()
        socket.setReceiveFilter(nil)
        for number in UInt8(1)...3 { try await sender.send(Data([number]), to: socket.address) }
        // The loop has handled them by then.
        for number in UInt8(4)...20 {
            try await socket.send(Data([number]), to: socket.address)
            try await eventually("a turn has passed") { socket.pendingSendByteCount == 0 }
        }
        mayDecide.signal()
        for number in UInt8(0)...20 { #expect(try await recorder.received().data == Data([number])) }
    }

    // MARK: - Results

    @Test func aSendThatCannotBeIsAnsweredOnASocketThatIsNotInUse() async throws {
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        socket.isIPv6Enabled = false
        socket.send(Data([1]), toHost: "127.1", port: 9, withTimeout: -1, tag: 1)
        socket.send(Data([1]), toHost: "localhost", port: 0, withTimeout: -1, tag: 2)
        socket.send(Data([1]), toAddress: try .loopback("::1", port: 9), withTimeout: -1, tag: 3)
        socket.send(Data([1]), withTimeout: -1, tag: 4)
        for (number, code) in [(1, .badParameter), (2, .badParameter), (3, .noUsableAddress), (4, .badConfiguration)]
            as [(Int, AsyncSocketError.Code)]
        {
            let (tag, error) = try await recorder.notSent()
            #expect(tag == number && error.code == code)
        }
        #expect(!socket.isOpen)
    }

    @Test func aReceiveIsAnsweredWhenTheSocketDoesNotConnect() async throws {
        let mayAnswer = DispatchSemaphore(value: 0)
        let socket = AsyncUDPSocket()
        socket.resolver = Resolver(concurrency: 1) {
            mayAnswer.wait()
            return .failure(ResolveError($0, code: EAI_NONAME))
        }
        try socket.connect(toHost: "some.example", onPort: 9)
        let waiting = Task.immediate { try await socket.receive() }
        mayAnswer.signal()
        let error = await #expect(throws: AsyncSocketError.self) { try await waiting.value }
        #expect(error?.code == .badConfiguration)
        // A bound socket still receives from all sources meanwhile, and stays open.
        let bound = try AsyncUDPSocket.bound()
        bound.resolver = socket.resolver
        try bound.connect(toHost: "some.example", onPort: 9)
        let going = Task.immediate { try await bound.receive() }
        mayAnswer.signal()
        try await eventually("it has failed") { (try? bound.connect(toAddress: .loopback(port: 9))) != nil }
        bound.dissolveAssociation()
        try await eventually("it is disconnected") { !bound.isConnected }
        try await AsyncUDPSocket().send(Data([8]), to: bound.address)
        #expect(try await going.value.data == Data([8]))
    }

    /// Sends that repeatedly fail immediately do not block the loop.
    @Test func aTaskWhoseSendsFailLetsOthersGoFirst() async throws {
        let loop = try SocketEventLoop(label: "busy")
        let socket = AsyncUDPSocket()
        socket.stay(on: loop)
        try socket.bind(toAddress: .loopback())
        let (target, isOver) = (try socket.address, Locked(false))
        let limit = 200_000
        let busy = Task(executorPreference: loop) {
            let data = Data(count: 65_508)
            // It runs on the same loop, so this does not depend on the load of the machine.
            let other = Task(executorPreference: loop) { isOver.withLock { $0 = true } }
            for count in 0..<limit {
                if isOver.withLock({ $0 }) { return count }
                do { try await socket.send(data, to: target) } catch is AsyncSocketError {}
            }
            other.cancel()
            return limit
        }
        #expect(try await busy.value < limit)
    }
}
