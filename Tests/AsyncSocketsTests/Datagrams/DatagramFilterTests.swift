import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Send and receive filters, inline and on a queue, and the rate limit.
@Suite(.timeLimit(.patient)) struct DatagramFilterTests {
    @Test(arguments: [false, true]) func aReceiveFilterAcceptsWithAContextOrDrops(isOnQueue: Bool) async throws {
        let recorder = DatagramRecorder()
        let sender = try AsyncUDPSocket.bound()
        let socket = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        socket.setReceiveFilter(on: isOnQueue ? DispatchQueue(label: "filter") : nil) { datagram in
            guard let number = datagram.data.first, number % 2 == 0 else { return .drop }
            return .accept(context: Int(number) * 10)
        }
        for number in UInt8(0)..<20 { try await sender.send(Data([number]), to: socket.address) }
        // Once, for the next accepted datagram.
        for number in [0, 2] {
            try socket.receiveOnce()
            let datagram = try await recorder.received()
            #expect(datagram.data == Data([UInt8(number)]) && datagram.filterContext as? Int == number * 10)
        }
        for number in [4, 6] { #expect(try await socket.receive().data == Data([UInt8(number)])) }
        try socket.beginReceiving()
        for number in stride(from: 8, to: 20, by: 2) {
            #expect(try await recorder.received().filterContext as? Int == number * 10)
        }
        socket.setReceiveFilter(nil)
        try await sender.send(Data([21]), to: socket.address)
        let last = try await recorder.received()
        #expect(last.data == Data([21]) && last.filterContext == nil)
    }

    /// A datagram no longer counts towards the limit once the filter has decided.
    @Test(arguments: [false, true]) func aFilterThatDropsMuchLeavesRoomForTheRest(isOnQueue: Bool) async throws {
        let (recorder, sender) = (DatagramRecorder(), try DatagramParty())
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        // Each datagram counts as at least 256 bytes.
        socket.maximumPendingReceiveBytes = 2_000
        try socket.bind(toAddress: .loopback())
        socket.setReceiveFilter(on: isOnQueue ? DispatchQueue(label: "filter") : nil) {
            $0.data == Data([99]) ? .accept() : .drop
        }
        try socket.beginReceiving()
        for number in UInt8(0)..<100 { #expect(sender.send([[number]], to: try socket.address).isComplete(1)) }
        #expect(try await recorder.received().data == Data([99]))
    }

    @Test(arguments: [false, true]) func whatASendFilterDropsCountsAsSent(isOnQueue: Bool) async throws {
        let recorder = DatagramRecorder()
        let other = try AsyncUDPSocket.bound()
        let (target, seen) = (try other.address, Locked<[Int]>([]))
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        socket.setSendFilter(on: isOnQueue ? DispatchQueue(label: "filter") : nil) { data, address, tag in
            seen.withLock { $0.append(tag) }
            return address == target && data.first.map { $0 % 3 == 0 } ?? false
        }
        for tag in 0..<30 { socket.send(Data([UInt8(tag)]), toAddress: target, withTimeout: -1, tag: tag) }
        for tag in 0..<30 { #expect(try await recorder.sent() == tag) }
        for number in stride(from: 0, to: 30, by: 3) { #expect(try await other.receive().data == Data([UInt8(number)])) }
        #expect(seen.withLock { $0 } == Array(0..<30))
        // Sends of tasks have tag 0 and are also filtered.
        try await socket.send(Data([1]), to: target)
        socket.setSendFilter(nil)
        try await socket.send(Data([2]), to: target)
        #expect(try await other.receive().data == Data([2]))
    }

    @Test func aSocketMayCloseWhileItsFilterDecides() async throws {
        let (mayDecide, isAsked) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let recorder = DatagramRecorder()
        let socket = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        socket.setSendFilter(on: DispatchQueue(label: "filter")) { _, _, _ in
            isAsked.signal()
            mayDecide.wait()
            return true
        }
        socket.send(Data([1]), toAddress: try socket.address, withTimeout: -1, tag: 1)
        isAsked.wait()
        socket.disconnect()
        let (tag, error) = try await recorder.notSent()
        #expect(tag == 1 && error.code == .closed)
        #expect(try await recorder.closed() == nil)
        #expect(socket.pendingSendByteCount == 0)
        mayDecide.signal()
    }

    @Test func aRateLimitDropsAndCounts() async throws {
        let (one, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound("127.0.0.1"))
        let socket = AsyncUDPSocket()
        socket.rateLimit = SourceRateLimit(perSource: .init(perSecond: 0.000_001, burst: 3))
        try socket.bind(toAddress: .loopback())
        for number in UInt8(0)..<10 { try await one.send(Data([number]), to: socket.address) }
        for number in UInt8(0)..<3 { #expect(try await socket.receive().data == Data([number])) }
        try await eventually("seven datagrams are over the limit") {
            let late = await #expect(throws: AsyncSocketError.self) { try await socket.receive(timeout: .milliseconds(1)) }
            #expect(late?.code == .readTimeout)
            return socket.dropped.byRate == 7
        }
        #expect(socket.dropped.overflowed == 0)
        socket.rateLimit = nil
        try await other.send(Data([99]), to: socket.address)
        #expect(try await socket.receive().data == Data([99]))
        #expect(socket.dropped.byRate == 7)
    }
}
