import COpenSSL
import Foundation
import SocketTLS

/// Generates a chain from a seed: a valid chain with a few modifications.
struct ChainGenerator {
    private let seed: UInt64
    private var numbers: SeededNumbers
    private var changes: [String] = []
    /// The leaf first, the root last.
    private var plans: [CertificatePlan] = []

    init(seed: UInt64) {
        self.seed = seed
        numbers = SeededNumbers(seed: seed)
    }

    mutating func make() throws -> ChainCase {
        planGoodChain()
        // A third of the chains follow the rules.
        let count = numbers.one(of: [0, 0, 1, 1, 1, 2, 3])
        for _ in 0..<count { change() }
        if numbers.happens(25) { constrain() }
        let made = try makeCertificates()
        var result = ChainCase(seed: seed, changes: [], shown: Array(made.dropLast()), roots: made.suffix(1))
        try addRelatives(of: made, to: &result)
        rearrange(&result)
        choose(&result)
        result.changes = changes
        return result
    }

    // MARK: - The valid chain

    private mutating func planGoodChain() {
        let intermediates = numbers.one(of: [0, 1, 1, 1, 2, 2, 3, 4])
        var keys = PooledKey.curves256
        keys.shuffle(using: &numbers)
        let names = numbers.one(of: Self.goodNames)
        plans = [.server(names, numbers.happens(15) ? numbers.one(of: PooledKey.others) : keys.removeLast())]
        for number in 0..<intermediates { plans.append(.authority("Intermediate \(number)", keys.removeLast())) }
        plans.append(.authority("Root", keys.removeLast()))
        for index in plans.indices.dropFirst() where numbers.happens(15) {
            plans[index].key = numbers.one(of: PooledKey.others + PooledKey.ofAuthorities)
        }
    }

    private static let goodNames = [
        ["DNS:mail.example.org"], ["DNS:mail.example.org"], ["DNS:*.example.org"], ["DNS:*.example.org"],
        ["DNS:example.net", "DNS:mail.example.org", "IP:127.0.0.1"], ["DNS:MAIL.Example.org"], ["DNS:*.EXAMPLE.org"],
        ["DNS:mail.example.org", "DNS:*.mail.example.org", "DNS:*.net"], ["DNS:mail.example.org", "email:ann@example.org"],
        ["IP:127.0.0.1", "DNS:mail.example.org", "URI:https://www.example.org/"],
    ]

    private static let otherNames = [
        [], ["DNS:www.example.org"], ["DNS:*.org"], ["DNS:*"], ["DNS:m*.example.org"], ["DNS:*.*.org"], ["DNS:*il.example.org"],
        ["IP:127.0.0.1"], ["IP:::1"], ["email:ann@mail.example.org"], ["DNS:mail.example.org."], ["DNS:.example.org"],
        ["DNS:127.0.0.1"], ["DNS:example.org"], ["DNS:mail.example.org.example.net"], ["RID:1.2.3.4"], ["DNS:mail..example.org"],
        ["email:ann@example.org", "DNS:*.example.org"], ["email:a b", "DNS:mail.example.org"],
    ]

    // MARK: - Modifications

    private mutating func note(_ change: String, _ index: Int) {
        changes.append("\(index): \(change)")
    }

    private mutating func change() {
        let index = Int.random(in: plans.indices, using: &numbers)
        let value: String?
        switch Int.random(in: 0..<19, using: &numbers) {
        case 0:
            value = numbers.one(of: Self.basicConstraints)
            plans[index].basicConstraints = value
        case 1:
            value = numbers.one(of: Self.keyUsages)
            plans[index].keyUsage = value
        case 2:
            value = numbers.one(of: Self.extendedKeyUsages)
            plans[index].extendedKeyUsage = value
        case 3:
            value = "key identifiers"
            changeIdentifiers(index)
        case 4, 5:
            plans[index].days = numbers.one(of: [-60 ..< -20, 10..<60, -20..<20, -400 ..< -1, -30..<5000])
            value = "days \(plans[index].days)"
        case 6:
            value = "names"
            plans[0].alternativeNames = numbers.one(of: Self.otherNames)
            if numbers.happens(20) { plans[0].isAlternativeNameCritical = !plans[0].alternativeNames.isEmpty }
        default: value = changeMore(index)
        }
        note(value ?? "nothing", index)
    }

    private mutating func changeMore(_ index: Int) -> String {
        switch Int.random(in: 0..<12, using: &numbers) {
        case 0: plans[index].damage = numbers.one(of: CertificatePlan.Damage.allCases)
        case 1: plans[index].signingKey = numbers.one(of: PooledKey.curves256)
        case 2: plans[index].issuerName = numbers.one(of: ["Root", "Stranger", "Intermediate 0", plans[index].subject ?? ""])
        case 3: plans[index].subject = numbers.one(of: [nil, "Root", "Intermediate 0", "mail.example.org"])
        case 4: plans[index].key = numbers.one(of: PooledKey.weak)
        case 5: plans[index].digest = numbers.one(of: [.sha1, .sha384])
        case 6: plans[index].version = numbers.one(of: [X509_VERSION_1, X509_VERSION_2])
        case 7: plans[index] = withoutExtensions(plans[index])
        case 8:
            let value = numbers.one(of: [[0x05, 0x00], [0x30, 0x00], []] as [[UInt8]])
            plans[index].raw.append(("1.2.3.4.5", value, numbers.happens(60)))
        case 9: plans[index].raw.append((numbers.one(of: Self.knownExtensions), [0x05, 0x00], numbers.happens(50)))
        case 10: plans[index].further.append(numbers.one(of: Self.additions))
        default:
            // A leaf that is a CA.
            plans[0].basicConstraints = "critical,CA:TRUE"
            plans[0].keyUsage = "critical,digitalSignature,keyCertSign"
        }
        return "\(plans[index].damage.map { "\($0) damaged" } ?? "something"), version \(plans[index].version)"
    }

    private static let basicConstraints = [
        nil, "CA:TRUE", "critical,CA:FALSE", "CA:FALSE", "critical,CA:TRUE,pathlen:0", "critical,CA:TRUE,pathlen:1",
        "critical,CA:TRUE,pathlen:5", "CA:FALSE,pathlen:0", "critical,CA:TRUE",
    ]
    private static let keyUsages = [
        nil, "critical,digitalSignature", "keyCertSign", "critical,cRLSign", "critical,keyAgreement", "critical,keyEncipherment",
        "critical,digitalSignature,keyCertSign,cRLSign", "digitalSignature,keyEncipherment", "critical,nonRepudiation",
    ]
    private static let extendedKeyUsages = [
        nil, "serverAuth", "clientAuth", "serverAuth,clientAuth", "critical,serverAuth", "anyExtendedKeyUsage", "codeSigning",
        "critical,1.2.3.4", "OCSPSigning", "critical,timeStamping",
    ]
    /// Subject and issuer alternative names, key usage, basic constraints, policies, and their constraints.
    private static let knownExtensions = [
        "2.5.29.17", "2.5.29.18", "2.5.29.15", "2.5.29.19", "2.5.29.32", "2.5.29.36", "2.5.29.14",
    ]
    private static let additions: HandmadeCertificate.Extensions = [
        (NID_certificate_policies, "DER:3007300506032A0304"), (NID_certificate_policies, "critical,DER:3007300506032A0304"),
        (NID_policy_constraints, "critical,requireExplicitPolicy:0"), (NID_inhibit_any_policy, "critical,0"),
        (NID_basic_constraints, "CA:TRUE"), (NID_subject_alt_name, "DNS:mail.example.org"), (NID_key_usage, "keyCertSign"),
        (NID_netscape_cert_type, "client"), (NID_netscape_cert_type, "server"), (NID_netscape_cert_type, "sslCA"),
        (NID_crl_distribution_points, "URI:http://crl.example.org/"), (NID_tlsfeature, "status_request"),
    ]

    private mutating func changeIdentifiers(_ index: Int) {
        switch Int.random(in: 0..<5, using: &numbers) {
        case 0: plans[index].subjectKeyIdentifier = nil
        case 1: plans[index].authorityKeyIdentifier = nil
        case 2: plans[index].subjectKeyIdentifier = "00112233445566778899"
        case 3: plans[index].authorityKeyIdentifier = "keyid,issuer:always"
        default:
            plans[index].authorityKeyIdentifier = nil
            plans[index].raw.append(("2.5.29.35", [0x30, 0x06, 0x80, 0x04, 1, 2, 3, 4], false))
        }
    }

    private func withoutExtensions(_ plan: CertificatePlan) -> CertificatePlan {
        var bare = CertificatePlan(subject: plan.subject, key: plan.key)
        (bare.subjectKeyIdentifier, bare.authorityKeyIdentifier, bare.version) = (nil, nil, X509_VERSION_1)
        bare.days = plan.days
        return bare
    }

    /// Adds name constraints to a CA. On the leaf they have no meaning.
    private mutating func constrain() {
        let index = numbers.happens(5) ? 0 : Int.random(in: 1..<plans.count, using: &numbers)
        let sample = numbers.one(of: numbers.happens(30) ? ConstraintSample.reached : ConstraintSample.all)
        plans[index].constraints = sample
        note("constraints \(sample.text ?? "\(sample.bytes ?? [])")", index)
        if !sample.reachedBy.isEmpty, numbers.happens(50) { plans[0].alternativeNames = ["DNS:*.example.org"] }
    }

    private func makeCertificates() throws -> [PlannedCertificate] {
        var made: [PlannedCertificate] = []
        for plan in plans.reversed() { made.insert(try plan.make(signedBy: made.first), at: 0) }
        return made
    }

    // MARK: - Other certificates

    /// Adds certificates that share a name or a key with one in the chain.
    private mutating func addRelatives(of made: [PlannedCertificate], to result: inout ChainCase) throws {
        guard numbers.happens(35) else { return }
        let stranger = try CertificatePlan.authority(
            numbers.one(of: ["Second Root", "Root"]), numbers.one(of: PooledKey.curves256)
        )
        .make()
        let index = Int.random(in: 1..<made.count, using: &numbers)
        var relative = made[index].plan
        let issuer = index + 1 < made.count ? made[index + 1] : nil
        switch Int.random(in: 0..<5, using: &numbers) {
        case 0:
            note("cross-signed", index)
            result.shown.append(try relative.make(signedBy: stranger))
            if numbers.happens(60) { result.roots.append(stranger) }
        case 1:
            note("a namesake with another key", index)
            relative.key = numbers.one(of: PooledKey.curves256)
            if numbers.happens(50) { (relative.subjectKeyIdentifier, relative.authorityKeyIdentifier) = (nil, nil) }
            result.shown.append(try relative.make(signedBy: issuer))
        case 2:
            note("renewed", index)
            (relative.days, relative.constraints) = (numbers.one(of: [-60 ..< -1, -10..<90]), nil)
            let renewed = try relative.make(signedBy: issuer)
            if issuer == nil { result.roots.append(renewed) } else { result.shown.append(renewed) }
        case 3:
            note("a root that is a namesake", made.count - 1)
            result.roots.append(try CertificatePlan.authority("Root", numbers.one(of: PooledKey.curves256)).make())
        default:
            note("only a stranger is a root", made.count - 1)
            result.roots = [stranger]
        }
        if numbers.happens(50) { result.roots.reverse() }
    }

    /// Changes the order and the number of sent and trusted certificates. The leaf stays first.
    private mutating func rearrange(_ result: inout ChainCase) {
        let leaf = result.shown.removeFirst()
        if numbers.happens(15), !result.shown.isEmpty {
            changes.append("one is not shown")
            let missing = result.shown.remove(at: Int.random(in: result.shown.indices, using: &numbers))
            if numbers.happens(40) { result.roots.append(missing) }
        }
        if numbers.happens(15) { result.shown.append(contentsOf: result.roots) }
        if numbers.happens(15), let repeated = result.shown.randomElement(using: &numbers) {
            result.shown.append(repeated)
            if numbers.happens(20) { result.shown.append(leaf) }
        }
        if numbers.happens(30) { result.shown.shuffle(using: &numbers) }
        if numbers.happens(6) {
            changes.append("the leaf is the only root")
            result.roots = [leaf]
        } else if numbers.happens(6) {
            changes.append("everything shown is a root")
            result.roots += numbers.happens(50) ? [leaf] + result.shown : result.shown
        }
        result.shown = Array(([leaf] + result.shown).prefix(10))
    }

    // MARK: - The client

    private mutating func choose(_ result: inout ChainCase) {
        result.isStrict = numbers.happens(30)
        result.acceptsPartialChains = numbers.happens(25)
        if numbers.happens(20) {
            let days = numbers.one(of: [-100, -25, -5, 0, 5, 25, 100])
            result.verificationTime = Int(Date().timeIntervalSince1970) + days * 86_400
        }
        if numbers.happens(12) {
            result.serverName = numbers.one(of: [
                "secret.example.org", "127.0.0.1", "::1", "MAIL.example.org", "a.mail.example.org", "org",
            ])
        }
        result.verifiesHostName = !numbers.happens(10)
        if numbers.happens(12) { result.limit = max(result.shown.count, numbers.one(of: [1, 2, 3])) }
        result.version = numbers.one(of: [.tls12, .tls13])
        result.evaluation = numbers.one(of: [.builtIn, .delegate, .manual, .manual])
        // Such a leaf fails elsewhere if its chain is valid.
        if result.leafIsNotForHandshakes { (result.version, result.evaluation) = (.tls13, .manual) }
    }
}
