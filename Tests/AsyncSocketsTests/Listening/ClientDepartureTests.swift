import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Clients that close their direction while the server decides about their certificate.
@Suite(.timeLimit(.patient)) struct ClientDepartureTests {
    /// Runs a listener with a trust closure that fires `isAsked` and returns the result of `decide`.
    private func withListener(
        _ server: TLSServerSettings, _ isAsked: TestSignal, decide: @escaping @Sendable () async throws -> Bool,
        _ body: @escaping @Sendable (AsyncSocket) async throws -> Void = { _ in },
        _ test: (SocketListener, Findings<AsyncSocketError.Code?>) async throws -> Void
    ) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server) { _ in
            isAsked.fire()
            return try await decide()
        }
        let failures = Findings<AsyncSocketError.Code?>()
        try await serving(listener, onError: { error, _ in failures.add((error as? AsyncSocketError)?.code) }, body) { _ in
            try await test(listener, failures)
        }
    }

    /// Returns a closure that decides only after it was cancelled, and a signal for that.
    private func undecided() throws -> (decide: @Sendable () async throws -> Bool, wasCancelled: TestSignal) {
        let wasCancelled = try TestSignal()
        return (
            {
                defer { wasCancelled.fire() }
                try await waitUntilCancelled()
                return true
            }, wasCancelled
        )
    }

    private func expectDeparture(
        from listener: SocketListener, _ wasCancelled: TestSignal, _ failures: Findings<AsyncSocketError.Code?>
    ) async throws {
        try await wasCancelled.wait(within: .patient)
        try await eventually("the place is free") { listener.preparation.slots.takenCount == 0 }
        try await eventually("the error is reported") { !failures.all.isEmpty }
        #expect(failures.all == [.tls])
    }

    /// The client sends FIN after its part of the handshake. A TLS 1.2 client cannot send anything before the
    /// decision.
    @Test(arguments: TLSProtocolVersion.tested) func aClientThatDisconnectsReleasesItsHandshakeSlot(_ version: TLSProtocolVersion)
        async throws
    {
        let (client, server) = try TestCertificates.mutual()
        let (isAsked, (decide, wasCancelled)) = (try TestSignal(), try undecided())
        try await withListener(server.only(version), isAsked, decide: decide) { listener, failures in
            let wire = try RawSocket.connected(to: try #require(listener.localAddress))
            let socket = try AsyncSocket(adopting: wire.duplicate())
            let upgrade = Task { try await socket.startTLS(settings: client.only(version)) }
            try await isAsked.wait(within: .patient)
            wire.finish()
            try await expectDeparture(from: listener, wasCancelled, failures)
            _ = await upgrade.result
        }
    }

    @Test func aClientThatSendsCloseNotifyReleasesItsHandshakeSlot() async throws {
        let (client, server) = try TestCertificates.mutual()
        let (isAsked, (decide, wasCancelled)) = (try TestSignal(), try undecided())
        try await withListener(server.only(.tls13), isAsked, decide: decide) { listener, failures in
            let peer = try ScriptedPeer.connecting(
                toPort: listener.localPort,
                [.startTLS(client.only(.tls13)), .wait(for: isAsked), .sendCloseNotify, .finish, .expectEnd])
            try await expectDeparture(from: listener, wasCancelled, failures)
            withExtendedLifetime(peer) {}
        }
    }

    /// The client has sent a request, so it may be waiting for the reply.
    @Test(arguments: [[], [ScriptedPeer.Step.sendCloseNotify]])
    func aClientThatFinishesAfterItsRequestGetsTheReply(goodbye: [ScriptedPeer.Step]) async throws {
        let (client, server) = try TestCertificates.mutual()
        let (isAsked, mayDecide) = (try TestSignal(), try TestSignal())
        let decide = { @Sendable () async throws -> Bool in
            try await mayDecide.wait(within: .patient)
            // Lets the connection's loop notice the FIN.
            for _ in 0..<100 { await Task.yield() }
            return true
        }
        let body = { @Sendable (socket: AsyncSocket) async throws in
            #expect(try await socket.read(exactly: 7) == Data("request"))
            try await socket.write("reply")
        }
        try await withListener(server.only(.tls13), isAsked, decide: decide, body) { listener, failures in
            let end = goodbye + [.finish, .fire(mayDecide), .expect("reply")]
            let peer = try ScriptedPeer.connecting(
                toPort: listener.localPort, [.startTLS(client.only(.tls13)), .wait(for: isAsked), .send("request")] + end)
            _ = try await peer.finish()
            #expect(failures.all.isEmpty)
        }
    }
}
