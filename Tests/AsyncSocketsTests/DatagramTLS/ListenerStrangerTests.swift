import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Peers of a `DatagramListener` that send too much, and peers whose handshake fails.
@Suite(.timeLimit(.patient)) struct ListenerStrangerTests {
    private static let threePerSource = SourceRateLimit(perSource: .init(perSecond: 0.000_001, burst: 3))

    // MARK: - Rate limits

    /// Its sockets share the limit, so other ports at the same address do not get a new burst.
    @Test func aListenerLimitsTheRateOfEachSource() async throws {
        let listener = try DatagramListener(
            address: .loopback(), idleTimeout: .patient, configure: { $0.rateLimit = Self.threePerSource })
        let received = Locked<[String: Int]>([:])
        let serving = Task {
            try await listener.run { socket in
                for try await datagram in socket.datagrams {
                    received.withLock { $0[datagram.sender.host ?? "", default: 0] += 1 }
                }
            }
        }
        let clients = [try AsyncUDPSocket.bound("127.0.0.1"), try AsyncUDPSocket.bound("127.0.0.1")]
        for number in 0..<10 {
            try await clients[number % 2].send(Data([1]), to: "127.0.0.1", port: listener.localPort)
        }
        try await eventually("the others are dropped") { listener.snapshot.refused.byRate == 7 }
        let other = try AsyncUDPSocket.bound("127.0.0.2")
        try await other.send(Data([1]), to: "127.0.0.1", port: listener.localPort)
        try await eventually("another source has a burst of its own") {
            received.withLock { $0 == ["127.0.0.1": 3, "127.0.0.2": 1] }
        }
        #expect(listener.snapshot.refused.byRate == 7 && listener.snapshot.openCount == 3 && listener.snapshot.refused.total == 7)
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// Verifying a cookie costs a hash, so each ClientHello counts, with or without a cookie.
    @Test func aListenerLimitsTheRateOfClientHellos() async throws {
        let listener = try DatagramListener(
            address: .loopback(), dtls: TestCertificates.server(), idleTimeout: .patient,
            configure: {
                $0.rateLimit = Self.threePerSource
            })
        let serving = Task { try await listener.run { _ in } }
        let client = try AsyncUDPSocket.bound()
        for _ in 0..<5 { try await client.send(Data(DTLSHello().hello()), to: "127.0.0.1", port: listener.localPort) }
        for _ in 0..<3 { _ = try await client.receive() }
        try await eventually("two are dropped") { listener.snapshot.refused.byRate == 2 }
        // Replies are sent before a later datagram is counted.
        try await client.send(Data([1]), to: "127.0.0.1", port: listener.localPort)
        try await eventually("junk counts too") { listener.snapshot.refused.byRate == 3 }
        let error = await #expect(throws: AsyncSocketError.self) { try await client.receive(timeout: .zero) }
        #expect(error?.code == .readTimeout && listener.snapshot.refused.invalid == 0 && listener.snapshot.openCount == 0)
        await listener.close(timeout: .zero)
        try await serving.value
    }

    // MARK: - Failed handshakes

    enum Failure: CaseIterable, Sendable {
        /// The client does not trust the server.
        case refusedByClient
        case refusedByServer
        /// The server's trust closure throws.
        case trustThrows
        case timeout

        /// The error that the listener reports.
        var isExpected: @Sendable (any Error) -> Bool {
            switch self {
            case .refusedByClient: { ($0 as? AsyncSocketError)?.tls?.alert == .unknownCA }
            case .refusedByServer: { ($0 as? AsyncSocketError)?.tls?.code == .trustRejected }
            case .trustThrows: { $0 is Undecided }
            case .timeout: { ($0 as? AsyncSocketError)?.code == .handshakeTimeout }
            }
        }
    }

    private struct Undecided: Error {}

    /// The program retains the socket passed with the error, and does not need to close it.
    @Test(arguments: Failure.allCases) func aPeerWhoseHandshakeHasFailedIsClosed(_ failure: Failure) async throws {
        let mutual = try TestCertificates.mutual()
        var (clientSettings, serverSettings) = (mutual.client, mutual.server)
        serverSettings.trustEvaluation = .delegate
        if failure == .refusedByClient { clientSettings.trustRoots = try TestCertificates.stranger.roots }
        if failure == .timeout { serverSettings.handshakeTimeout = .milliseconds(200) }
        let listener = try DatagramListener(
            address: .loopback(), dtls: serverSettings, idleTimeout: .patient,
            trust: { _ in
                if failure == .trustThrows { throw Undecided() }
                return failure != .refusedByServer
            })
        let reports = Locked<[(error: any Error, socket: AsyncUDPSocket, wasOpen: Bool)]>([])
        let served = Locked(0)
        let serving = Task {
            try await listener.run { error, socket in
                reports.withLock { $0.append((error, socket, socket.isOpen)) }
            } _: { _ in
                served.withLock { $0 += 1 }
            }
        }
        if failure == .timeout {
            try await Self.beginSilently(listener)
        } else {
            let client = AsyncUDPSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            await #expect(throws: AsyncSocketError.self) { try await client.startDTLS(settings: clientSettings) }
        }
        try await eventually("it is reported") { reports.withLock { $0.count } == 1 }
        try await eventually("its place is free") { listener.snapshot.openCount == 0 && listener.hub.handshakeCount == 0 }
        let report = try #require(reports.withLock { $0.first })
        #expect(failure.isExpected(report.error), "\(report.error)")
        #expect(!report.wasOpen && !report.socket.isOpen)
        #expect(served.withLock { $0 } == 0)
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// A client that returns its cookie and then stops sending.
    private static func beginSilently(_ listener: DatagramListener) async throws {
        let (socket, client) = (try AsyncUDPSocket.bound(), try DTLSHello())
        try await socket.send(Data(client.hello()), to: "127.0.0.1", port: listener.localPort)
        let request = try await socket.receive()
        try await socket.send(Data(client.hello(answering: request.data)), to: "127.0.0.1", port: listener.localPort)
        _ = try await socket.receive()
    }
}
