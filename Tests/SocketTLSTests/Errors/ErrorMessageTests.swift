import AsyncSocketsTesting
import Foundation
import Glibc
import Testing

@testable import SocketTLS

/// The message of each TLS error contains the relevant details: the certificate, the file, the name or the
/// alert.
@Suite struct TLSErrorMessageTests {
    /// A way to provoke an error, and what its description must contain.
    struct Way: Sendable, CustomTestStringConvertible {
        let code: TLSError.Code
        let objects: [String]
        let provoke: @Sendable () throws -> TLSError?

        init(_ code: TLSError.Code, _ objects: String..., provoke: @escaping @Sendable () throws -> TLSError?) {
            (self.code, self.objects, self.provoke) = (code, objects, provoke)
        }

        var testDescription: String { code.description }
    }

    private static let ways = callers + certificates + keys + requests + peers + records

    @Test(arguments: ways) func theMessageNamesItsObject(_ way: Way) throws {
        let error = try #require(try way.provoke())
        #expect(error.code == way.code)
        for object in way.objects { #expect("\(error)".contains(object), "\(error)") }
        #expect(!error.message.hasSuffix(".") && !error.operation.isEmpty)
    }

    /// Reads the codes from the source code, so a code without a test case fails here. Features declare their
    /// codes in their own folders.
    @Test func theTableHasEveryCode() throws {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Sources/SocketTLS")
        let paths = try FileManager.default.subpathsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".swift") }
        let codes = try paths.flatMap { path in
            try String(contentsOf: folder.appending(path: path), encoding: .utf8)
                .matches(of: /public static let (\w+) = (?:TLSError\.)?Code\(/).map { String($0.output.1) }
        }
        #expect(codes.count > 30)
        #expect(Set(codes) == Set(Self.ways.map { $0.code.description }))
    }

    /// In a separate process, because the environment is shared by all tests.
    @Test func rootsThatTheEnvironmentNamesInVainAreNamed() async {
        await #expect(processExitsWith: .success) {
            setenv("SSL_CERT_FILE", "/nowhere/roots.pem", 1)
            setenv("SSL_CERT_DIR", "/nowhere/roots", 1)
            var fixture = try Fixture()
            fixture.client.trustRoots = .system
            let error = try fixture.clientError()
            #expect(error?.code == .unknownIssuer)
            #expect(
                error?.message.hasSuffix(": SSL_CERT_FILE names \"/nowhere/roots.pem\" (No such file or directory)") == true)
        }
    }

    private static func thrown<Value>(_ body: () throws -> Value) -> TLSError? {
        #expect(throws: TLSError.self) { _ = try body() }
    }

    private static func pair(
        _ version: TLSProtocolVersion = .tls13, _ change: (inout Fixture) throws -> Void = { _ in }
    ) throws -> EnginePair {
        var fixture = try Fixture(version)
        try change(&fixture)
        let pair = try fixture.pair()
        pair.shakeHands()
        return pair
    }

    // MARK: - TLSA records

    private static let records: [Way] = [
        Way(.invalidTLSARecord, "\"3 1\"") { thrown { try TLSARecord("3 1") } },
        Way(.noUsableTLSARecord, "\"mail.example.org\"", "\"3 1 1 00\"", "32 bytes") {
            var fixture = try DANEFixture()
            fixture.expect([try TLSARecord("3 1 1 00")])
            return thrown { try fixture.base.pair() }
        },
        Way(.tlsaMismatch, "\"mail.example.org\"", "\"3 1 1 abab") {
            var fixture = try DANEFixture()
            fixture.expect([try TLSARecord("3 1 1 " + String(repeating: "ab", count: 32))])
            return try fixture.shaken().clientError
        },
        Way(.tlsaLookUpFailed, "\"mail.example.org\"", "5.0 seconds") {
            var client = TLSSettings.client(serverName: Fixture.host)
            client.proof = .dane(TLSDANE(policy: .required, timeout: .seconds(5)) { _ in .init([]) })
            return client.values.lookUp?.timeoutError
        },
    ]

    // MARK: - Errors of the caller

    private static let callers = [
        Way(.invalidSettings, "\"a b\"") { thrown { try TLSContext.context(for: .client(serverName: "a b")) } },
        Way(.invalidCertificate, "\"/nowhere\"", "No such file") { thrown { try TLSCertificate.certificates(file: "/nowhere") } },
        Way(.invalidPrivateKey, "\"/nowhere\"", "No such file") { thrown { try TLSPrivateKey(file: "/nowhere") } },
        Way(.invalidSession, "not a session saved by this library") { thrown { try TLSResumableSession(bytes: [1, 2, 3]) } },
        Way(.keyMismatch, "\"a.example.org\"") {
            let (one, other) = (
                try authority.issue(.server(names: ["a.example.org"])), try authority.issue(.server(names: ["b"]))
            )
            return thrown { try TLSIdentity(pem: one.certificatePEM + other.privateKeyPEM) }
        },
        Way(.bindingUnavailable, "tls-unique") {
            let both = try pair()
            do throws(KeyExporter.Failure) { _ = try both.client.exporter.channelBinding(.tlsUnique) } catch {
                if case .unavailable(let error) = error { return error }
            }
            return nil
        },
    ]

    private static var authority: CertificateAuthority { get throws { try CertificateAuthority() } }

    // MARK: - Certificates

    private static let certificates = [
        Way(.certificateExpired, "\"mail.example.org\"", "expired on 2") {
            try Fixture(validity: .expired).clientError()
        },
        Way(.certificateNotYetValid, "\"mail.example.org\"", "before 2") {
            try Fixture(validity: .notYetValid).clientError()
        },
        Way(.hostNameMismatch, "\"mail.example.org\"", "\"other.test\"") {
            try Fixture(serverName: "other.test").clientError()
        },
        Way(.unknownIssuer, "\"mail.example.org\"", "Test") {
            try pair { $0.client.trustRoots = try Fixture.stranger.roots }.clientError
        },
        Way(.certificateRevoked, "\"Server\"") { try revoked(listsOfBoth: true) },
        Way(.certificateRejected, "\"Server\"", "CRL") { try revoked(listsOfBoth: false) },
        Way(.pinMismatch, "\"mail.example.org\"") {
            try pair { $0.client.values.rules.pins = [[UInt8](repeating: 7, count: 32)] }.clientError
        },
        Way(.certificateTooLarge, "more than 1", "maximumCertificateChainLength") {
            try pair {
                let names = CertificateAuthority.Purpose.server(names: [Fixture.host])
                $0.server.identity = try $0.authority.issue(names, signedBy: .intermediate).identity()
                $0.client.maximumCertificateChainLength = 1
            }.clientError
        },
        Way(.trustRejected, "\"mail.example.org\"") { try asked(.rejected) },
        Way(.trustTimeout, "\"mail.example.org\"") { try asked(.timedOut) },
    ]

    private static func revoked(listsOfBoth: Bool) throws -> TLSError? {
        let chain = try HandmadeCertificate.chain()
        var fixture = try Fixture(leaf: chain.leaf, roots: [chain.root])
        let files = try [chain.root.revocationList(), chain.intermediate.revocationList(of: [chain.leaf])]
            .map { try TemporaryFile(bytes: $0) }
        fixture.client.values.rules.revocationLists = files.prefix(listsOfBoth ? 2 : 1).map { .file(path: $0.path) }
        return try fixture.clientError()
    }

    private static func asked(_ refusal: TrustRefusal) throws -> TLSError? {
        let pair = try pair { $0.client.trustEvaluation = .delegate }
        pair.client.decideTrust(false, refusal: refusal)
        pair.shakeHands()
        return pair.clientError
    }

    // MARK: - Keys

    private static let keys = [
        Way(.preSharedKeyMissing, "pre-shared key") {
            let long = try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.bytes, .sha384)
            return try PreSharedKeyFixture(.tls13, long, TLSPreSharedKeys(PreSharedKeyFixture.key())).shaken().serverError
        },
        Way(.preSharedKeyMismatch, "bob") {
            try PreSharedKeyFixture(.tls13, PreSharedKeyFixture.key("bob"), TLSPreSharedKeys(PreSharedKeyFixture.key()))
                .shaken().serverError
        },
        // Older versions of OpenSSL do not support raw public keys.
        Way(.rawPublicKeyMissing, "raw public key") { KeyProof.Kind.rawPublicKey.missing.error },
        Way(.rawPublicKeyMismatch, PublicKeyInfo.sha256(of: [1, 2]).hexadecimal) {
            ProofFault.unexpectedPublicKey([1, 2]).error
        },
    ]

    // MARK: - Requests for a client's certificate

    private static func requested(
        _ version: TLSProtocolVersion = .tls13, _ change: (TLSEngine) throws -> Void = { _ in }
    ) throws -> TLSError? {
        let pair = try pair(version) {
            try $0.askForClientCertificate(.onRequest)
            try $0.showClientCertificate()
            $0.client.allowsPostHandshakeAuthentication = true
        }
        try change(pair.server)
        return thrown { try pair.server.requestClientCertificate(isRequired: true) }
    }

    private static let requests = [
        Way(.postHandshakeAuthenticationUnavailable, "TLS 1.3") { try requested(.tls12) },
        Way(.certificateRequestPending, "previous request") {
            try requested { _ = try $0.requestClientCertificate(isRequired: true) }
        },
        Way(.internalError, "close_notify") { try requested { $0.shutdown() } },
        Way(.clientCertificateMissing, "this server requires one") {
            try pair { try $0.askForClientCertificate() }.serverError
        },
    ]

    // MARK: - Errors of the peer

    private static let peers = [
        Way(.peerAlert, "unknown_ca (48)") {
            try pair { $0.client.trustRoots = try Fixture.stranger.roots }.serverError
        },
        Way(.notTLS, "\"220 m\"") {
            let client = try Fixture().engine(.client)
            client.receive("220 mail.example.org ESMTP\r\n")
            return client.handshake().error
        },
        Way(.protocolViolation, "bad record mac") {
            let client = try pair().client
            client.receive([23, 3, 3, 0, 32] + [UInt8](repeating: 0, count: 32))
            return client.readAll().end.error
        },
        Way(.noSharedParameters, "no application protocol") {
            try pair {
                $0.client.applicationProtocols = ["imap"]
                $0.server.applicationProtocols = ["smtp"]
            }.serverError
        },
        Way(.unrecognizedName, "\"mail.example.org\"") {
            try pair { $0.server.serverNames = try TLSServerNames(["other.test": $0.server], unknownName: .reject) }.serverError
        },
        Way(.truncated, "close_notify") {
            let client = try pair().client
            client.receiveEndOfFile()
            return client.readAll().end.error
        },
        Way(.closedDuringHandshake, "before the TLS handshake was complete") {
            let client = try Fixture().engine(.client)
            client.receiveEndOfFile()
            return client.handshake().error
        },
        Way(.tooManyKeyUpdates, "non-data messages", "per second") {
            let clock = TestClock()
            let server = try Fixture(.tls13).engine(.server) { clock.now }
            let peer = try RawPeer(.tls13)
            peer.shakeHands(with: server)
            for _ in 0..<5_000 { peer.sendKeyUpdate() }
            peer.carryTo(server)
            return server.readAll().end.error
        },
    ]
}
