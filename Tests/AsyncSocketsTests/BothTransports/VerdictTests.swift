import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Trust decisions by delegates and timeouts of upgrades, over streams and datagrams.
@Suite(.timeLimit(.patient)) struct VerdictTests {
    // MARK: - Verdicts

    /// The first verdict counts, and verdicts about other questions are ignored.
    @Test(arguments: Transport.allCases, [(true, true), (true, false), (false, true), (false, false)])
    func theFirstVerdictAboutTheQuestionCounts(_ transport: Transport, _ plan: (isClient: Bool, isAccepted: Bool)) async throws {
        let link = try await UpgradeLink(transport)
        let (client, server) = try UpgradeLink.settings(asking: plan.isClient)
        try link.begin(client, server)
        let (asked, other) = link.ends(asking: plan.isClient)
        let answer = try await asked.asked()
        asked.postStrayVerdict(!plan.isAccepted)
        answer(plan.isAccepted)
        answer(!plan.isAccepted)
        guard plan.isAccepted else {
            let error = try await asked.ended()
            #expect(error?.tls?.code == .trustRejected && error?.operation == transport.operation)
            #expect(try await other.ended()?.tls?.code == .peerAlert)
            #expect(!asked.wasOpened && !other.wasOpened && !asked.isSecure && !other.isSecure)
            return
        }
        try await asked.secured()
        try await other.secured()
        answer(false)
        asked.postStrayVerdict(false)
        try await asked.send("hello")
        #expect(try await other.receive(5) == "hello")
    }

    @Test(arguments: Transport.allCases, [true, false])
    func d8AMissingTrustDecisionRejectsThePeer(_ transport: Transport, isClient: Bool) async throws {
        let link = try await UpgradeLink(transport)
        let (client, server) = try UpgradeLink.settings(asking: isClient, within: .seconds(0.05))
        try link.begin(client, server)
        let (asked, other) = link.ends(asking: isClient)
        let answer = try await asked.asked()
        let error = try #require(try await asked.ended())
        #expect(error.code == .trustTimeout && error.fault == .caller)
        // This verdict is too late.
        answer(true)
        #expect(try await other.ended()?.tls?.code == .peerAlert)
        #expect(!asked.wasOpened && !asked.isSecure && !other.isSecure)
    }

    @Test(arguments: Transport.allCases) func theDefaultAnswerIsNo(_ transport: Transport) async throws {
        final class Silent: AsyncSocketDelegate, AsyncUDPSocketDelegate, Sendable {}
        let (silent, link) = (Silent(), try await UpgradeLink(transport))
        switch link.client {
        case .stream(let socket, _): socket.setInlineDelegate(silent)
        case .datagrams(let socket, _): socket.setInlineDelegate(silent)
        }
        var settings = try TestCertificates.client()
        (settings.trustEvaluation, settings.trustTimeout) = (.manual, .patient)
        try link.begin(settings, TestCertificates.server())
        #expect(try await link.server.ended()?.tls?.code == .peerAlert)
        withExtendedLifetime(silent) {}
    }

    /// Data that is sent after the start of the upgrade waits for the verdict. A refusal drops it.
    @Test(arguments: Transport.allCases, [true, false])
    func dataWaitsForTheVerdict(_ transport: Transport, isAccepted: Bool) async throws {
        let link = try await UpgradeLink(transport)
        let (client, server) = try UpgradeLink.settings(asking: false)
        try link.begin(client, server)
        let answer = try await link.server.asked()
        let operations = [
            Task.immediate { try await link.client.send("early") },
            Task.immediate { try await link.server.send("ready") },
        ]
        let received = [
            Task.immediate { try await link.server.receive(5) }, Task.immediate { try await link.client.receive(5) },
        ]
        #expect(!link.server.isSecure && !link.client.isSecure)
        answer(isAccepted)
        for operation in operations { #expect(await operation.outcome == (isAccepted ? .served : .failed(.tls))) }
        for (task, text) in zip(received, ["early", "ready"]) {
            switch await task.result {
            case .success(let data): #expect(isAccepted && data == text)
            case .failure(let error): #expect(!isAccepted && Outcome(error) == .failed(.tls))
            }
        }
    }

    /// A task decides on one side. The delegate on the opposite side receives the alert.
    @Test(arguments: Transport.allCases) func aTasksVerdictTakesTheClockOfItsSide(_ transport: Transport) async throws {
        let link = try await UpgradeLink(transport)
        let (client, server) = try UpgradeLink.settings(asking: true, within: .seconds(0.05))
        try link.server.begin(server)
        let error = await #expect(throws: AsyncSocketError.self) {
            try await link.client.upgrade(client) { _ in
                try await eventually("it is closed") { link.client.isOver }
                return true
            }
        }
        #expect(error?.code == .trustTimeout)
        #expect(try await link.server.ended()?.tls?.code == .peerAlert)
        #expect(!link.client.isSecure && !link.server.isSecure)
    }

    // MARK: - The clock of the handshake

    @Test(arguments: Transport.allCases, [true, false])
    func d8AHandshakeWithASilentPeerTimesOut(_ transport: Transport, isClient: Bool) async throws {
        let link = try await UpgradeLink(transport)
        let (end, other) = link.ends(asking: isClient)
        var values = isClient ? try TestCertificates.client().values : try TestCertificates.server().values
        values.handshakeTimeout = .seconds(0.1)
        try end.begin(TLSClientSettings(values))
        let error = try #require(try await end.ended())
        #expect(error.code == .handshakeTimeout && error.fault == .peer)
        #expect(error.message.hasSuffix("handshake did not complete within 0.1 seconds"))
        #expect(!end.isSecure)
        withExtendedLifetime(other) {}
    }

    /// Calls `body` with each limit, in seconds, until the handshake is fast enough for it on this machine.
    private func attempt(_ limits: [TimeInterval], _ body: (TimeInterval) async throws -> Void) async throws {
        for limit in limits.dropLast() {
            do { return try await body(limit) } catch let late as TooEarly {
                try #require(late.error.code == .handshakeTimeout, "\(late.error)")
            }
        }
        try await body(limits.last ?? 0)
    }

    /// The handshake timed out before the delegate was called.
    private struct TooEarly: Error { let error: AsyncSocketError }

    private func asked(_ end: UpgradeEnd) async throws -> @Sendable (Bool) -> Void {
        switch end {
        case .stream(_, let recorder):
            switch await recorder?.next() {
            case .asked(_, let answer): return answer
            case .disconnected(let error?): throw TooEarly(error: error)
            case let told: throw Unexpected(description: "\(told as Any)")
            }
        case .datagrams(_, let recorder):
            let answer = try await recorder?.first { told -> Result<@Sendable (Bool) -> Void, any Error>? in
                switch told {
                case .asked(_, let answer): .success(answer)
                case .closed(let error?): .failure(TooEarly(error: error))
                default: nil
                }
            }
            return try #require(answer).get()
        }
    }

    @Test(arguments: Transport.allCases) func theTrustVerdictDoesNotUseUpTheHandshakesTime(_ transport: Transport) async throws {
        try await attempt([3, 15, 60]) { limit in
            let link = try await UpgradeLink(transport)
            var (client, server) = try UpgradeLink.settings(asking: true)
            client.handshakeTimeout = .seconds(limit)
            server.handshakeTimeout = .patient
            try link.begin(client, server)
            let answer = try await asked(link.client)
            // Wait longer than the handshake may take, using the timeout of another socket.
            let clock = try await UpgradeLink(.stream)
            let end = await #expect(throws: AsyncSocketError.self) {
                guard case .stream(let socket, _) = clock.client else { return }
                _ = try await socket.read(exactly: 1, timeout: .seconds(limit + 0.5))
            }
            #expect(end?.code == .readTimeout)
            answer(true)
            try await link.client.secured()
        }
    }

    /// The server sends its Finished message only after its own delegate decides, which never happens here.
    @Test(arguments: Transport.allCases)
    func aHandshakeThatIsLateAfterAVerdictNamesItsWholeLimit(_ transport: Transport) async throws {
        try await attempt([2.5, 10, 40]) { limit in
            let link = try await UpgradeLink(transport)
            var (client, server) = try UpgradeLink.settings(asking: true)
            client.handshakeTimeout = .seconds(limit)
            (server.trustEvaluation, server.trustTimeout) = (.delegate, .patient)
            try link.begin(client, server)
            try await asked(link.client)(true)
            let error = try #require(try await link.client.ended())
            #expect(error.code == .handshakeTimeout)
            #expect(error.message.hasSuffix("handshake did not complete within \(AsyncSocketError.text(ofSeconds: limit))"))
            withExtendedLifetime(link) {}
        }
    }
}
