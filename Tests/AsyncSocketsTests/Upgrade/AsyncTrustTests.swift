import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Trust decisions by tasks, and failed handshakes.
@Suite(.timeLimit(.patient)) struct AsyncTrustTests {
    private func settings(_ change: (inout TLSClientSettings) -> Void = { _ in }) throws -> TLSClientSettings {
        var settings = try TestCertificates.client()
        change(&settings)
        return settings
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aTaskThatTrustsThePeerIsAskedOnce(_ version: TLSProtocolVersion) async throws {
        let server = try TestCertificates.server().only(version)
        let (socket, _) = try await connectedSocket([.startTLS(server), .send("hello")])
        let askedCount = Locked(0)
        let session = try await socket.startTLS(settings: settings()) { peer in
            askedCount.withLock { $0 += 1 }
            return !peer.chain.isEmpty
        }
        #expect(askedCount.withLock { $0 } == 1)
        #expect(session.protocolVersion == version)
        #expect(socket.isSecure && socket.tlsSession == session)
        #expect(try await socket.read(exactly: 5) == Data("hello"))
        // A second upgrade fails without an effect.
        #expect(await outcome { try await socket.startTLS(settings: settings()) } == .failed(.badConfiguration))
        #expect(socket.isConnected)
    }

    @Test func theErrorOfTheDecisionIsThatOfTheUpgrade() async throws {
        struct Undecided: Error {}
        let (socket, peer) = try await connectedSocket([.startTLS(TestCertificates.server())])
        await #expect(throws: Undecided.self) {
            try await socket.startTLS(settings: settings()) { _ in throw Undecided() }
        }
        #expect(!socket.isConnected && !socket.isSecure)
        peer.stop()
    }

    /// OpenSSL leaves an error in its queue when a signature is invalid. It must not be reported as a
    /// handshake error.
    @Test(arguments: TLSProtocolVersion.tested)
    func aTaskDecidesAboutAWrongSignatureToo(_ version: TLSProtocolVersion) async throws {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"])).identity()
        var bytes = try #require(issued.certificateChain.first?.derBytes)
        bytes[bytes.count - 1] ^= 1
        let chain = [try TLSCertificate(der: bytes)] + issued.certificateChain.dropFirst()
        let damaged = try TLSIdentity(certificateChain: chain, privateKey: issued.privateKey)
        let server = TLSSettings.server(identity: damaged).only(version)
        let (socket, _) = try await connectedSocket([.startTLS(server), .send("hello")])
        let verdicts = Locked<[PeerTrust.Verdict]>([])
        try await socket.startTLS(settings: settings { $0.trustEvaluation = .manual }) { peer in
            verdicts.withLock { $0.append(peer.verdict) }
            return true
        }
        #expect(verdicts.withLock { $0.count == 1 && $0.first != .trusted })
        #expect(try await socket.read(exactly: 5) == Data("hello"))
    }

    @Test func aTaskCannotTrustWhatOpenSSLRefuses() async throws {
        let stranger = try TestCertificates.stranger.issue(.server(names: ["localhost"])).identity()
        let (socket, _) = try await connectedSocket([.startTLS(.server(identity: stranger))])
        #expect(
            await outcome {
                try await socket.startTLS(settings: settings()) { _ in
                    Issue.record("asked in vain")
                    return true
                }
            } == .failed(.tls))
        #expect(!socket.isConnected)
        // Only if the settings require it.
        let (other, _) = try await connectedSocket([.startTLS(.server(identity: stranger)), .send("hello")])
        try await other.startTLS(settings: settings { $0.trustEvaluation = .manual }) { _ in true }
        #expect(try await other.read(exactly: 5) == Data("hello"))
    }

    @Test func nothingMovesUntilTheTaskHasDecided() async throws {
        let server = try TestCertificates.server()
        let (socket, peer) = try await connectedSocket([.startTLS(server), .expect("secret"), .send("hello")])
        let mayTrust = try TestSignal()
        let isAsked = try TestSignal()
        let upgrade = Task.immediate {
            try await socket.startTLS(settings: TestCertificates.client()) { _ in
                isAsked.fire()
                try await mayTrust.wait()
                return true
            }
        }
        let write = Task.immediate { try await socket.write("secret") }
        let read = Task.immediate { try await socket.read(exactly: 5) }
        try await isAsked.wait()
        #expect(!socket.isSecure)
        mayTrust.fire()
        _ = try await upgrade.value
        #expect(try await read.value == Data("hello"))
        #expect(await write.outcome == .served)
        _ = try await peer.finish()
    }

    // MARK: - Failures

    /// The peer's behavior instead of a handshake. `UpgradeRefusalTests` covers those that also apply to
    /// datagrams.
    enum Failure: CaseIterable, Sendable {
        case notTLS, fin, reset, earlyBytes

        var steps: [ScriptedPeer.Step] {
            switch self {
            case .notTLS: [.expectClientHello, .send("220 no TLS here\r\n")]
            case .fin: [.expectClientHello, .finish]
            case .reset: [.expectClientHello, .reset]
            case .earlyBytes: [.send("0123456789")]
            }
        }

        var code: AsyncSocketError.Code {
            switch self {
            case .notTLS, .fin: .tls
            case .reset: .connectionReset
            case .earlyBytes: .earlyPlaintext
            }
        }
    }

    @Test(arguments: Failure.allCases)
    func aHandshakeThatFailsClosesTheConnection(_ failure: Failure) async throws {
        let (socket, peer) = try await connectedSocket(failure.steps)
        if failure == .earlyBytes { #expect(try await socket.read(exactly: 5) == Data("01234")) }
        let settings = try settings()
        let upgrade = Task.immediate {
            _ = try await socket.startTLS(settings: settings) { _ in
                Issue.record("the peer has shown no certificate")
                return false
            }
        }
        let operations = [
            Task.immediate { try await socket.write("secret") },
            Task.immediate { _ = try await socket.readLine() },
            Task.immediate { _ = try await socket.readToEnd() },
        ]
        for operation in [upgrade] + operations { #expect(await operation.outcome == .failed(failure.code)) }
        #expect(!socket.isConnected && !socket.isSecure)
        #expect(await outcome { try await socket.write("secret") } == .failed(failure.code))
        #expect(await outcome { try await socket.startTLS(settings: settings) } != .served)
        peer.stop()
    }
}
