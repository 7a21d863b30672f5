import AsyncSocketsTesting
import COpenSSL
import Testing

@testable import SocketTLS

/// Settings with raw public keys, their errors, and their effect on the trust gate.
@Suite struct RawPublicKeySettingsTests {
    @Test func rawPublicKeysRequireOpenSSL32() throws {
        let isNew = (OPENSSL_version_major(), OPENSSL_version_minor()) >= (3, 2)
        #expect(TLSRawPublicKeys.isSupported == isNew)
        guard !isNew else { return }
        let fixture = try RawPublicKeyFixture()
        for settings in [fixture.client.values, fixture.server.values] {
            let error = #expect(throws: TLSError.self) { try TLSContext.context(for: settings) }
            let version = String(cString: try #require(OpenSSL_version(OPENSSL_VERSION_STRING)))
            #expect(error?.code == .invalidSettings)
            #expect(
                error?.message
                    == "the TLS settings cannot be used: raw public keys require OpenSSL 3.2 or newer, but the loaded version is \(version)"
            )
        }
        #expect(throws: TLSError.self) { try TLSServerNames([Fixture.host: fixture.server]) }
    }

    /// Returns the message of an error about settings.
    private func refusal(_ body: () throws -> Void) -> String? {
        do {
            try body()
            return nil
        } catch {
            guard let error = error as? TLSError, error.code == .invalidSettings else { return "\(error)" }
            return error.message
        }
    }

    @Test func malformedPublicKeysAndDigestsAreRejected() throws {
        let key = try RawPublicKeyFixture.otherKey
        let digest = PublicKeyInfo.sha256(of: key)
        #expect(refusal { _ = try TLSRawPublicKeys(expected: []) }?.contains("the list of expected keys is empty") == true)
        for keys in [[[]], [key, Array(key.dropLast())], [key + [0]], [digest]] as [[[UInt8]]] {
            let message = refusal { _ = try TLSRawPublicKeys(expected: keys) }
            #expect(message?.contains("a key (\(keys.last?.count ?? 0) bytes) is not a DER-encoded SubjectPublicKeyInfo") == true)
        }
        #expect(refusal { _ = try TLSRawPublicKeys(expectedSHA256: []) }?.contains("the list of expected keys is empty") == true)
        for (digests, count) in [([[]], 0), ([digest, Array(digest.dropLast())], 31), ([key], key.count)] as [(Set<[UInt8]>, Int)]
        {
            let message = refusal { _ = try TLSRawPublicKeys(expectedSHA256: digests) }
            #expect(message?.contains("32 bytes long (SHA-256), but is \(count)") == true, "\(message ?? "")")
        }
        #expect(try TLSRawPublicKeys(expected: [key]) == TLSRawPublicKeys(expectedSHA256: [digest]))
    }

    @Test func aCertificateAndItsKeyHaveOnePublicKey() throws {
        let identity = try #require(try Fixture().server.identity)
        let certificate = try #require(identity.certificateChain.first)
        #expect(certificate.publicKey == identity.privateKey.publicKey)
        #expect(PublicKeyInfo.sha256(of: certificate.publicKey) == certificate.publicKeySHA256)
    }

    private func complaint(_ settings: TLSSettingValues) -> String? {
        do {
            try settings.validate()
            return nil
        } catch {
            return error.code == .invalidSettings ? error.message : "\(error)"
        }
    }

    @Test func contradictionsAreErrors() throws {
        var fixture = try RawPublicKeyFixture()
        try fixture.makeMutual()
        guard try fixture.isSupported() else { return }
        #expect(complaint(fixture.client.values) == nil && complaint(fixture.server.values) == nil)
        func expect(
            _ words: String, _ side: KeyPath<RawPublicKeyFixture, TLSSettingValues>,
            _ change: (inout TLSSettingValues) throws -> Void
        ) throws {
            var settings = fixture[keyPath: side]
            try change(&settings)
            #expect(complaint(settings)?.contains(words) == true, "\(words): \(complaint(settings) ?? "")")
        }
        try expect("identity is nil", \.client.values) { $0.identity = nil }
        try expect("set it to .none", \.client.values) { $0.resumption = .store(TLSInMemorySessionStore.shared) }
        try expect("set it to false", \.client.values) { $0.allowsPostHandshakeAuthentication = true }
        try expect("earlyData requires session resumption", \.client.values) { $0.earlyData = TLSEarlyData([1]) }
        let shared = TLSPreSharedKeys(try PreSharedKeyFixture.key())
        for side in [\RawPublicKeyFixture.client.values, \.server.values] {
            try expect("cannot be combined with pre-shared keys", side) { $0.proof = .preSharedKeys(shared.used(.preferred)) }
        }
        for presents in [true, false] {
            try expect("cannot be combined with sessionTickets", \.server.values) {
                ($0.tickets, $0.certificateType) = (.issued(1), presents ? .rawPublicKey : .x509)
            }
            try expect("clients is .certificatesOnRequest", \.server.values) {
                ($0.clientCertificates, $0.certificateType) = (.onRequest, presents ? .rawPublicKey : .x509)
            }
        }
        try expect("presentsRawPublicKey to be false", \.server.values) {
            ($0.clients, $0.acceptedEarlyData, $0.tickets) = (.anyone, TLSAcceptedEarlyData(upTo: 1), .none)
        }
    }

    @Test func settingsWithOtherKeysShareNoContext() throws {
        var fixture = try RawPublicKeyFixture()
        try fixture.makeMutual()
        guard try fixture.isSupported() else { return }
        let cache = ContextCache(limit: 64)
        for base in [fixture.client.values, fixture.server.values] {
            let first = try TLSContext.context(for: base, in: cache)
            #expect(try TLSContext.context(for: base, in: cache) === first)
            var others = [base, base, base, base]
            others[0].rawPublicKeys = try TLSRawPublicKeys(expected: [RawPublicKeyFixture.otherKey])
            others[1].rawPublicKeys?.use = .preferred
            others[2].certificateType = .x509
            others[3].rawPublicKeys = nil
            for other in others { #expect(try TLSContext.context(for: other, in: cache) !== first) }
        }
        let context = try TLSContext.context(for: fixture.client)
        #expect(context.resumptionScope == nil && context.options & COpenSSL_noTicketOption() != 0)
    }

    // MARK: - The trust gate

    private let key: [UInt8] = [1, 2, 3]
    private var trust: PeerTrust { PeerTrust(chain: [], publicKey: key) }
    private var proof: KeyProof { KeyProof(kind: .rawPublicKey, value: key) }
    private var fault: ProofFault { .unexpectedPublicKey(key) }

    @Test(arguments: [TLSTrustEvaluation.builtIn, .delegate, .manual])
    func onlyAnExpectedKeyOpensTheGate(mode: TLSTrustEvaluation) {
        for isRequired in [true, false] {
            var refused = TrustGate(mode, requiredKey: isRequired ? .rawPublicKey : nil)
            #expect(refused.judge(proof, fault, trust) == .refuse)
            #expect(refused.takeQuestion() == nil && refused.refusal == .byKey(fault))
            // The first decision counts.
            #expect(refused.judge(proof, nil, trust) == .refuse)
            #expect(!refused.admits(isOptional: true) && refused.admissionError.code == .rawPublicKeyMismatch)
            var expected = TrustGate(mode, requiredKey: isRequired ? .rawPublicKey : nil)
            #expect(expected.judge(proof, nil, trust) == (mode == .builtIn ? .accept : .undecided))
            #expect(expected.admits(isOptional: true) == (mode == .builtIn))
            if mode != .builtIn {
                #expect(expected.takeQuestion() == trust && expected.acceptedKey == nil)
                let isDecided = expected.decide(true, .rejected)
                #expect(isDecided)
            }
            #expect(expected.admits(isOptional: false) && expected.accepted(.rawPublicKey) == key)
        }
    }

    @Test(arguments: [TLSTrustEvaluation.builtIn, .delegate, .manual])
    func aGateThatRequiresAKeyRefusesCertificates(mode: TLSTrustEvaluation) {
        var gate = TrustGate(mode, requiredKey: .rawPublicKey)
        #expect(!gate.admits(isOptional: false) && gate.admissionError.code == .rawPublicKeyMissing)
        #expect(gate.judge(PeerTrust(chain: [])) == .refuse)
        #expect(
            gate.refusal == .byKey(KeyProof.Kind.rawPublicKey.missing) && gate.takeQuestion() == nil
                && !gate.admits(isOptional: true))
        var other = TrustGate(mode, requiredKey: .rawPublicKey)
        other.accept(KeyProof(kind: .preSharedKey, value: [1]))
        #expect(!other.admits(isOptional: true))
        var third = TrustGate(mode, requiredKey: .preSharedKey)
        #expect(third.judge(proof, nil, trust) == .refuse && !third.admits(isOptional: true))
    }
}
