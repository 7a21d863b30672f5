import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketTLS

/// Refused and failed upgrades, over streams and over datagrams: the connection closes, and every pending
/// operation completes.
@Suite(.timeLimit(.patient)) struct UpgradeRefusalTests {
    private struct Refused: Error {}

    /// How an upgrade fails.
    enum Failure: CaseIterable, Sendable {
        case refusal, error, noVerdict, disconnectedMeanwhile, cancelledMeanwhile, ignoredCancellation
        case silence, badSettings, noOneDecides

        /// The result of the upgrading task. `nil` if it throws the error of its own closure.
        var outcome: Outcome? {
            switch self {
            case .error: nil
            case .cancelledMeanwhile, .ignoredCancellation: .cancelled
            default: .failed(code)
            }
        }

        /// The error code of pending reads and writes.
        var code: AsyncSocketError.Code {
            switch self {
            case .refusal, .error, .badSettings: .tls
            case .noVerdict: .trustTimeout
            case .disconnectedMeanwhile, .cancelledMeanwhile, .ignoredCancellation: .closed
            case .noOneDecides: .badConfiguration
            case .silence: .handshakeTimeout
            }
        }

        /// A part of the error message.
        var words: String {
            switch self {
            case .refusal, .error: "rejected"
            case .badSettings: "minimumVersion"
            case .noVerdict: "did not accept or reject the certificate"
            case .silence: "0.05 seconds"
            case .disconnectedMeanwhile, .cancelledMeanwhile, .ignoredCancellation: "closed"
            case .noOneDecides: "pass trust"
            }
        }

        var serverBegins: Bool {
            switch self {
            case .silence, .badSettings, .noOneDecides: false
            default: true
            }
        }

        func settings(_ version: TLSProtocolVersion) throws -> TLSClientSettings {
            var settings = try TestCertificates.client().only(version)
            if self == .noVerdict { settings.trustTimeout = .seconds(0.05) }
            if self == .silence { settings.handshakeTimeout = .seconds(0.05) }
            if self == .badSettings { (settings.minimumVersion, settings.maximumVersion) = (.tls13, .tls12) }
            if self == .noOneDecides { settings.trustEvaluation = .manual }
            return settings
        }

        func decide(_ isAsked: TestSignal, _ end: UpgradeEnd) async throws -> Bool {
            isAsked.fire()
            switch self {
            case .refusal: return false
            case .error: throw Refused()
            case .noVerdict:
                try await eventually("the connection is closed") { end.isOver }
                return true
            case .disconnectedMeanwhile:
                end.close()
                return true
            case .cancelledMeanwhile: try await waitUntilCancelled()
            case .ignoredCancellation:
                // The cancelled task accepts the peer after its connection has closed.
                try? await waitUntilCancelled()
                end.close()
                return true
            case .silence, .badSettings, .noOneDecides: Issue.record("no verdict is needed")
            }
            return false
        }
    }

    /// Each transport with each TLS version that it supports.
    private static let versions: [(Transport, TLSProtocolVersion)] = [(.stream, .tls13), (.stream, .tls12), (.datagrams, .tls12)]

    @Test(arguments: versions, Failure.allCases)
    func aFailedUpgradeCompletesEveryOperationAndClosesTheConnection(
        _ way: (Transport, TLSProtocolVersion), _ failure: Failure
    ) async throws {
        let link = try await UpgradeLink(way.0, clientHasDelegate: false)
        let (client, isAsked, settings) = (link.client, try TestSignal(), try failure.settings(way.1))
        if failure.serverBegins { try link.server.begin(TestCertificates.server().only(way.1)) }
        let upgrade = Task.immediate {
            guard failure != .noOneDecides else { return try await client.upgrade(settings) }
            try await client.upgrade(settings) { _ in try await failure.decide(isAsked, client) }
        }
        let operations = [
            Task.immediate { try await client.send("secret") }, Task.immediate { _ = try await client.receive(100) },
            Task.immediate { _ = try await client.receive(100) },
        ]
        if failure == .cancelledMeanwhile || failure == .ignoredCancellation {
            try await isAsked.wait()
            upgrade.cancel()
        }
        switch await upgrade.result {
        case .success: Issue.record("secure")
        case .failure(let error) where failure.outcome == nil: #expect(error is Refused)
        case .failure(let error): #expect(Outcome(error) == failure.outcome)
        }
        for operation in operations {
            guard case .failure(let error) = await operation.result else {
                Issue.record("served")
                continue
            }
            #expect(Outcome(error) == .failed(failure.code))
            #expect((error as? AsyncSocketError)?.message.contains(failure.words) == true, "\(error)")
        }
        try await eventually("it is closed") { client.isOver }
        #expect(!client.isSecure && !link.server.isSecure)
        #expect(await outcome { try await client.send("secret") } == .failed(failure.code))
        #expect(await outcome { try await client.upgrade(settings) } != .served)
    }

    // MARK: - Claims

    /// A second upgrade throws and does not affect the first, during the handshake and after it.
    @Test(arguments: Transport.allCases) func aConnectionIsUpgradedOnce(_ transport: Transport) async throws {
        let link = try await UpgradeLink(transport)
        let (client, server) = (try TestCertificates.client().only(.tls12), try TestCertificates.server().only(.tls12))
        try link.client.begin(client)
        for isSecure in [false, true] {
            if isSecure {
                try link.server.begin(server)
                try await link.client.secured()
                try await link.server.secured()
            }
            let late = #expect(throws: AsyncSocketError.self) { try link.client.begin(client) }
            #expect(late?.code == .badConfiguration && late?.operation == transport.operation)
            #expect(late?.message.contains("already been called") == true)
            #expect(await outcome { try await link.client.upgrade(client) } == .failed(.badConfiguration))
            #expect(!link.client.isOver)
        }
        try await link.client.send("still here")
        #expect(try await link.server.receive(10) == "still here")
    }

    @Test(arguments: Transport.allCases) func aClosedConnectionIsNotUpgraded(_ transport: Transport) async throws {
        let link = try await UpgradeLink(transport)
        link.client.close()
        _ = try await link.client.ended()
        let settings = try TestCertificates.client()
        let late = #expect(throws: AsyncSocketError.self) { try link.client.begin(settings) }
        #expect(late?.code == .closed || late?.code == .badConfiguration)
        #expect(await outcome { try await link.client.upgrade(settings) } != .served)
        #expect(!link.client.wasOpened && !link.client.isSecure)
    }

    // MARK: - Before the handshake

    /// The lookup fails after the upgrade was queued. Later data must not be sent in plaintext.
    @Test(arguments: Transport.allCases) func aConnectThatFailsBeforeTheUpgradeEndsTheSocket(_ transport: Transport) async throws
    {
        let mayFail = DispatchSemaphore(value: 0)
        let resolver = Resolver(concurrency: 1) { query in
            mayFail.wait()
            return .failure(ResolveError(query, code: EAI_NONAME))
        }
        let end = UpgradeEnd(transport)
        switch end {
        case .stream(let socket, _):
            socket.resolver = resolver
            try socket.connect(toHost: "nobody.test", onPort: 9, withTimeout: .patient)
        case .datagrams(let socket, _):
            socket.resolver = resolver
            try socket.connect(toHost: "nobody.test", onPort: 9, withTimeout: .patient)
        }
        try end.begin(TestCertificates.client())
        let operation = Task.immediate { try await end.send("secret") }
        mayFail.signal()
        let error = try await end.ended()
        #expect(error?.code == .hostNotFound, "\(String(describing: error))")
        #expect(await operation.outcome != .served)
        #expect(end.isOver && !end.isSecure && !end.wasOpened)
        #expect(await outcome { try await end.send("secret") } != .served)
    }

    // MARK: - Slow steps

    /// The queue of the private key is full, so the handshake fails with an error.
    @Test(arguments: Transport.allCases, [true, false])
    func aHandshakeWhoseKeyIsBusyIsRefused(_ transport: Transport, isClient: Bool) async throws {
        var (client, server) = try UpgradeLink.settings(asking: isClient)
        (client.trustEvaluation, server.trustEvaluation) = (.builtIn, .builtIn)
        let authority = try TestCertificates.authority
        if isClient {
            client.identity = try authority.issue(.client(commonName: "alice"), keyType: .rsa3072).identity()
        } else {
            server.identity = try authority.issue(.server(names: ["localhost"]), keyType: .rsa3072).identity()
        }
        let values = isClient ? client.values : server.values
        let context = try TLSContext.context(for: values, over: transport == .stream ? .stream : .datagrams)
        // The key is new, so other tests are not affected.
        let mayEnd = DispatchSemaphore(value: 0)
        try await eventually("the queue of the key is full") {
            !HandshakeWorkers.shared.perform(context.workKey) {
                mayEnd.wait()
                mayEnd.signal()
            }
        }
        defer { mayEnd.signal() }
        let link = try await UpgradeLink(transport)
        try link.begin(client, server)
        let (busy, other) = link.ends(asking: isClient)
        let error = try await busy.ended()
        #expect(error?.code == .tooManyHandshakes && error?.fault == .system)
        #expect(!busy.wasOpened && !other.wasOpened)
        // After the server's first flight a client cannot send a plaintext alert, and DTLS has no FIN.
        if transport == .stream || !isClient { #expect(try await other.ended() != nil) }
    }
}
