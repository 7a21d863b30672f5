import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The memory of sockets and listeners after connections, peers, exchanges and groups have ended.
@Suite(.timeLimit(.patient)) struct SocketSizeTests {
    /// Sockets of a test that are still referenced, with their connections.
    private final class Traces: Sendable {
        private struct Trace {
            weak var socket: AnyObject?
            weak var connection: AnyObject?
        }

        private let traces = Locked<[Trace]>([])

        func add(_ socket: any AnyObject & Sendable, _ connection: (any AnyObject & Sendable)?) {
            traces.withLock { $0.append(Trace(socket: socket, connection: connection)) }
        }

        var count: Int { traces.withLock { $0.count } }

        func areGone() async throws {
            try await eventually("all sockets are released") {
                traces.withLock { $0.allSatisfy { $0.socket == nil && $0.connection == nil } }
            }
        }
    }

    // MARK: - Connections

    /// An incomplete line must not keep a whole block of the pool.
    @Test func anUnfinishedLineOccupiesLittleMemory() async throws {
        let pair = try await SocketPair()
        async let line = pair.server.readLine()
        try await pair.client.write("the beginning")
        try await pair.server.turn("the bytes have left their block") { connection in
            let buffer = Mirror(reflecting: connection.data.reads.preBuffer)
            return buffer.descendant("capacity") as? Int == 13
        }
        try await pair.client.write(" of a line\r\n")
        #expect(try await line == "the beginning of a line")
    }

    enum End: CaseIterable {
        case closed, reset, refused, cancelled, timedOut, cancelledRead, lateRead
    }

    /// However a connection closes, its loop has the same size as before.
    @Test(arguments: End.allCases) func connectionsThatEndedLeaveNothingOnTheirLoop(_ end: End) async throws {
        let (loop, traces) = (try SocketEventLoop(), Traces())
        let (listener, refusing, silent) = (try RawSocket.listening(), try RawSocket.refusing("127.0.0.1"), try FullBacklog())
        let target = try end == .refused ? refusing.localAddress : end == .timedOut ? silent.address : listener.localAddress
        for _ in 0..<200 {
            let socket = AsyncSocket()
            socket.stay(on: loop)
            let connecting = Task.immediate {
                try await socket.connect(to: target, timeout: end == .timedOut ? .milliseconds(1) : .patient)
            }
            if end == .cancelled { connecting.cancel() }
            _ = await connecting.result
            traces.add(socket, socket.connection)
            guard socket.isConnected else { continue }
            let peer = try listener.accepted()
            switch end {
            case .closed:
                peer.finish()
                try await socket.close()
            case .reset:
                peer.resetWhenClosed()
                _ = consume peer
                await #expect(throws: AsyncSocketError.self) { try await socket.read() }
            case .cancelledRead:
                let read = Task.immediate { try await socket.read() }
                read.cancel()
                _ = await read.result
                socket.disconnect()
            case .lateRead:
                await #expect(throws: AsyncSocketError.self) { try await socket.read(timeout: .milliseconds(1)) }
                socket.disconnect()
            case .refused, .cancelled, .timedOut: socket.disconnect()
            }
        }
        try await eventually("the loop is empty") { loop.registrationCount == 0 }
        #expect(loop.deadlineCount <= 64 && traces.count == 200)
        try await traces.areGone()
    }

    // MARK: - Listeners

    private func contents(of listener: SocketListener) -> [Contents] {
        [
            Contents(of: listener.reception), Contents(of: listener.reception.quota), Contents(of: listener.preparation.slots),
            Contents(of: listener.listener),
        ]
    }

    /// Clients that are served, that fail their handshake, that send plaintext, and that leave at once.
    @Test func aListenerKeepsNothingOfItsClients() async throws {
        let traces = Traces()
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: TestCertificates.server(),
            configure: { $0.logger = LogRecorder.logger(of: "sizes") })
        let port = listener.localPort
        try await serving(
            listener, onError: { _, socket in traces.add(socket, socket.connection) },
            { socket in
                traces.add(socket, socket.connection)
                try await socket.echo()
            }
        ) { _ in
            try await eventually("it accepts") { listener.reception.isBegun }
            func visit() async throws {
                let client = AsyncSocket()
                try await client.connect(to: "127.0.0.1", port: port, tls: .ofTests())
                try await client.write("hello")
                #expect(try await client.read(exactly: 5) == Data("hello"))
                try await client.close()
                let distrusting = AsyncSocket()
                await #expect(throws: AsyncSocketError.self) {
                    try await distrusting.connect(to: "127.0.0.1", port: port, tls: .client(serverName: "localhost"))
                }
                let plain = try RawSocket.connected(to: .loopback(port: port), waitLimit: .patient)
                try plain.send(Array("GET / HTTP/1.0\r\n\r\n".utf8))
                _ = try? plain.receiveAll()
                _ = try RawSocket.connected(to: .loopback(port: port))
            }
            func settled() async throws {
                try await eventually("no connection is left") {
                    listener.reception.servedCount == 0 && listener.reception.quota.openCount == 0
                }
            }
            try await visit()
            try await settled()
            let before = contents(of: listener)
            for _ in 0..<60 { try await visit() }
            try await eventually("all are reported") { traces.count >= 61 * 3 }
            try await settled()
            // A connection that its client has already closed may still be in the backlog.
            try await eventually("nothing is left") {
                contents(of: listener) == before && listener.preparation.slots.takenCount == 0
                    && listener.preparation.slots.waitingCount == 0
            }
        }
        try await traces.areGone()
    }

    // MARK: - Peers

    enum Style: CaseIterable {
        case plaintext, dtls
    }

    /// Peers that are served and close, that vanish, and that never finish their handshake.
    @Test(arguments: Style.allCases) func aDatagramListenerKeepsNothingOfItsPeers(_ style: Style) async throws {
        let traces = Traces()
        let listener = try DatagramListener(
            address: .loopback(), dtls: style == .dtls ? TestCertificates.server() : nil, idleTimeout: nil)
        let port = listener.localPort
        let running = Task {
            try await listener.run(onError: { _, _ in }) { socket in
                traces.add(socket, socket.connection)
                let datagram = try await socket.receive()
                try await socket.send(datagram.data)
                if datagram.data.first == 1 { throw CancellationError() }
            }
        }
        func visit(_ number: Int) async throws {
            let client = AsyncUDPSocket()
            traces.add(client, nil)
            try await client.connect(to: "127.0.0.1", port: port)
            if style == .dtls {
                // One in ten stays silent, and is replaced.
                if number % 10 == 9 {
                    let hello = try DTLSHello()
                    try await client.send(Data(hello.hello()))
                    try await client.send(Data(hello.hello(answering: client.receive().data)))
                    _ = try await client.receive()
                    return client.disconnect()
                }
                try await client.startDTLS(settings: TestCertificates.client())
            }
            try await client.send(Data([UInt8(number % 2)]))
            #expect(try await client.receive().data == Data([UInt8(number % 2)]))
            client.disconnect()
        }
        func settled(_ silentCount: Int) async throws {
            try await eventually("the peers are gone: \(listener.snapshot.openCount)") {
                listener.snapshot.openCount == silentCount && listener.reception.servedCount == silentCount
            }
        }
        listener.maximumHandshakes = 3
        for number in 0..<20 { try await visit(number) }
        let (silentCount, count) = style == .dtls ? (2, 100) : (0, 1_000)
        try await settled(silentCount)
        let registrations = listener.reception.loop
        let before = (
            Contents(of: listener.hub).without("ports"), Contents(of: listener.reception), registrations.registrationCount
        )
        for number in 0..<count { try await visit(number) }
        // Silent clients are replaced at the limit of three.
        let lastSilentCount = style == .dtls ? 3 : 0
        try await settled(lastSilentCount)
        if style == .plaintext {
            #expect(Contents(of: listener.hub).without("ports") == before.0 && Contents(of: listener.reception) == before.1)
        } else {
            #expect(listener.hub.handshakeCount == 3 && Contents(of: listener.hub)["state.peers"] == 3)
            #expect(Contents(of: listener.hub)["state.handshakes.sources.slots"] == 1)
        }
        await listener.close(timeout: .zero)
        try await running.value
        let end = Contents(of: listener.hub)
        #expect(end["state.peers"] == 0 && end["state.handshakes.places"] == 0 && end["state.handshakes.sources.slots"] == 0)
        #expect(end["announced"] == 0 && Contents(of: listener.reception)["state.arrived"] == 0)
        try await eventually("its descriptors are released") { Contents(of: listener.hub)["descriptors.own"] == 0 }
        try await traces.areGone()
    }

    // MARK: - Exchanges, groups and options

    /// What a UDP socket keeps inside its turn.
    private func contents(of socket: AsyncUDPSocket) async -> Contents {
        await withCheckedContinuation { continuation in
            socket.perform { _ in
                continuation.resume(
                    returning: Contents(
                        of: socket.connection as Any,
                        entering: [
                            DatagramConnection.self, DatagramService.self, DatagramInput.self, DatagramOutput.self,
                            DatagramSendQueue.self,
                        ]
                    ).without("service.armedDeadline", "service.channels"))
            }
        }
    }

    /// Replies, late replies, timeouts and cancellations, and receives that end without a datagram.
    @Test func aSocketKeepsNothingOfItsExchanges() async throws {
        let (peer, socket) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let (address, tally) = (try peer.address, Tally())
        let echoing = Task {
            for try await datagram in peer.datagrams {
                try await peer.send(datagram.data, inReplyTo: datagram)
                // Late, and for no one.
                if datagram.data.first == 2 { try await peer.send(Data([9]), inReplyTo: datagram) }
            }
        }
        func visit(_ number: Int) async throws {
            let kind = UInt8(number % 4)
            let token = tally.token()
            let exchange = Task.immediate {
                try await socket.exchange(
                    Data([kind]), with: address, timeout: kind == 1 ? .milliseconds(1) : .patient
                ) { datagram in withExtendedLifetime(token) { kind != 1 && kind != 3 && datagram.data.first == kind } }
            }
            if kind == 3 { exchange.cancel() }
            let result = await exchange.result
            #expect(kind == 1 || kind == 3 || (try? result.get().data) == Data([kind]))
            let receive = Task.immediate { try await socket.receive(timeout: kind == 0 ? .milliseconds(1) : .patient) }
            if kind != 0 { receive.cancel() }
            _ = await receive.result
        }
        func drain() async throws {
            while true {
                do { _ = try await socket.receive(timeout: .milliseconds(50)) } catch is AsyncSocketError { return }
            }
        }
        for number in 0..<20 { try await visit(number) }
        try await drain()
        let before = await contents(of: socket)
        for number in 0..<1_000 { try await visit(number) }
        try await drain()
        let after = await contents(of: socket)
        #expect(after == before, "\(after), not \(before)")
        try await eventually("the closures are released") { tally.alive == 0 }
        echoing.cancel()
        _ = await echoing.result
    }

    /// Sequences that are released, and those whose task is cancelled.
    @Test func aSocketKeepsNothingOfReadersOfDeliveryFailures() async throws {
        let socket = try AsyncUDPSocket.bound()
        let before = await contents(of: socket)
        for _ in 0..<500 {
            _ = try socket.deliveryFailures()
            let waiting = Task.immediate { for await _ in try socket.deliveryFailures() {} }
            waiting.cancel()
            try await waiting.value
        }
        let after = await contents(of: socket)
        #expect(after == before, "\(after), not \(before)")
    }

    @Test func aSocketKeepsNothingOfGroupsThatItLeft() async throws {
        let socket = AsyncUDPSocket()
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        let record = try #require(socket.connection).record
        let before = Contents(of: record)
        for number in 0..<500 {
            let groups = ["239.255.8.\(number % 250 + 1)", "239.255.9.\(number % 250 + 1)"]
            for group in groups { try socket.joinMulticastGroup(group, onInterface: "lo") }
            #expect(throws: AsyncSocketError.self) { try socket.joinMulticastGroup(groups[0], onInterface: "lo") }
            #expect(throws: AsyncSocketError.self) { try socket.joinMulticastGroup("192.0.2.1", onInterface: "lo") }
            #expect(throws: AsyncSocketError.self) { try socket.leaveMulticastGroup("239.1.1.1", onInterface: "lo") }
            #expect(Contents(of: record)["groupReceivers.receivers"] == 2)
            for group in groups { try socket.leaveMulticastGroup(group, onInterface: "lo") }
            for isOn in [true, false] { try socket.setOption(.broadcast, to: isOn) }
        }
        // The value of the option is stored once.
        #expect(Contents(of: record).without("options") == before.without("options"))
        #expect(Contents(of: record)["options.entries"] == 1)
    }

    /// Returns the sizes of a listener's tables, read on its loop.
    private func contents(of listener: DatagramListener) async -> Contents {
        await withCheckedContinuation { continuation in
            listener.hub.loop.run { continuation.resume(returning: Contents(of: listener.hub, entering: [ListenerPeer.self])) }
        }
    }

    @Test func aListenerKeepsNothingOfGroupsThatItLeft() async throws {
        let listener = try DatagramListener(address: .loopback())
        let running = listener.echoing()
        try await eventually("it receives") { await contents(of: listener)["state.registration"] == 1 }
        let before = await contents(of: listener)
        for number in 0..<250 {
            let groups = ["239.255.8.\(number + 1)", "239.255.9.\(number + 1)"]
            for group in groups { try listener.joinMulticastGroup(group, onInterface: "lo") }
            for group in groups { try listener.leaveMulticastGroup(group, onInterface: "lo") }
        }
        let after = await contents(of: listener)
        #expect(after == before, "\(after), not \(before)")
        await listener.close(timeout: .zero)
        try await running.value
    }

    /// A client reconnects repeatedly from one port. The listener remembers only its latest ClientHellos.
    @Test func aListenerKeepsFewClientHellos() async throws {
        let listener = try DatagramListener(
            address: .loopback(), dtls: TestCertificates.server(), idleTimeout: nil,
            configure: { $0.firstRetransmission = .seconds(60) })
        let running = listener.echoing()
        let client = try AsyncUDPSocket.bound()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        /// Receives the next handshake message of this type (RFC 6347, section 4.2.2).
        func receive(_ type: UInt8) async throws -> Data {
            while true {
                let data = try await client.receive(timeout: .patient).data
                if data.count > 13, data[13] == type { return data }
            }
        }
        for _ in 0..<40 {
            let hello = try DTLSHello()
            try await client.send(Data(hello.hello()))
            try await client.send(Data(hello.hello(answering: receive(3))))
            _ = try await receive(2)
        }
        #expect(listener.snapshot.openCount == 1)
        #expect(await contents(of: listener)["state.peers[][].earlierDigests"] == 16)
        await listener.close(timeout: .zero)
        try await running.value
    }

    /// The server closes each connection, and the client reports failed attempts.
    @Test func aReconnectingClientKeepsOneConnection() async throws {
        let (listener, traces, failures) = (try SocketListener(port: 0, interface: "127.0.0.1"), Traces(), Locked(0))
        let port = listener.localPort
        try await serving(listener, { try await $0.write("x") }) { _ in
            var count = 0
            for try await socket in AsyncSocket.reconnecting(
                to: "127.0.0.1", port: port, backOff: BackOff(from: .milliseconds(1), to: .milliseconds(1)),
                onFailure: { _, _ in failures.withLock { $0 += 1 } })
            {
                traces.add(socket, socket.connection)
                _ = try? await socket.readToEnd()
                count += 1
                if count == 100 { break }
            }
        }
        #expect(traces.count == 100)
        try await traces.areGone()
    }
}
