import AsyncSocketsTesting
import Foundation
import Glibc
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Many peers on one UDP port.
@Suite(.timeLimit(.patient)) struct DatagramListenerTests {
    enum Layer: CaseIterable, Sendable { case plain, dtls }

    static func listener(
        _ layer: Layer, maximumPeers: Int = 10_000, idleTimeout: Duration? = .patient,
        configure: (AsyncUDPSocket) throws -> Void = { _ in }
    ) throws -> DatagramListener {
        try DatagramListener(
            address: .loopback(), dtls: layer == .dtls ? TestCertificates.server() : nil, maximumPeers: maximumPeers,
            idleTimeout: idleTimeout, configure: configure)
    }

    static func client(_ layer: Layer, of listener: DatagramListener, from host: String? = nil) async throws -> AsyncUDPSocket {
        let socket = try host.map { try AsyncUDPSocket.bound($0) } ?? AsyncUDPSocket()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        if layer == .dtls { try await socket.startDTLS(settings: TestCertificates.client()) }
        return socket
    }

    @Test(arguments: Layer.allCases) func eachPeerHasASocketOfItsOwn(_ layer: Layer) async throws {
        let listener = try Self.listener(layer)
        let serving = listener.echoing()
        try await withThrowingTaskGroup { group in
            for number in 0..<20 {
                group.addTask {
                    let client = try await Self.client(layer, of: listener)
                    for round in 0..<20 {
                        let text = "client \(number), round \(round)"
                        #expect(try await client.ask(text) == text)
                    }
                    if layer == .dtls { #expect(client.tlsSession?.protocolVersion == .dtls12) }
                    client.disconnect()
                }
            }
            try await group.waitForAll()
        }
        if layer == .dtls { try await eventually("they have said goodbye") { listener.snapshot.openCount == 0 } }
        await listener.close(timeout: .zero)
        try await serving.value
        #expect(!listener.snapshot.isListening && listener.snapshot.refused.total == 0)
    }

    @Test(arguments: Layer.allCases) func aPeerMayHaveADelegate(_ layer: Layer) async throws {
        let listener = try Self.listener(layer)
        let recorder = DatagramRecorder { socket, told in
            if case .received(let datagram) = told { socket.send(datagram.data, withTimeout: -1, tag: 0) }
        }
        let sockets = Locked<[AsyncUDPSocket]>([])
        let serving = Task {
            for try await socket in listener.peers {
                socket.setInlineDelegate(recorder)
                try socket.beginReceiving()
                sockets.withLock { $0.append(socket) }
            }
        }
        var clients: [AsyncUDPSocket] = []
        for number in 0..<3 {
            let client = try await Self.client(layer, of: listener)
            clients.append(client)
            for round in 0..<10 { #expect(try await client.ask("\(number) \(round)") == "\(number) \(round)") }
        }
        await listener.close()
        try await serving.value
        #expect(sockets.withLock { $0.count } == 3)
        // They belong to the program and remain open without the listener.
        #expect(sockets.withLock { $0.allSatisfy(\.isOpen) })
        #expect(!clients.contains { !$0.isOpen })
        for socket in sockets.withLock({ $0 }) { socket.disconnect() }
        try await eventually("all have gone") { listener.snapshot.openCount == 0 }
    }

    @Test func aPeerHasTheAddressThatItHasSentTo() async throws {
        let listener = try DatagramListener(port: 0)
        let serving = Task {
            try await listener.run { socket in
                let datagram = try await socket.receive()
                try await socket.send(Data("\(socket.localHost ?? "")".utf8), inReplyTo: datagram)
            }
        }
        let client = try AsyncUDPSocket.bound("127.0.0.1")
        for host in ["127.0.0.5", "127.0.0.6"] {
            try await client.send(Data([1]), to: host, port: listener.localPort)
            let reply = try await client.receive()
            #expect(reply.sender.host == host && reply.data == Data(host.utf8))
        }
        await listener.close()
        try await serving.value
    }

    @Test(arguments: Layer.allCases) func peersOverTheLimitAreDroppedUntilThereIsRoom(_ layer: Layer) async throws {
        let listener = try Self.listener(layer, maximumPeers: 2)
        let serving = listener.echoing()
        let first = try await Self.client(layer, of: listener)
        let second = try await Self.client(layer, of: listener)
        // Without DTLS, only a second exchange proves that a peer receives replies.
        for client in [first, second, first, second] { #expect(try await client.ask("hello") == "hello") }
        let third = AsyncUDPSocket()
        third.firstRetransmission = .milliseconds(50)
        try await third.connect(to: "127.0.0.1", port: listener.localPort)
        async let secured = Result.of { if layer == .dtls { try await third.startDTLS(settings: TestCertificates.client()) } }
        if layer == .plain { try await third.send(Data("too early".utf8)) }
        try await eventually("it is refused") { listener.snapshot.refused.byConnections > 0 }
        #expect(listener.snapshot.openCount == 2)
        listener.maximumPeers = 3
        try (await secured).get()
        #expect(try await third.ask("now") == "now")
        await listener.close(timeout: .zero)
        try await serving.value
    }

    @Test(arguments: Layer.allCases, Style.allCases) func aSilentPeerIsClosed(_ layer: Layer, _ style: Style) async throws {
        let listener = try Self.listener(layer, idleTimeout: .seconds(min(20, Patience.seconds / 3)))
        let errors = Locked<[(any Error)?]>([])
        let recorder = DatagramRecorder { socket, told in
            switch told {
            case .received(let datagram): socket.send(datagram.data, withTimeout: -1, tag: 0)
            case .closed(let error): errors.withLock { $0.append(error) }
            default: break
            }
        }
        let sockets = Locked<[AsyncUDPSocket]>([])
        let serving = Task {
            if style == .delegate {
                for try await socket in listener.peers {
                    socket.setInlineDelegate(recorder)
                    try socket.beginReceiving()
                    sockets.withLock { $0.append(socket) }
                }
            } else {
                try await listener.run { error, _ in
                    errors.withLock { $0.append(error) }
                } _: { socket in
                    for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
                }
            }
        }
        let client = try await Self.client(layer, of: listener)
        #expect(try await client.ask("hello") == "hello")
        try await eventually("it is closed") { listener.snapshot.openCount == 0 }
        try await eventually("its program knows") { errors.withLock { $0.count } == 1 }
        #expect(errors.withLock { ($0.first as? AsyncSocketError)?.code } == .idleTimeout)
        if layer == .dtls {
            let error = await #expect(throws: AsyncSocketError.self) { try await client.receive() }
            #expect(error?.code == .closedByPeer)
        }
        await listener.close()
        try await serving.value
    }

    @Test(arguments: Layer.allCases) func aShutdownLetsPeersFinish(_ layer: Layer) async throws {
        let listener = try Self.listener(layer)
        let isServed = Locked(false)
        let serving = Task {
            try await listener.run { socket in
                _ = try await socket.receive()
                isServed.withLock { $0 = true }
                while try await socket.receive().data != Data("end".utf8) {}
                try await socket.send(Data("goodbye".utf8))
            }
        }
        let client = try await Self.client(layer, of: listener)
        try await client.send(Data("hello".utf8))
        // A peer that is waiting for its task is closed at shutdown.
        try await eventually("it is served") { isServed.withLock { $0 } }
        listener.beginClosing()
        let stranger = try AsyncUDPSocket.bound()
        try await stranger.send(Data("hello".utf8), to: "127.0.0.1", port: listener.localPort)
        try await eventually("strangers are dropped") {
            listener.snapshot.refused.byClosing + listener.snapshot.refused.invalid > 0
        }
        #expect(try await client.ask("end") == "goodbye")
        await listener.close()
        try await serving.value
        // The port is free.
        try await eventually("the port is free") {
            (try? AsyncUDPSocket().bind(toAddress: .loopback(port: listener.localPort))) != nil
        }
    }

    @Test(arguments: Layer.allCases) func aCancelledRunCutsItsPeers(_ layer: Layer) async throws {
        let listener = try Self.listener(layer)
        let serving = listener.echoing()
        let client = try await Self.client(layer, of: listener)
        #expect(try await client.ask("hello") == "hello")
        serving.cancel()
        await #expect(throws: CancellationError.self) { try await serving.value }
        if layer == .dtls { await #expect(throws: AsyncSocketError.self) { try await client.receive() } }
        #expect(listener.snapshot.openCount == 0)
    }

    @Test func anErrorOfOnePeerEndsThatPeerAlone() async throws {
        struct Failure: Error {}
        let listener = try Self.listener(.plain)
        let errors = Locked(0)
        let serving = Task {
            try await listener.run { error, _ in
                errors.withLock { $0 += error is Failure ? 1 : 0 }
            } _: { socket in
                for try await datagram in socket.datagrams {
                    if datagram.data == Data("fail".utf8) { throw Failure() }
                    try await socket.send(datagram.data)
                }
            }
        }
        let (good, bad) = (try await Self.client(.plain, of: listener), try await Self.client(.plain, of: listener))
        #expect(try await good.ask("1") == "1")
        try await bad.send(Data("fail".utf8))
        try await eventually("it has failed") { errors.withLock { $0 } == 1 }
        #expect(try await good.ask("2") == "2")
        // The same address becomes a new peer.
        #expect(try await bad.ask("3") == "3")
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// RFC 6347, section 4.2.8.
    @Test func aClientThatHasRestartedTakesThePlaceOfTheOneBefore() async throws {
        let listener = try Self.listener(.dtls)
        let serving = listener.echoing()
        let first = try AsyncUDPSocket.bound()
        let address = try first.address
        try await first.connect(to: "127.0.0.1", port: listener.localPort)
        try await first.startDTLS(settings: TestCertificates.client())
        #expect(try await first.ask("hello") == "hello")
        // It disappears silently, because its close_notify is sent elsewhere.
        let nowhere = try SocketEndpoint.loopback(port: 9).data
        first.perform { descriptors in
            nowhere.withUnsafeBytes { bytes in
                guard let address = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self) else { return }
                for descriptor in descriptors { _ = Glibc.connect(descriptor, address, socklen_t(bytes.count)) }
            }
        }
        first.disconnect()
        let second = AsyncUDPSocket()
        try await eventually("the port is free") { (try? second.bind(toAddress: address)) != nil }
        try await second.connect(to: "127.0.0.1", port: listener.localPort)
        try await second.startDTLS(settings: TestCertificates.client())
        #expect(try await second.ask("again") == "again")
        try await eventually("the one before has gone") { listener.snapshot.openCount == 1 }
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// Sources that do not reply leave nothing behind, and receive no more bytes than they have sent.
    @Test func aFloodOfForgedClientsLeavesNothingBehind() async throws {
        let listener = try Self.listener(.dtls)
        let serving = listener.echoing()
        let client = try await Self.client(.dtls, of: listener)
        #expect(try await client.ask("before") == "before")
        let descriptor = try DatagramDescriptor(opening: .ipv4)
        try descriptor.bind(to: try #require(SocketEndpoint(literal: "0.0.0.0", port: 0)))
        let sender = DatagramSender(for: descriptor)
        let hello = try DTLSHello().hello()
        let target = InternetAddress(try SocketEndpoint.loopback(port: listener.localPort))
        // DTLS_FLOOD overrides the count, for example with a million.
        let count = ProcessInfo.processInfo.environment["DTLS_FLOOD"].flatMap { Int($0) } ?? 10_000
        for number in 0..<count {
            let source = SocketEndpoint(
                literal: "127.\(1 + number / 62_500 % 250).\(number / 250 % 250).\(1 + number % 250)", port: 0)
            hello.withUnsafeBytes { bytes in
                let datagram = OutgoingDatagram(
                    bytes, to: target, from: DatagramSource(address: source.map { InternetAddress($0) }))
                _ = withUnsafePointer(to: datagram) { sender.send(UnsafeBufferPointer(start: $0, count: 1)) }
            }
        }
        // Its datagram may be lost in the flood.
        var answer: Datagram?
        while answer == nil {
            try await client.send(Data("after".utf8))
            answer = try? await client.receive(timeout: .milliseconds(200))
        }
        #expect(answer?.data == Data("after".utf8) && listener.snapshot.openCount == 1)
        let receiver = DatagramReceiver(maximumSize: 2048)
        var answers = 0
        while case .received = receiver.receive(from: descriptor) {
            while let answer = receiver.next() {
                answers += 1
                #expect(answer.bytes.count <= hello.count)
            }
        }
        #expect(answers > 0)
        await listener.close(timeout: .zero)
        try await serving.value
    }

    @Test(arguments: Layer.allCases) func aPeerThatDoesNotReadKeepsMemoryBounded(_ layer: Layer) async throws {
        let listener = try Self.listener(layer)
        let held = Locked<[AsyncUDPSocket]>([])
        let serving = Task {
            for try await socket in listener.peers { held.withLock { $0.append(socket) } }
        }
        let client = try await Self.client(layer, of: listener)
        let other = try await Self.client(layer, of: listener)
        try await client.send(Data(count: 1000))
        try await other.send(Data("hello".utf8))
        try await eventually("both are there") { held.withLock { $0.count } == 2 }
        let slow = try #require(held.withLock { $0.first { $0.connectedPort == client.localPort } })
        let quick = try #require(held.withLock { $0.first { $0 !== slow } })
        try await eventually("its datagrams are dropped") {
            for _ in 0..<10 { try await client.send(Data(count: 1000)) }
            return slow.dropped.overflowed > 0
        }
        // The other peers are served.
        #expect(try await quick.receive().data == Data("hello".utf8))
        #expect(try await slow.receive().data.count == 1000)
        for socket in [slow, quick] { socket.disconnect() }
        await listener.close()
        try await serving.value
    }

    @Test func junkFromStrangersIsDroppedAndCounted() async throws {
        let listener = try Self.listener(.dtls)
        let serving = listener.echoing()
        let stranger = try AsyncUDPSocket.bound()
        for size in [0, 1, 13, 100, 1400] {
            try await stranger.send(Data(repeating: 22, count: size), to: "127.0.0.1", port: listener.localPort)
        }
        try await eventually("they are dropped") { listener.snapshot.refused.invalid == 5 }
        #expect(listener.snapshot.openCount == 0)
        await listener.close()
        try await serving.value
    }

    @Test func settingsThatDTLSCannotHaveAreRefused() throws {
        let error = #expect(throws: AsyncSocketError.self) {
            try DatagramListener(address: .loopback(), dtls: TestCertificates.server().only(.tls13))
        }
        #expect(error?.tls?.code == .invalidSettings && error?.message.contains("minimumVersion") == true)
        var settings = try TestCertificates.mutual().server
        settings.trustEvaluation = .delegate
        let second = #expect(throws: AsyncSocketError.self) { try DatagramListener(address: .loopback(), dtls: settings) }
        #expect(second?.code == .badConfiguration)
    }

    @Test func aProgramDecidesAboutClients() async throws {
        let mutual = try TestCertificates.mutual()
        let names = Locked<[Int]>([])
        let listener = try DatagramListener(
            address: .loopback(), dtls: mutual.server,
            trust: { trust in
                names.withLock { $0.append(trust.chain.count) }
                return true
            })
        let serving = listener.echoing()
        let client = AsyncUDPSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        try await client.startDTLS(settings: mutual.client)
        #expect(try await client.ask("hello") == "hello")
        #expect(names.withLock { $0.count } == 1)
        await listener.close(timeout: .zero)
        try await serving.value
    }
}
