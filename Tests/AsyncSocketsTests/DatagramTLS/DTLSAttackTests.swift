import AsyncSocketsTesting
import Dispatch
import Foundation
import Glibc
import Logging
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Attacks on `startDTLS` by peers and networks.
@Suite(.timeLimit(.patient)) struct DTLSAttackTests {
    /// Where the delegate is called.
    enum Place: CaseIterable, Sendable { case inline, queue, socketQueue, bothQueues }

    private static func socket(_ place: Place, _ recorder: DatagramRecorder) throws -> AsyncUDPSocket {
        let (first, second) = (DispatchQueue(label: "test.first"), DispatchQueue(label: "test.second"))
        let socket =
            switch place {
            case .inline: AsyncUDPSocket(inlineDelegate: recorder)
            case .queue: AsyncUDPSocket(delegate: recorder, delegateQueue: first)
            case .socketQueue: AsyncUDPSocket(inlineDelegate: recorder, socketQueue: first)
            case .bothQueues: AsyncUDPSocket(delegate: recorder, delegateQueue: first, socketQueue: second)
            }
        return try .bound("127.0.0.1", socket)
    }

    /// Plaintext injected after the request to start DTLS is not delivered, even if it arrived together with
    /// the request.
    @Test(arguments: Place.allCases) func plaintextBehindTheRequestIsNotDelivered(_ place: Place) async throws {
        let recorder = DatagramRecorder { socket, told in
            guard case .received(let datagram) = told, datagram.data == Data("STARTDTLS".utf8) else { return }
            #expect(throws: Never.self) { try socket.beginDTLS(settings: TestCertificates.server()) }
        }
        let server = try Self.socket(place, recorder)
        let client = try AsyncUDPSocket.bound()
        try await client.connect(to: server.address)
        try server.connect(toAddress: client.address)
        _ = try await recorder.connected()
        try await client.send(Data("STARTDTLS".utf8))
        for _ in 0..<5 { try await client.send(Data("injected".utf8)) }
        try server.beginReceiving()
        try await client.startDTLS(settings: TestCertificates.client())
        try await client.send(Data("secure".utf8))
        var received: [String] = []
        while received.last != "secure" { received.append(String(decoding: try await recorder.received().data, as: UTF8.self)) }
        #expect(received == ["STARTDTLS", "secure"])
    }

    /// The same for a datagram that is in a filter when the upgrade starts.
    @Test(arguments: Place.allCases) func plaintextThatAFilterAcceptsLateIsNotDelivered(_ place: Place) async throws {
        let recorder = DatagramRecorder()
        let server = try Self.socket(place, recorder)
        let client = try AsyncUDPSocket.bound()
        try await client.connect(to: server.address)
        try server.connect(toAddress: client.address)
        _ = try await recorder.connected()
        let (isAsked, mayAnswer) = (Locked(false), DispatchSemaphore(value: 0))
        server.setReceiveFilter(on: DispatchQueue(label: "test.filter")) { datagram in
            guard datagram.data == Data("injected".utf8) else { return .accept() }
            isAsked.withLock { $0 = true }
            mayAnswer.wait()
            return .accept()
        }
        try server.beginReceiving()
        try await client.send(Data("injected".utf8))
        try await eventually("the filter is asked") { isAsked.withLock { $0 } }
        try server.beginDTLS(settings: TestCertificates.server())
        mayAnswer.signal()
        try await client.startDTLS(settings: TestCertificates.client())
        try await client.send(Data("secure".utf8))
        var received: [String] = []
        while received.last != "secure" { received.append(String(decoding: try await recorder.received().data, as: UTF8.self)) }
        #expect(received == ["secure"])
    }

    /// Data that overtakes the end of the handshake is delivered when the handshake completes, without
    /// waiting for more data.
    @Test(arguments: Style.allCases) func dataThatOvertakesTheFinishedMessageIsDelivered(_ style: Style) async throws {
        let victim = try StyledDatagramSocket(style)
        let peer = try ManualDTLS(TestCertificates.server())
        try await victim.connect(to: peer.socket.address)
        try await peer.socket.connect(to: victim.socket.address)
        async let securing: Void = victim.startDTLS(TestCertificates.client())
        let finished = try await peer.shakeHands()
        try await peer.send(peer.encrypt("early"))
        try await peer.send(finished)
        try await securing
        #expect(try await victim.receive() == "early")
    }

    /// The same for a close_notify.
    @Test(arguments: Style.allCases) func anEndThatOvertakesTheFinishedMessageIsNoticed(_ style: Style) async throws {
        let victim = try StyledDatagramSocket(style)
        let peer = try ManualDTLS(TestCertificates.server())
        try await victim.connect(to: peer.socket.address)
        try await peer.socket.connect(to: victim.socket.address)
        async let securing = Result.of { try await victim.startDTLS(TestCertificates.client()) }
        let finished = try await peer.shakeHands()
        try await peer.send(peer.close())
        try await peer.send(finished)
        _ = await securing
        #expect(try await victim.end()?.code == .closedByPeer)
    }
}

@Suite(.timeLimit(.patient)) struct DTLSEndTests {
    /// RFC 5246, section 7.2.1. The last message is still unread when the close_notify arrives.
    @Test(arguments: Style.allCases) func closeNotifyIsAnsweredWithCloseNotify(_ style: Style) async throws {
        let socket = try StyledDatagramSocket(style)
        // OpenSSL ends the connection when a flight of the handshake follows its own close_notify.
        socket.socket.firstRetransmission = .seconds(60)
        let peer = try ManualDTLS(TestCertificates.server())
        try await socket.connect(to: peer.socket.address)
        try await peer.socket.connect(to: socket.socket.address)
        async let securing: Void = socket.startDTLS(TestCertificates.client())
        try await peer.send(peer.shakeHands())
        try await securing
        try await peer.send(peer.encrypt("last") + peer.close())
        #expect(try await peer.receivesClose())
        #expect(try await socket.receive() == "last")
        #expect(try await socket.end()?.code == .closedByPeer)
    }
}

@Suite(.timeLimit(.patient)) struct DatagramListenerAttackTests {
    /// It does not retransmit while a test is slow, because a new client could mistake that for its own
    /// reply.
    private static func listener(isSecure: Bool) throws -> DatagramListener {
        try DatagramListener(
            address: .loopback(), dtls: isSecure ? TestCertificates.server() : nil,
            configure: {
                $0.firstRetransmission = .seconds(60)
                $0.logger = LogRecorder.logger(of: "peers, \(isSecure)")
            })
    }

    private static func echo(_ listener: DatagramListener) -> Task<Void, any Error> {
        Task {
            try await listener.run { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
    }

    /// For a peer's socket, `dissolveAssociation()` is the same as `disconnect()`. Other peers are not
    /// affected.
    @Test(arguments: [false, true]) func dissolvingTheAssociationClosesThePeer(_ isSecure: Bool) async throws {
        let listener = try Self.listener(isSecure: isSecure)
        let serving = Task {
            try await listener.run { socket in
                for try await datagram in socket.datagrams {
                    if datagram.data == Data("dissolve".utf8) { socket.dissolveAssociation() }
                    try await socket.send(datagram.data)
                }
            }
        }
        var clients: [AsyncUDPSocket] = []
        for _ in 0..<2 {
            let client = AsyncUDPSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            if isSecure { try await client.startDTLS(settings: TestCertificates.client()) }
            try await client.send(Data("hello".utf8))
            #expect(try await client.receive().data == Data("hello".utf8))
            clients.append(client)
        }
        #expect(listener.snapshot.openCount == 2)
        try await clients[0].send(Data("dissolve".utf8))
        try await eventually("it has gone") { listener.snapshot.openCount == 1 }
        try await clients[1].send(Data("still".utf8))
        #expect(try await clients[1].receive().data == Data("still".utf8))
        await listener.close(timeout: .zero)
        try await serving.value
        let errors = LogRecorder.warnings(of: "peers, \(isSecure)").map { "\($0.metadata["error"] ?? "")" }
        #expect(errors.count { $0.contains("this side closed the connection") } == 1)
    }

    /// A client restarts in the middle of a handshake.
    @Test func aClientThatRestartsInTheHandshakeIsNotEndedByTheOneBefore() async throws {
        let listener = try Self.listener(isSecure: true)
        let serving = Self.echo(listener)
        let first = try ManualDTLS(TestCertificates.client())
        try await first.socket.connect(to: "127.0.0.1", port: listener.localPort)
        var flights = 0
        // ClientHello, ClientHello with cookie, and the flight that would complete the handshake.
        _ = try await first.shakeHands { output in
            if !output.isEmpty { flights += 1 }
            return flights == 3
        }
        #expect(listener.snapshot.openCount == 1)
        let second = try ManualDTLS(TestCertificates.client(), on: first.socket)
        _ = try await second.shakeHands()
        try await second.send(second.encrypt("again"))
        #expect(try await second.receive() == "again")
        #expect(listener.snapshot.openCount == 1)
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// The ClientHello of the previous connection is repeated, with a cookie that is still valid. Also if
    /// another process serves new connections.
    @Test(arguments: [false, true]) func aRepeatedClientHelloDoesNotTakeThePlaceOfALaterOne(
        _ isHandedOver: Bool
    ) async throws {
        let listener = try Self.listener(isSecure: true)
        let serving = Self.echo(listener)
        let first = try ManualDTLS(TestCertificates.client())
        try await first.socket.connect(to: "127.0.0.1", port: listener.localPort)
        var flights: [[[UInt8]]] = []
        _ = try await first.shakeHands { output in
            if !output.isEmpty { flights.append(output) }
            return false
        }
        try await first.send(first.encrypt("first"))
        #expect(try await first.receive() == "first")
        let second = try ManualDTLS(TestCertificates.client(), on: first.socket)
        _ = try await second.shakeHands()
        try await second.send(second.encrypt("second"))
        #expect(try await second.receive() == "second")
        if isHandedOver { await listener.leaveSockets() }
        try await second.send(flights[1])
        try await second.send(second.encrypt("still"))
        #expect(try await second.receive() == "still")
        await listener.close(timeout: .zero)
        try await serving.value
    }
}

/// One side of a DTLS connection whose datagrams are sent by the test.
final class ManualDTLS {
    let socket: AsyncUDPSocket
    private let engine: DTLSEngine

    /// - Parameter settings: Of either side.
    init(_ settings: TLSSettings<some TLSRole.Side>, on socket: AsyncUDPSocket? = nil) throws {
        self.socket = try socket ?? .bound()
        let values = settings.values
        engine = try DTLSEngine(context: TLSContext.context(for: values, over: .datagrams), settings: values, size: 1400)
        engine.setFirstTimeout(seconds: 60)
    }

    /// Performs the handshake with the socket's peer up to the last flight, which is returned instead of
    /// sent.
    ///
    /// - Parameter isLast: Returns whether a flight is the last one.
    func shakeHands(until isLast: ([[UInt8]]) -> Bool = { _ in false }) async throws -> [[UInt8]] {
        while true {
            let answer = engine.handshake()
            let output = engine.takeOutput()
            if case .failed(let error) = answer { throw error }
            if case .complete = answer { return output }
            if isLast(output) { return output }
            try await send(output)
            let datagram = Array(try await socket.receive().data)
            datagram.withUnsafeBytes { engine.receive($0) }
        }
    }

    /// Returns the next message from the peer.
    func receive() async throws -> String {
        let buffer = PreBuffer()
        while true {
            switch engine.read(into: buffer) {
            case .bytes: return String(decoding: buffer.readableBytes, as: UTF8.self)
            case .closed, .truncated, .failed: throw Unexpected(description: "it has ended")
            case .incomplete:
                let datagram = Array(try await socket.receive().data)
                datagram.withUnsafeBytes { engine.receive($0) }
            }
        }
    }

    /// Returns whether the peer ends with a close_notify before it sends anything else.
    func receivesClose() async throws -> Bool {
        let buffer = PreBuffer()
        while true {
            switch engine.read(into: buffer) {
            case .closed: return true
            case .bytes, .truncated, .failed: return false
            case .incomplete:
                let datagram = Array(try await socket.receive().data)
                datagram.withUnsafeBytes { engine.receive($0) }
            }
        }
    }

    func encrypt(_ text: String) -> [[UInt8]] {
        _ = Array(text.utf8).withUnsafeBytes { engine.write($0) }
        return engine.takeOutput()
    }

    /// Returns the close_notify.
    func close() -> [[UInt8]] {
        engine.shutdown()
        return engine.takeOutput()
    }

    func send(_ datagrams: [[UInt8]]) async throws {
        for datagram in datagrams { try await socket.send(Data(datagram)) }
    }
}
