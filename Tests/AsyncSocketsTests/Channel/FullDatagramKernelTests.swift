import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// Datagrams that do not fit into the kernel's queue. The sockets are a pair of Unix-domain sockets, because
/// the loopback interface delivers UDP immediately, so its queue never fills up.
@Suite(.timeLimit(.patient), .ownThreads) struct FullDatagramKernelTests {
    private static let target = Result { InternetAddress(try .loopback(port: 9)) }

    /// One end of the pair as a channel, and what arrives at the other end.
    private final class End {
        let channel: DatagramChannel
        private let own: RawSocket
        private let peer: RawSocket

        init() throws {
            (own, peer) = try Self.connected()
            channel = DatagramChannel(
                DatagramDescriptor(takingOver: own.duplicate()), maximumSize: 2048, coalesces: false)
        }

        deinit { channel.descriptor.socket.close() }

        /// Returns two sockets of which only the first is connected. Otherwise the second one's queue would
        /// have no limit of its own (unix(7)).
        private static func connected() throws -> (RawSocket, RawSocket) {
            let (own, peer) = (try RawSocket(AF_UNIX, SOCK_DGRAM), try RawSocket(AF_UNIX, SOCK_DGRAM))
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            var length = socklen_t(MemoryLayout<sa_family_t>.size)
            let isConnected = withUnsafeMutablePointer(to: &address) { address in
                address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                    guard bind(peer.descriptor, address, length) == 0 else { return false }
                    length = socklen_t(MemoryLayout<sockaddr_un>.size)
                    guard getsockname(peer.descriptor, address, &length) == 0 else { return false }
                    return connect(own.descriptor, address, length) == 0
                }
            }
            guard isConnected else { throw Unexpected(description: "errno \(errno)") }
            return (own, peer)
        }

        /// Fills the queue with datagrams of one byte. No test sends such datagrams.
        func fill(leaving room: Int = 0) throws {
            while case let sent = send(own.descriptor, [0], 1, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL)), sent == 1 {}
            for _ in 0..<room where peer.hasInput { _ = try peer.receive() }
        }

        /// Takes everything out of the queue, and tells the channel that there is room.
        func drain() throws -> [[UInt8]] {
            var datagrams: [[UInt8]] = []
            while peer.hasInput { datagrams.append(try peer.receive()) }
            channel.note(.writable)
            return datagrams.filter { $0.count > 1 }
        }
    }

    /// The sending half of a socket over the end.
    private final class Output {
        let end: End
        let output: DatagramOutput
        private let outbox = EventOutbox<DatagramEvent>()
        private(set) var sent: [Int] = []

        init() throws {
            end = try End()
            output = DatagramOutput(outbox, DatagramCounts()) { _ in }
        }

        func enqueue(_ data: Data, tag: Int) throws {
            let packet = DatagramPacket(data, to: .peer, timeout: -1, completion: .delegate(tag: tag))
            output.enqueue(packet, .connected(try target.get()))
        }

        /// Sends until nothing is left or the kernel is full.
        func pump() throws {
            while output.pump([end.channel], .connected(try target.get())), end.channel.mayHaveRoom {}
            while let event = outbox.waiting.popFirst() {
                guard case .didSend(let tag) = event else { throw Unexpected(description: "\(event)") }
                sent.append(tag)
            }
        }
    }

    private static func data(_ number: Int) -> Data { withUnsafeBytes(of: number) { Data($0) } + pattern(number % 700) }

    // MARK: - Plaintext

    /// A datagram is reported as sent when the kernel has it, and not before.
    @Test func aFullKernelDelaysABatchAndLosesNothing() throws {
        let output = try Output()
        let count = 2_000
        for number in 0..<count { try output.enqueue(Self.data(number), tag: number) }
        var arrived: [[UInt8]] = []
        var rounds = 0
        while !output.output.isEmpty, rounds <= count {
            try output.pump()
            // The next event continues, and no timer.
            if !output.output.isEmpty { #expect(!output.end.channel.mayHaveRoom && output.end.channel.retry == nil) }
            arrived += try output.end.drain()
            #expect(output.sent.count == arrived.count)
            rounds += 1
        }
        #expect(rounds > 1 && output.sent == Array(0..<count))
        #expect(arrived == (0..<count).map { Array(Self.data($0)) })
    }

    /// Room for a few datagrams of a batch. An event of another kind does not continue.
    @Test(arguments: [0, 1, 2, 5]) func aBatchIsSentInParts(room: Int) throws {
        let output = try Output()
        try output.end.fill(leaving: room)
        for number in 0..<40 { try output.enqueue(Self.data(number), tag: number) }
        try output.pump()
        #expect(output.sent == Array(0..<room))
        output.end.channel.note(.readable)
        output.end.channel.retryIfDue(at: .now)
        try output.pump()
        #expect(output.sent.count == room && !output.end.channel.mayHaveRoom)
        var arrived: [[UInt8]] = []
        for _ in 0..<40 where !output.output.isEmpty {
            arrived += try output.end.drain()
            try output.pump()
        }
        arrived += try output.end.drain()
        #expect(output.sent == Array(0..<40) && arrived == (0..<40).map { Array(Self.data($0)) })
    }

    /// A task's datagram is sent immediately or queued. If it was queued, the first one keeps its place.
    @Test func aTasksDatagramIsQueuedWhileTheKernelIsFull() throws {
        let output = try Output()
        try output.end.fill()
        func send(_ data: Data) throws -> Result<Void, any Error>? {
            let peer = DatagramPeer.connected(try Self.target.get())
            return data.withUnsafeBytes { output.output.sendAtOnce($0, to: .peer, [output.end.channel], peer) }
        }
        #expect(try send(Self.data(1)) == nil)
        try output.enqueue(Self.data(1), tag: 1)
        #expect(try output.end.drain().isEmpty)
        // The kernel has room again, but an earlier datagram is queued.
        #expect(try send(Self.data(2)) == nil)
        try output.enqueue(Self.data(2), tag: 2)
        try output.pump()
        #expect(try output.end.drain() == [Array(Self.data(1)), Array(Self.data(2))])
        #expect(try send(Self.data(3)) != nil)
        #expect(try output.end.drain() == [Array(Self.data(3))])
    }

    // MARK: - DTLS

    /// One side of a DTLS connection. Its timers never fire, so each message must be sent the first time.
    private final class Side {
        let end: End
        let engine: DTLSEngine
        let layer: DatagramLayer

        init(_ end: End, _ settings: TLSSettings<some TLSRole.Side>, size: Int) throws {
            self.end = end
            let values = settings.values
            engine = try DTLSEngine(context: TLSContext.context(for: values, over: .datagrams), settings: values, size: size)
            layer = try DatagramLayer(engine, over: end.channel, with: .discard, isSizeGiven: true, DatagramCounts())
        }

        /// Sends the engine's datagrams to the other side, a few at a time. Returns how often the kernel was
        /// full.
        func deliver(to other: Side, room: Int) throws -> Int {
            var fullCount = 0
            while engine.hasOutput {
                try end.fill(leaving: room)
                end.channel.note(.writable)
                if !layer.flush() {
                    fullCount += 1
                    #expect(!end.channel.mayHaveRoom)
                }
                for datagram in try end.drain() { datagram.withUnsafeBytes { other.engine.receive($0) } }
                if room == 0 { layer.flush() }
                for datagram in try end.drain() { datagram.withUnsafeBytes { other.engine.receive($0) } }
            }
            return fullCount
        }
    }

    private func sides(size: Int) throws -> (client: Side, server: Side) {
        let settings = try TestCertificates.mutual()
        return (try Side(End(), settings.client, size: size), try Side(End(), settings.server, size: size))
    }

    /// Each flight has several datagrams, of which the kernel accepts some.
    @Test(arguments: [0, 1, 2, 3], [256, 1400]) func flightsAreSentInParts(room: Int, size: Int) throws {
        let (client, server) = try sides(size: max(size, DatagramLayer.leastDatagramSize))
        var fullCount = 0
        for _ in 0..<40 where !client.engine.isEstablished || !server.engine.isEstablished {
            for (side, other) in [(client, server), (server, client)] {
                _ = side.engine.handshake()
                fullCount += try side.deliver(to: other, room: room)
            }
        }
        #expect(client.engine.isEstablished && server.engine.isEstablished)
        // A flight may fit into one large datagram.
        if room == 0 || size == 256 { #expect(fullCount > 0) }
    }

    /// Messages for which the kernel has no room are encrypted again. Each arrives once, in order.
    @Test func messagesAreEncryptedAgain() throws {
        let (client, server) = try sides(size: 1400)
        for _ in 0..<40 where !client.engine.isEstablished || !server.engine.isEstablished {
            for (side, other) in [(client, server), (server, client)] {
                _ = side.engine.handshake()
                _ = try side.deliver(to: other, room: 8)
            }
        }
        try #require(client.engine.isEstablished && server.engine.isEstablished)
        let output = try Output()
        let layer = try DatagramLayer(
            client.engine, over: output.end.channel, with: .discard, isSizeGiven: true, DatagramCounts())
        output.output.secure(layer)
        for number in 0..<200 { try output.enqueue(Self.data(number), tag: number) }
        var arrived: [Data] = []
        for round in 0..<400 where !output.output.isEmpty {
            try output.end.fill(leaving: round % 4)
            let before = output.sent.count
            try output.pump()
            #expect(output.sent.count - before == min(round % 4, 200 - before))
            #expect(!client.engine.hasOutput)
            for datagram in try output.end.drain() { datagram.withUnsafeBytes { server.engine.receive($0) } }
            while let message = server.layer.next() { arrived.append(message) }
        }
        #expect(output.sent == Array(0..<200))
        #expect(arrived == (0..<200).map { Self.data($0) })
    }
}
