import AsyncSocketsTesting
import COpenSSL
import SocketBuffers
import SocketTestSupport
import Testing

@testable import SocketTLS

/// Settings with pre-shared keys, and their errors.
@Suite struct PreSharedKeySettingsTests {
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

    @Test func lengthsThatCannotBeUsedAreErrors() throws {
        let key = PreSharedKeyFixture.bytes
        for (identity, key, words) in [
            (0, key, "the identity must be 1 to 8,192 bytes long, but is 0"),
            (8193, key, "the identity must be 1 to 8,192 bytes long, but is 8193"),
            (1, [], "the key must be 16 to 512 bytes long, but is 0"),
            (1, Array(key.prefix(15)), "the key must be 16 to 512 bytes long, but is 15"),
            (1, [UInt8](repeating: 1, count: 513), "the key must be 16 to 512 bytes long, but is 513"),
        ] {
            let message = refusal { _ = try TLSPreSharedKey(identity: [UInt8](repeating: 1, count: identity), key: key) }
            #expect(message?.contains(words) == true, "\(message ?? "")")
        }
        _ = try TLSPreSharedKey(identity: [1], key: [UInt8](repeating: 1, count: 16))
        _ = try TLSPreSharedKey(identity: [UInt8](repeating: 1, count: 8192), key: [UInt8](repeating: 1, count: 512))
    }

    @Test func keysAreEqualByTheirParts() throws {
        let key = try PreSharedKeyFixture.key()
        #expect(try key == PreSharedKeyFixture.key() && key.hashValue == PreSharedKeyFixture.key().hashValue)
        #expect(try key != PreSharedKeyFixture.key("bob"))
        #expect(try key != PreSharedKeyFixture.key("alice", PreSharedKeyFixture.otherBytes))
        #expect(try key != PreSharedKeyFixture.key("alice", Array(PreSharedKeyFixture.bytes.dropLast())))
        #expect(try key != PreSharedKeyFixture.key("alice", PreSharedKeyFixture.bytes, .sha384))
        let function = TLSPreSharedKeys { _ in nil }
        #expect(function == function && function != TLSPreSharedKeys { _ in nil })
        #expect(!"\(key) \(TLSPreSharedKeys(key))".contains("0123456789abcdef"))
    }

    @Test func aListIsConsistent() throws {
        let key = try PreSharedKeyFixture.key()
        #expect(refusal { _ = try TLSPreSharedKeys([]) }?.contains("the list is empty") == true)
        let twice = refusal { _ = try TLSPreSharedKeys([key, try PreSharedKeyFixture.key()]) }
        #expect(twice?.contains("two keys have the same identity: \"alice\"") == true)
        let long = try PreSharedKeyFixture.key("bob", PreSharedKeyFixture.bytes, .sha384)
        #expect(refusal { _ = try TLSPreSharedKeys([key, long]) }?.contains("some use SHA-384") == true)
    }

    private func complaint(_ settings: TLSSettingValues) -> String? {
        do {
            _ = try TLSContext.context(for: settings)
            return nil
        } catch {
            return error.code == .invalidSettings ? error.message : "\(error)"
        }
    }

    @Test func contradictionsAreErrors() throws {
        let fixture = try PreSharedKeyFixture()
        func expectError(_ base: TLSSettingValues, _ part: String, _ change: (inout TLSSettingValues) throws -> Void) rethrows {
            var settings = base
            try change(&settings)
            #expect(complaint(settings)?.contains(part) == true, "\(complaint(settings) ?? "no error")")
        }
        #expect(complaint(fixture.client.values) == nil && complaint(fixture.server.values) == nil)
        expectError(fixture.client.values, "set it to .none") { $0.resumption = .store(TLSInMemorySessionStore()) }
        expectError(fixture.client.values, "SHA256") { $0.policy.cipherSuites = ["TLS_AES_256_GCM_SHA384"] }
        expectError(fixture.server.values, "identity is nil") { $0.preSharedKeys?.use = .preferred }
        for base in [fixture.client.values, fixture.server.values] {
            for identity in [[UInt8](repeating: 1, count: 129), [1, 0, 1]] {
                try expectError(base, "TLS 1.2") {
                    $0.minimumVersion = .tls12
                    $0.preSharedKeys = TLSPreSharedKeys(try TLSPreSharedKey(identity: identity, key: PreSharedKeyFixture.bytes))
                }
            }
            try expectError(base, "SHA-384") {
                $0.minimumVersion = .tls12
                $0.preSharedKeys = TLSPreSharedKeys(try PreSharedKeyFixture.key("a", PreSharedKeyFixture.bytes, .sha384))
            }
        }
    }

    /// The policy may allow only TLS 1.3, in which identities may be longer and other hashes are allowed.
    @Test func aPolicyOfTLS13AllowsWhatTLS12DoesNot() throws {
        let fixture = try PreSharedKeyFixture()
        for base in [fixture.client.values, fixture.server.values] {
            var settings = base
            settings.minimumVersion = .tls12
            settings.preSharedKeys = TLSPreSharedKeys(try PreSharedKeyFixture.key("a", PreSharedKeyFixture.bytes, .sha384))
            #expect(complaint(settings)?.contains("SHA-384") == true)
            settings.policy.minimumVersion = .tls13
            #expect(complaint(settings) == nil)
        }
    }

    /// Settings with different keys never share a context.
    @Test func contextsDifferByTheirKeys() throws {
        let cache = ContextCache(limit: 64)
        let fixture = try PreSharedKeyFixture()
        for base in [fixture.client.values, fixture.server.values] {
            let first = try TLSContext.context(for: base, in: cache)
            var same = base
            same.preSharedKeys = TLSPreSharedKeys(try PreSharedKeyFixture.key())
            #expect(try TLSContext.context(for: same, in: cache) === first)
            let others = [
                try PreSharedKeyFixture.key("bob"), try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.otherBytes),
                try PreSharedKeyFixture.key("alice", PreSharedKeyFixture.bytes, .sha384),
            ]
            for key in others {
                same.preSharedKeys = TLSPreSharedKeys(key)
                #expect(try TLSContext.context(for: same, in: cache) !== first)
            }
            same = base
            same.identity = try Fixture().server.identity
            same.preSharedKeys?.use = .preferred
            #expect(try TLSContext.context(for: same, in: cache) !== first)
        }
    }

    @Test func aClientStoresNoSessionOfAKey() throws {
        let fixture = try PreSharedKeyFixture()
        let context = try TLSContext.context(for: fixture.client)
        #expect(context.resumptionScope == nil && context.options & COpenSSL_noTicketOption() != 0)
    }

    // MARK: - The trust gate

    @Test func onlyAKeyOpensAGateThatRequiresOne() {
        for mode in [TLSTrustEvaluation.builtIn, .delegate, .manual] {
            var gate = TrustGate(mode, requiredKey: .preSharedKey)
            #expect(!gate.admits(isOptional: true) && gate.admissionError.code == .preSharedKeyMissing)
            #expect(gate.judge(PeerTrust(chain: [])) == .refuse)
            gate.accept(KeyProof(kind: .preSharedKey, value: [1]))
            #expect(!gate.admits(isOptional: true) && gate.refusal == .byKey(KeyProof.Kind.preSharedKey.missing))
            #expect(gate.acceptedKey == nil)
            var open = TrustGate(mode, requiredKey: .preSharedKey)
            open.accept(KeyProof(kind: .preSharedKey, value: [1]))
            #expect(open.admits(isOptional: false) && open.accepted(.preSharedKey) == [1] && open.takeQuestion() == nil)
        }
    }

    @Test func aKeyDoesNotOverruleAJudgement() {
        var asking = TrustGate(.manual)
        _ = asking.judge(PeerTrust(chain: []))
        asking.accept(KeyProof(kind: .preSharedKey, value: [1]))
        #expect(!asking.admits(isOptional: true) && asking.acceptedKey == nil)
        var refused = TrustGate(.builtIn)
        _ = refused.judge(PeerTrust(chain: [], verdict: .untrusted(reason: "no", code: 20, depth: 0)))
        refused.accept(KeyProof(kind: .preSharedKey, value: [1]))
        #expect(!refused.admits(isOptional: true))
    }

    // MARK: - Untrusted input

    @Test func theListOfAClientIsReadWithoutTrust() {
        func withLength(_ bytes: [UInt8]) -> [UInt8] { [UInt8(bytes.count >> 8), UInt8(bytes.count & 0xFF)] + bytes }
        func list(_ identities: [[UInt8]]) -> [UInt8] {
            var body: [UInt8] = []
            for identity in identities { body += withLength(identity) + [0, 0, 0, 0] }
            let binder = [UInt8](repeating: 9, count: 33)
            return withLength(body) + withLength(binder)
        }
        let three: [[UInt8]] = [[1], [2, 2], [UInt8](repeating: 3, count: 300)]
        #expect(PreSharedKeyList(list(three)).identities == three)
        #expect(PreSharedKeyList(list((0..<200).map { [$0] })).identities == (0..<8).map { [$0] })
        #expect(PreSharedKeyList(list([[], [1]])).identities.isEmpty)
        for count in 0..<list(three).count {
            let cut = PreSharedKeyList(list(three).prefix(count)).identities
            #expect(three.starts(with: cut))
        }
        // Each byte of the list is changed, so that each length is wrong in each way.
        for place in list(three).indices {
            for value in [0, 1, 0x7F, 0xFF] as [UInt8] {
                var changed = list(three)
                changed[place] = value
                #expect(PreSharedKeyList(changed).identities.allSatisfy { (1...300).contains($0.count) })
            }
        }
        let seed = Seeds.first("KEY_LIST_SEED")
        var generator = SeededGenerator(seed: seed)
        for _ in 0..<2000 {
            let noise = (0..<Int.random(in: 0...64, using: &generator)).map { _ in UInt8(truncatingIfNeeded: generator.next()) }
            #expect(PreSharedKeyList(noise).identities.allSatisfy { (1...64).contains($0.count) }, "KEY_LIST_SEED=\(seed)")
        }
    }
}
