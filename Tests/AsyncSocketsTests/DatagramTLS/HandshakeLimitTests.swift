import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A `DatagramListener` at its limit of handshakes: no source can shut out other sources.
@Suite(.timeLimit(.patient)) struct HandshakeLimitTests {
    private static func listener(
        maximumPeers: Int = 10_000, configure: (AsyncUDPSocket) throws -> Void = { _ in }
    ) throws -> DatagramListener {
        try DatagramListener(
            address: .loopback(), dtls: TestCertificates.server(), maximumPeers: maximumPeers, idleTimeout: .patient,
            configure: configure)
    }

    /// A client that returns the cookie and then stops sending.
    private static func beginSilently(
        _ listener: DatagramListener, from host: String, isServed: Bool = true
    ) async throws -> AsyncUDPSocket {
        let (socket, client) = (try AsyncUDPSocket.bound(host), try DTLSHello())
        try await socket.send(Data(client.hello()), to: "127.0.0.1", port: listener.localPort)
        let request = try await socket.receive()
        try await socket.send(Data(client.hello(answering: request.data)), to: "127.0.0.1", port: listener.localPort)
        // The server continues the handshake.
        if isServed { _ = try await socket.receive() }
        return socket
    }

    private static func secureClient(of listener: DatagramListener, from host: String) async throws -> AsyncUDPSocket {
        let client = try AsyncUDPSocket.bound(host)
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        try await client.startDTLS(settings: TestCertificates.client())
        return client
    }

    /// One source fills the limit, and begins more handshakes.
    @Test func aSourceWithManyHandshakesDoesNotShutOutOthers() async throws {
        let listener = try Self.listener() { $0.firstRetransmission = .seconds(60) }
        listener.maximumHandshakes = 8
        let errors = Locked<[AsyncSocketError.Code]>([])
        let serving = Task {
            try await listener.run { error, _ in
                if let error = error as? AsyncSocketError { errors.withLock { $0.append(error.code) } }
            } _: { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        let other = try await Self.beginSilently(listener, from: "127.0.0.3")
        var silent: [AsyncUDPSocket] = []
        for _ in 0..<20 { silent.append(try await Self.beginSilently(listener, from: "127.0.0.2")) }
        #expect(listener.snapshot.refused.byHandshakes == 13 && listener.hub.handshakeCount == 8)
        let client = try await Self.secureClient(of: listener, from: "127.0.0.4")
        #expect(try await client.ask("hello") == "hello")
        #expect(listener.snapshot.refused.byHandshakes == 14 && listener.hub.handshakeCount == 7)
        try await eventually("the replaced handshakes have failed") { errors.withLock { $0.count } == 14 }
        #expect(errors.withLock { $0.allSatisfy { $0 == .tooManyHandshakes } })
        #expect(listener.snapshot.openCount == 8)
        // The other source's handshake was not replaced. Otherwise its port would be closed, and cause an
        // error.
        #expect(other.isOpen)
        await listener.close(timeout: .zero)
        try await serving.value
        #expect(listener.hub.handshakeCount == 0 && listener.snapshot.openCount == 0)
        withExtendedLifetime(silent) {}
    }

    /// No task takes the clients, for example because the program has stopped reading `peers`. Meanwhile a
    /// source replaces its own handshakes repeatedly.
    @Test func clientsThatWaitForATaskAreLimited() async throws {
        let listener = try Self.listener(maximumPeers: 16) { $0.firstRetransmission = .seconds(60) }
        listener.maximumHandshakes = 4
        try listener.hub.start()
        var silent: [AsyncUDPSocket] = []
        for count in 1...40 {
            silent.append(try await Self.beginSilently(listener, from: "127.0.0.2", isServed: false))
            try await eventually("the listener has handled it") { listener.snapshot.refused.byHandshakes == max(0, count - 4) }
        }
        // Four are open, and the closed ones are released together.
        try await eventually("closed sockets are released") {
            listener.reception.waitingCount < 24 && listener.snapshot.openCount == 4
        }
        let other = try await Self.beginSilently(listener, from: "127.0.0.3", isServed: false)
        try await eventually("the other source has a place") {
            listener.snapshot.refused.byHandshakes == 37 && listener.snapshot.openCount == 4
        }
        #expect(other.isOpen)
        let serving = listener.echoing()
        let client = try await Self.secureClient(of: listener, from: "127.0.0.4")
        #expect(try await client.ask("hello") == "hello")
        await listener.close(timeout: .zero)
        try await serving.value
        withExtendedLifetime(silent) {}
    }

    /// The error says why the client was replaced, not that its socket is closed.
    @Test func theErrorOfAClientReplacedBeforeItsTaskStartsIsTheReason() async throws {
        let listener = try Self.listener() { $0.firstRetransmission = .seconds(60) }
        listener.maximumHandshakes = 1
        try listener.hub.start()
        let first = try await Self.beginSilently(listener, from: "127.0.0.2", isServed: false)
        try await eventually("the first is admitted") { listener.snapshot.openCount == 1 }
        let connection = try #require(listener.hub.state.withLock { $0.all.first?.connection })
        let second = try await Self.beginSilently(listener, from: "127.0.0.3", isServed: false)
        try await eventually("the first is replaced") { connection.record.withLock { $0.isClosed } }
        let errors = Locked<[AsyncSocketError.Code?]>([])
        let serving = Task {
            try await listener.run { error, _ in
                errors.withLock { $0.append((error as? AsyncSocketError)?.code) }
            } _: { _ in
            }
        }
        try await eventually("the first has failed") { errors.withLock { !$0.isEmpty } }
        #expect(errors.withLock { $0 } == [.tooManyHandshakes])
        await listener.close(timeout: .zero)
        try await serving.value
        withExtendedLifetime((first, second)) {}
    }

    /// Peers with complete handshakes are not replaced, so one source may have only a part of them.
    @Test func aSourceWithManyEstablishedPeersDoesNotShutOutOthers() async throws {
        let listener = try Self.listener(maximumPeers: 5) { $0.firstRetransmission = .seconds(60) }
        let serving = listener.echoing()
        var clients: [AsyncUDPSocket] = []
        for _ in 0..<4 { clients.append(try await Self.secureClient(of: listener, from: "127.0.0.2")) }
        #expect(listener.maximumPeersPerSource == 4 && listener.snapshot.openCount == 4)
        let refused = try await Self.beginSilently(listener, from: "127.0.0.2", isServed: false)
        try await eventually("it is refused") { listener.snapshot.refused.bySource == 1 }
        let other = try await Self.secureClient(of: listener, from: "127.0.0.3")
        for client in clients + [other] { #expect(try await client.ask("hello") == "hello") }
        #expect(listener.snapshot.openCount == 5 && listener.snapshot.refused.total == 1)
        await listener.close(timeout: .zero)
        try await serving.value
        withExtendedLifetime(refused) {}
    }

    /// Handshakes that fill the table of peers are replaced too. Established peers are not.
    @Test func aHandshakeGivesWayAtTheLimitOfPeers() async throws {
        let listener = try Self.listener(maximumPeers: 2) { $0.firstRetransmission = .seconds(60) }
        let serving = listener.echoing()
        let silent = [
            try await Self.beginSilently(listener, from: "127.0.0.2"), try await Self.beginSilently(listener, from: "127.0.0.2"),
        ]
        var clients: [AsyncUDPSocket] = []
        for host in ["127.0.0.3", "127.0.0.4"] { clients.append(try await Self.secureClient(of: listener, from: host)) }
        for client in clients { #expect(try await client.ask("hello") == "hello") }
        var refused = ServerSnapshot.Refusals()
        refused.byHandshakes = 2
        #expect(listener.snapshot == ServerSnapshot(openCount: 2, acceptedCount: 4, refused: refused))
        let late = AsyncUDPSocket()
        late.firstRetransmission = .seconds(60)  // a retransmission would be refused too
        try await late.connect(to: "127.0.0.1", port: listener.localPort)
        let securing = Task { try await late.startDTLS(settings: TestCertificates.client()) }
        try await eventually("it is refused") { listener.snapshot.refused.byConnections == 1 }
        for client in clients { #expect(try await client.ask("still") == "still") }
        securing.cancel()
        _ = await securing.result
        await listener.close(timeout: .zero)
        try await serving.value
        withExtendedLifetime(silent) {}
    }

    /// Another socket at the same address has used up the rate.
    @Test func anEstablishedPeerIsNotRateLimited() async throws {
        let listener = try Self.listener() {
            $0.rateLimit = SourceRateLimit(perSource: .init(perSecond: 0.001, burst: 40))
        }
        let serving = listener.echoing()
        let client = try ManualDTLS(TestCertificates.client())
        try await client.socket.connect(to: "127.0.0.1", port: listener.localPort)
        _ = try await client.shakeHands()
        try await client.send(client.encrypt("hello"))
        #expect(try await client.receive() == "hello")
        let other = try AsyncUDPSocket.bound()
        try await eventually("the rate is used up") {
            try await other.send(Data([1]), to: "127.0.0.1", port: listener.localPort)
            return listener.snapshot.refused.byRate > 0
        }
        for number in 0..<50 {
            try await client.send(client.encrypt("\(number)"))
            #expect(try await client.receive() == "\(number)")
        }
        // A ClientHello from the peer's port is treated as a stranger's.
        let limited = listener.snapshot.refused.byRate
        for count in 1...3 {
            try await client.send([DTLSHello().hello()])
            try await eventually("it is dropped") { listener.snapshot.refused.byRate >= limited + count }
        }
        await listener.close(timeout: .zero)
        try await serving.value
    }
}
