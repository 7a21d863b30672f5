import AsyncSocketsTesting
import Testing

@testable import SocketTLS

/// Each property of a security domain affects its digest, and so does each kind of proof. The property names
/// are read from the type, so a property without a test case fails the tests.
@Suite struct DomainDigestTests {
    private let identity: TLSIdentity

    init() throws {
        identity = try TLSIdentity.selfSigned(.ed25519)
    }

    private func base(_ side: SecurityDomain.Side) -> SecurityDomain {
        side == .server
            ? SecurityDomain(TLSSettings.server(identity: identity).values)
            : SecurityDomain(TLSSettings.client(serverName: "a").values)
    }

    /// Returns the base with some properties replaced.
    private func domain(
        _ base: SecurityDomain, side: SecurityDomain.Side? = nil, identities: [TLSIdentity]? = nil, roots: TrustedRoots? = nil,
        rules: TrustRules? = nil, stapling: TLSOCSPStapling? = nil, policy: TLSPolicy? = nil,
        minimumVersion: TLSProtocolVersion? = nil,
        maximumVersion: TLSProtocolVersion?? = nil, applicationProtocols: [String]? = nil,
        clientCertificates: TLSCertificateRequest? = nil, proof: TLSProof? = nil, certificateType: TLSCertificateType? = nil,
        maximumCertificateChainBytes: Int? = nil, maximumCertificateChainLength: Int? = nil, keyLogFile: String?? = nil
    ) -> SecurityDomain {
        SecurityDomain(
            side: side ?? base.side, identities: identities ?? base.identities, roots: roots ?? base.roots,
            rules: rules ?? base.rules, stapling: stapling ?? base.stapling, policy: policy ?? base.policy,
            minimumVersion: minimumVersion ?? base.minimumVersion,
            maximumVersion: maximumVersion ?? base.maximumVersion,
            applicationProtocols: applicationProtocols ?? base.applicationProtocols,
            clientCertificates: clientCertificates ?? base.clientCertificates, proof: proof ?? base.proof,
            certificateType: certificateType ?? base.certificateType,
            maximumCertificateChainBytes: maximumCertificateChainBytes ?? base.maximumCertificateChainBytes,
            maximumCertificateChainLength: maximumCertificateChainLength ?? base.maximumCertificateChainLength,
            keyLogFile: keyLogFile ?? base.keyLogFile)
    }

    /// Returns, for each property, domains that differ from the base and from each other only in this
    /// property.
    private func changes(of base: SecurityDomain) throws -> [String: [SecurityDomain]] {
        let rules = { (change: (inout TLSCertificateRules) -> Void) in
            var settings = TLSSettings.client(serverName: "a").values
            change(&settings.rules)
            return TrustRules(settings)
        }
        return [
            "side": [domain(base, side: base.isServer ? .client : .server)],
            "identities": [
                domain(base, identities: [try .selfSigned(.ed25519)]),
                domain(base, identities: base.identities + [try .selfSigned(.ed25519)]),
            ],
            "roots": [domain(base, roots: TrustedRoots(.certificates(identity.certificateChain)))],
            "rules": [
                domain(base, rules: rules { $0.isStrict = true }), domain(base, rules: rules { $0.acceptsPartialChains = true }),
            ],
            "stapling": [domain(base, stapling: .requested), domain(base, stapling: .required)],
            "policy": [domain(base, policy: .modern), domain(base, policy: .compatible)],
            "minimumVersion": [domain(base, minimumVersion: .tls13)],
            "maximumVersion": [domain(base, maximumVersion: .tls12), domain(base, maximumVersion: .tls13)],
            "applicationProtocols": [
                domain(base, applicationProtocols: ["h2"]), domain(base, applicationProtocols: ["h", "2"]),
                domain(base, applicationProtocols: ["2", "h"]),
            ],
            "clientCertificates": [.optional, .required, .onRequest].map { domain(base, clientCertificates: $0) },
            "certificateType": [domain(base, certificateType: .rawPublicKey)],
            "proof": try proofs().map { domain(base, proof: $0) },
            "maximumCertificateChainBytes": [domain(base, maximumCertificateChainBytes: 2048)],
            "maximumCertificateChainLength": [domain(base, maximumCertificateChainLength: 2)],
            "keyLogFile": [domain(base, keyLogFile: "/a")],
        ]
    }

    /// Returns all proofs except certificates. Proofs with raw public keys differ in one property each.
    private func proofs() throws -> [TLSProof] {
        let digests: [Set<[UInt8]>] = [[[UInt8](repeating: 1, count: 32)], [[UInt8](repeating: 2, count: 32)]]
        var proofs = digests.map { TLSProof.rawPublicKeys(TLSRawPublicKeys($0, .required)) }
        proofs.append(.rawPublicKeys(TLSRawPublicKeys(digests[0], .preferred)))
        let key = try TLSPreSharedKey(identity: "alice", key: [UInt8](repeating: 1, count: 32))
        var keys = TLSPreSharedKeys(key)
        for use in [KeyUse.required, .preferred] {
            keys.use = use
            proofs.append(.preSharedKeys(keys))
        }
        return proofs
    }

    /// Returns the properties of `value` and their values.
    private func properties(_ value: Any) -> [(name: String, value: AnyHashable?)] {
        Mirror(reflecting: value).children.map { ($0.label ?? "", $0.value as? AnyHashable) }
    }

    /// Returns the digests by file stamps and by file contents. Without files they are the same.
    private func digests(_ domain: SecurityDomain) throws -> Set<[UInt8]> {
        [domain.clientScope.digest, try domain.serverScope().digest]
    }

    /// A server does not resume sessions of a version that it does not accept, so `maximumVersion` may
    /// differ.
    private static let leftOutOnServers: Set<String> = ["maximumVersion"]

    @Test(arguments: [SecurityDomain.Side.client, .server]) func eachPropertyCounts(side: SecurityDomain.Side) throws {
        let base = base(side)
        let changes = try changes(of: base)
        let names = properties(base).map(\.name)
        #expect(Set(names) == Set(changes.keys))
        var known: [[UInt8]: String] = [:]
        for digest in try digests(base) { known[digest] = "base" }
        for name in names {
            for changed in try #require(changes[name]) {
                let differing = zip(properties(base), properties(changed)).filter { $0.value != $1.value }.map(\.0.name)
                #expect(differing == [name])
                for digest in try digests(changed) {
                    if side == .server, Self.leftOutOnServers.contains(name) {
                        #expect(known[digest] == "base", "\(name)")
                    } else {
                        #expect(known.updateValue(name, forKey: digest) == nil, "\(name)")
                    }
                }
            }
        }
    }

    @Test func eachPropertyOfAnExpectedPeerCounts() throws {
        func peer(
            _ name: String = "a", verifies: Bool = true, _ evaluation: TLSTrustEvaluation = .builtIn,
            _ proof: TLSProof = .certificates
        ) -> ExpectedPeer {
            ExpectedPeer(serverName: name, verifiesHostName: verifies, trustEvaluation: evaluation, serverProof: proof)
        }
        let base = peer()
        let (first, second) = (try TLSARecord("3 1 1 00"), try TLSARecord("3 1 1 01"))
        var others = TLSDANE([first], policy: .required)
        others.usesPKIXRecords = false
        var keys = TLSDANE([first], policy: .required)
        keys.acceptsRawPublicKeys = true
        let rules = [
            TLSDANE([], policy: .required), TLSDANE([first], policy: .required), TLSDANE([second], policy: .required),
            TLSDANE([first, second], policy: .required), TLSDANE([first], policy: .certificates),
            TLSDANE([first], policy: .opportunistic), TLSDANE([first], policy: .required, additionalNames: ["b"]), others, keys,
        ]
        let changes = [
            "serverName": [peer("b")], "verifiesHostName": [peer(verifies: false)],
            "trustEvaluation": [TLSTrustEvaluation.delegate, .manual].map { peer("a", $0) },
            "serverProof": rules.map { peer("a", .builtIn, .dane($0)) },
        ]
        #expect(Set(properties(base).map(\.name)) == Set(changes.keys))
        let context = ResumptionScope(digest: [1, 2, 3])
        let scopes = changes.values.joined().map { $0.scope(in: context) } + [base.scope(in: context)]
        #expect(Set(scopes).count == scopes.count)
        #expect(base.scope(in: ResumptionScope(digest: [1, 2, 4])) != base.scope(in: context))
    }
}
