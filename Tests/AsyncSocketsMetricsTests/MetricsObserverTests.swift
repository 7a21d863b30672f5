#if Metrics
import AsyncSockets
import AsyncSocketsMetrics
import AsyncSocketsTesting
import FoundationEssentials
import MetricsTestKit
import SocketTestSupport
import SocketTestTraits
import Testing

/// Metrics recorded for real loopback connections and for synthetic events.
@Suite(.timeLimit(.patient)) struct MetricsObserverTests {
    private let metrics = TestMetrics()

    private func counter(_ name: String, _ labels: [(String, String)] = []) throws -> Int64 {
        try metrics.expectCounter("async_sockets_\(name)", labels).totalValue
    }

    /// A client sends a line, receives it back and disconnects. Returns when both sides have ended.
    @discardableResult
    private func exchange(
        _ line: String, client: TLSClientSettings? = nil, server: TLSServerSettings? = nil
    ) async throws -> [AsyncSocketError?] {
        let observer = MetricsObserver(factory: metrics)
        let party = Party(securing: server)
        let listener = AsyncSocket(inlineDelegate: party)
        listener.observer = observer
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let socket = AsyncSocket(inlineDelegate: party)
        socket.observer = observer
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        // In a synchronous closure, because otherwise this would call the async version.
        if let client { try { try socket.beginTLS(settings: client) }() }
        socket.write(Data(line.utf8), withTimeout: .patient, tag: 1)
        socket.readData(to: Data("\n".utf8), withTimeout: .patient, tag: 1)
        return [await party.end(), await party.end()]
    }

    private func settings() throws -> (client: TLSClientSettings, server: TLSServerSettings) {
        let authority = try CertificateAuthority()
        var client = TLSSettings.client(serverName: "localhost")
        client.trustRoots = try authority.roots
        return (client, .server(identity: try authority.issue(.server(names: ["localhost"])).identity()))
    }

    @Test func connectionsAndBytesAreCountedByRole() async throws {
        try await exchange("hello\n")
        for role in ["client", "server"] {
            let labels = [("role", role)]
            #expect(try counter("connections_opened_total", labels) == 1)
            #expect(try counter("connections_closed_total", labels + [("result", "orderly")]) == 1)
            #expect(try counter("connections_closed_total", labels + [("result", "error")]) == 0)
            #expect(try counter("received_bytes_total", labels) == 6)
            #expect(try counter("sent_bytes_total", labels) == 6)
            #expect(try metrics.expectMeter("async_sockets_connections_open", labels).values == [1, 0])
            #expect(try metrics.expectTimer("async_sockets_connection_duration", labels).values.count == 1)
        }
        #expect(try counter("connections_opened_total", [("role", "adopted")]) == 0)
    }

    @Test(arguments: [TLSProtocolVersion.tls12, .tls13])
    func handshakesAreCountedByVersionAndTimed(_ version: TLSProtocolVersion) async throws {
        var (client, server) = try settings()
        client.minimumVersion = version
        client.maximumVersion = version
        server.minimumVersion = .tls12
        try await exchange("hello\n", client: client, server: server)
        for role in ["client", "server"] {
            for other in [TLSProtocolVersion.tls12, .tls13] {
                let labels = [("role", role), ("version", "\(other)"), ("result", "full")]
                #expect(try counter("handshakes_total", labels) == (other == version ? 1 : 0))
            }
            let durations = try metrics.expectTimer("async_sockets_handshake_duration", [("role", role)]).values
            #expect(durations.count == 1)
            #expect(durations.allSatisfy { $0 > 0 })
            #expect(try counter("received_bytes_total", [("role", role)]) == 6)
        }
    }

    @Test func aHandshakeThatFailsIsCountedOnBothSides() async throws {
        let (client, server) = (try settings().client, try settings().server)
        let errors = try await exchange("hello\n", client: client, server: server)
        #expect(errors.allSatisfy { $0?.tls != nil })
        for role in ["client", "server"] {
            #expect(try counter("handshakes_total", [("role", role), ("version", "none"), ("result", "failed")]) == 1)
            #expect(try counter("connections_closed_total", [("role", role), ("result", "error")]) == 1)
            #expect(try counter("sent_bytes_total", [("role", role)]) == 0)
        }
    }

    @Test(arguments: [true, false]) func trustDecisionsAreCountedAndTimed(isAccepted: Bool) async throws {
        let (settings, server) = try settings()
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server)
        let serving = Task { try await listener.run(onError: { _, _ in }) { try await $0.write("hello") } }
        let socket = AsyncSocket()
        socket.observer = MetricsObserver(factory: metrics)
        do {
            try await socket.connect(to: "127.0.0.1", port: listener.localPort, tls: settings, trust: { _ in isAccepted })
            #expect(isAccepted)
        } catch let error as AsyncSocketError {
            #expect(!isAccepted && error.tls?.code == .trustRejected)
        }
        for (result, isCounted) in [("accepted", isAccepted), ("rejected", !isAccepted), ("timed_out", false)] {
            #expect(try counter("trust_decisions_total", [("role", "client"), ("result", result)]) == (isCounted ? 1 : 0))
        }
        let durations = try metrics.expectTimer("async_sockets_trust_decision_duration", [("role", "client")]).values
        #expect(durations.count == 1 && durations.allSatisfy { $0 > 0 })
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// A program that never decides, and a handshake that fails for another reason while it decides.
    @Test func onlyDecisionsAreCounted() throws {
        let observer = MetricsObserver(factory: metrics)
        let connection = ObservedConnection(number: 1, role: .client)
        let times = HandshakeTimes(total: .seconds(2), trust: .seconds(1))
        for code in [TLSError.Code.trustTimeout, .peerAlert, .trustRejected] {
            let error = AsyncSocketError(
                .startTLSFailed, fault: .peer, operation: .startTLS, message: "it failed", tls: TLSError(code, "it failed"))
            observer.connection(connection, didFailToSecureAs: .client, error: error, times: times)
        }
        for result in ["rejected", "timed_out"] {
            #expect(try counter("trust_decisions_total", [("role", "client"), ("result", result)]) == 1)
        }
        #expect(try counter("trust_decisions_total", [("role", "client"), ("result", "accepted")]) == 0)
    }

    @Test func aListenerAtItsLimitCountsThePause() async throws {
        let (pauses, continuation) = AsyncStream<Void>.makeStream()
        let party = Party()
        let listener = AsyncSocket(inlineDelegate: party)
        listener.observer = PauseForwarder(observer: MetricsObserver(factory: metrics), continuation: continuation)
        listener.maximumConnections = 1
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = AsyncSocket(inlineDelegate: party)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        for await _ in pauses { break }
        #expect(try counter("accept_pauses_total", [("reason", "limit")]) == 1)
        #expect(try counter("accept_pauses_total", [("reason", "shortage")]) == 0)
        client.disconnect()  // not earlier: if the connection closes early, there may be no pause to count
    }

    // MARK: - Synthetic events

    @Test func whatHappensSeldomIsCountedToo() throws {
        let observer = MetricsObserver(factory: metrics)
        let error = AsyncSocketError(.connectFailed, fault: .system, operation: .connect, message: "no one listens")
        let peer = try #require(SocketEndpoint(literal: "127.0.0.1", port: 1))
        let connection = ObservedConnection(number: 1, role: .server, peer: peer)
        observer.connectDidFail(error)
        observer.connectDidFail(nil)
        observer.acceptingDidPause(AcceptPause(reason: .shortage(error), retryDelay: .milliseconds(50)))
        observer.didLoseAcceptedConnection(from: peer, .noDelegate)
        observer.connection(
            connection, didSecureAs: .server, session: TLSSession(isResumed: true), times: HandshakeTimes(total: .seconds(1)))
        observer.connection(connection, didFailToSecureAs: .server, error: nil, times: HandshakeTimes(total: .seconds(1)))
        #expect(try counter("connect_failures_total") == 1)
        #expect(try counter("accept_pauses_total", [("reason", "shortage")]) == 1)
        #expect(try counter("accepted_connections_lost_total") == 1)
        let resumed = [("role", "server"), ("version", "TLSv1.3"), ("result", "resumed")]
        #expect(try counter("handshakes_total", resumed) == 1)
        #expect(try counter("handshakes_total", [("role", "server"), ("version", "none"), ("result", "cancelled")]) == 1)
    }

    @Test func theProgramChoosesThePrefix() throws {
        let observer = MetricsObserver(prefix: "mail", factory: metrics)
        observer.connectionDidBegin(ObservedConnection(number: 1, role: .adopted))
        #expect(try metrics.expectCounter("mail_connections_opened_total", [("role", "adopted")]).totalValue == 1)
    }
}

/// Forwards notifications about pauses.
private struct PauseForwarder: SocketObserver {
    let observer: MetricsObserver
    let continuation: AsyncStream<Void>.Continuation

    func acceptingDidPause(_ pause: AcceptPause) {
        observer.acceptingDidPause(pause)
        continuation.yield()
    }
}
#endif
