import AsyncSocketsTesting
import Foundation
import Logging
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// More datagrams than the program reads.
@Suite(.timeLimit(.patient), .serialized) struct DatagramFloodTests {
    private static let size = 1_000
    private static let count = 20_000

    /// Floods a socket and returns the number of datagrams sent.
    private func flood(_ target: SocketEndpoint) throws -> Int {
        let sender = try DatagramParty()
        let payloads = [[UInt8]](repeating: [UInt8](repeating: 7, count: Self.size), count: 100)
        return (0..<Self.count / 100).reduce(0) { total, _ in total + sender.send(payloads, to: target).handledCount }
    }

    @Test func aSlowDelegateKeepsMemoryBoundedAndDropsAreCounted() async throws {
        let (mayGoOn, waits) = (DispatchSemaphore(value: 0), Locked(true))
        let recorder = DatagramRecorder { _, told in
            if case .received = told, waits.withLock({ $0 }) { mayGoOn.wait() }
        }
        let socket = AsyncUDPSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "slow"))
        socket.maximumPendingReceiveBytes = 100_000
        socket.maximumReceiveSize = 2_048
        socket.logger = LogRecorder.logger(of: "datagrams dropped")
        try socket.setOption(.receiveBufferSize, to: 200_000)
        try socket.bind(toAddress: .loopback())
        try socket.beginReceiving()
        let sentCount = try flood(socket.address)
        #expect(sentCount == Self.count && socket.dropped.overflowed > 0)
        waits.withLock { $0 = false }
        mayGoOn.signal()
        try await sendMarker(to: socket.address) {
            recorder.history.contains { if case .received(let datagram) = $0 { datagram.data.isEmpty } else { false } }
        }
        // Each counts as 256 additional bytes, so 80 wait for the delegate, and some hundreds in the kernel.
        #expect((80...1_000).contains(recorder.history.count))
        socket.disconnect()
        #expect(try await recorder.closed() == nil)
        #expect(
            LogRecorder.lines("test", "datagrams dropped").contains { $0.level == .warning && $0.message.contains("dropped") })
    }

    /// Sends empty datagrams until one has arrived. By then all earlier datagrams have arrived or were
    /// dropped.
    private func sendMarker(to target: SocketEndpoint, _ hasArrived: () async throws -> Bool) async throws {
        let sender = try DatagramParty()
        try await eventually("the marker arrives") {
            sender.send([[]], to: target)
            return try await hasArrived()
        }
    }

    @Test func reportsOfLossesDoNotFillTheMemory() async throws {
        let (mayGoOn, isReported) = (DispatchSemaphore(value: 0), Locked(false))
        let recorder = DatagramRecorder { _, told in
            guard case .failedToReach = told else { return }
            if isReported.withLock({ isReported in
                defer { isReported = true }; return !isReported
            }) {
                mayGoOn.wait()
            }
        }
        let socket = AsyncUDPSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "slow"))
        socket.maximumPendingReceiveBytes = 10_240
        try socket.bind(toAddress: .loopback())
        let refusing = try SocketEndpoint.loopback(port: RawSocket.freePort())
        for _ in 0..<2_000 { try await socket.send(Data([1]), to: refusing) }
        try await eventually("one is reported") { isReported.withLock { $0 } }
        socket.disconnect()
        mayGoOn.signal()
        #expect(try await recorder.closed() == nil)
        // Each counts as 256 bytes, and delivered datagrams no longer count.
        #expect((1...80).contains(recorder.history.count - 1))
    }

    @Test func withoutAReaderTheKernelKeepsWhatFits() async throws {
        let socket = AsyncUDPSocket()
        // Disables UDP GRO, which would coalesce many datagrams.
        socket.maximumReceiveSize = 2_048
        socket.logger = LogRecorder.logger(of: "without a reader")
        try socket.bind(toAddress: .loopback())
        _ = try flood(socket.address)
        var count = 0
        try await sendMarker(to: socket.address) {
            while let datagram = try? await socket.receive(timeout: .milliseconds(10)) {
                if datagram.data.isEmpty { return true }
                count += 1
            }
            return false
        }
        #expect((1...1_000).contains(count) && socket.dropped.overflowed > 0)
    }

    private static let hosts = ["127.0.0.1", "::1"]

    /// A socket has a descriptor for each IP version. Each has 50 queued datagrams when the socket starts
    /// to receive.
    @Test func bothDescriptorsOfASocketAreRead() async throws {
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        try socket.bind(toPort: 0)
        for host in Self.hosts {
            let sender = try AsyncUDPSocket.bound(host)
            for _ in 0..<50 { try await sender.send(Data([1]), to: host, port: socket.localPort) }
        }
        try socket.beginReceiving()
        var senders: [String?] = []
        for _ in 0..<100 { senders.append(try await recorder.received().sender.host) }
        for host in Self.hosts {
            #expect(senders.count { $0 == host } == 50)
            // Neither descriptor is emptied before the other is read.
            #expect(senders.prefix(20).contains(host))
        }
        socket.disconnect()
    }

    /// More datagrams arrive at one descriptor than a listener receives per turn, and none at the other.
    /// The kernel reports them with a single event.
    @Test(arguments: hosts) func aListenerTakesAllDatagramsOfOneDescriptor(_ host: String) async throws {
        let listener = try DatagramListener(port: 0, configure: { try $0.setOption(.receiveBufferSize, to: 400_000) })
        let target = try SocketEndpoint.loopback(host, port: listener.localPort)
        let received = Locked(0)
        let serving = Task {
            try await listener.run { socket in
                for try await _ in socket.datagrams { received.withLock { $0 += 1 } }
            }
        }
        /// Sends datagrams from the loop, so that the listener cannot receive them yet. Returns the number
        /// sent.
        func send(_ count: Int) async throws -> Int {
            let result = await withCheckedContinuation { continuation in
                listener.hub.loop.run {
                    continuation.resume(
                        returning: Result {
                            let sender = try DatagramParty(host, families: host == "::1" ? .ipv6 : .ipv4, segments: false)
                            return sender.send([[UInt8]](repeating: [1], count: count), to: target).handledCount
                        })
                }
            }
            return try result.get()
        }
        #expect(try await send(1) == 1)
        try await eventually("the first has arrived") { received.withLock { $0 } == 1 }
        #expect(try await send(270) == 270)
        try await eventually("all have arrived") { received.withLock { $0 } == 271 }
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// Two sockets on one loop: the flooded one does not prevent the other from receiving its datagram.
    @Test func aFloodedSocketLeavesTurnsToOthers() async throws {
        let loop = try SocketEventLoop(label: "flooded")
        let received = Locked(0)
        let recorder = DatagramRecorder { _, told in
            if case .received = told { received.withLock { $0 += 1 } }
        }
        let (flooded, other) = (AsyncUDPSocket(inlineDelegate: recorder), AsyncUDPSocket())
        flooded.logger = LogRecorder.logger(of: "flooded")
        for socket in [flooded, other] {
            socket.stay(on: loop)
            try socket.bind(toAddress: .loopback())
        }
        try flooded.beginReceiving()
        let (target, goesOn) = (try flooded.address, Locked(true))
        let attack = Thread {
            guard let sender = try? DatagramParty() else { return }
            let payloads = [[UInt8]](repeating: [1], count: 64)
            while goesOn.withLock({ $0 }) { sender.send(payloads, to: target) }
        }
        attack.start()
        defer { goesOn.withLock { $0 = false } }
        try await eventually("the flood has begun") { received.withLock { $0 } > 1_000 }
        for number in UInt8(0)..<50 {
            let waiting = Task.immediate { try await other.receive() }
            try await AsyncUDPSocket().send(Data([number]), to: other.address)
            #expect(try await waiting.value.data == Data([number]))
            // The flood must continue meanwhile, otherwise the other socket was not delayed.
            let before = received.withLock { $0 }
            try await eventually("the flood goes on") { received.withLock { $0 } > before }
        }
    }
}
