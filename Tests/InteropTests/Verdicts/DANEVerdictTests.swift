import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Compares our verdicts on TLSA records with those of `openssl s_client -dane_tlsa_rrdata`, for chains that
/// certtool has made. Both connect to the same server, and agree on each verdict and on its reason.
@Suite(.timeLimit(.patient), .serialized) struct DANEVerdictTests {
    private let folder: TemporaryFolder

    init() throws {
        folder = try TemporaryFolder()
    }

    /// The reason for a rejection: OpenSSL's number, or that there is no usable record.
    private enum Verdict: Equatable {
        case accepted
        case rejected(Int32)
        case unusable
    }

    @Test func thereAreEnoughCombinations() throws {
        #expect(DANEChain.all.count * DANERecords.all.count >= 300)
    }

    @Test(arguments: DANEChain.all) func opensslAgrees(about chain: DANEChain) async throws {
        let certificates = try await chain.certificates()
        let files = (
            leaf: try folder.write(certificates.leaf.pem, to: "leaf.pem"),
            chain: try folder.write(certificates.sent.map(\.pem).joined(), to: "chain.pem"),
            root: try folder.write(certificates.root.pem, to: "root.pem")
        )
        let port = try Loopback.freePort()
        let server = try Program([
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", files.leaf, "-cert_chain", files.chain, "-key",
            try await CerttoolAuthority.shared.key(chain.leaf.key), "-quiet",
        ])
        defer { server.stop() }
        try await Loopback.connect(to: port, of: server).0.disconnect()
        var accepted = 0
        for records in DANERecords.all {
            let texts = try records.make(certificates)
            let theirs = try await opensslsVerdict(texts, files.root, port)
            let ours = try await ourVerdict(texts, certificates.root, port)
            #expect(ours == theirs.verdict, "\(records.description), \(texts):\n\(theirs.printed)")
            if ours == .accepted { accepted += 1 }
            // OpenSSL must not agree only because the records are wrong.
            if let expected = chain.expectations[records.description] {
                #expect((ours == .accepted) == expected, "\(records.description)")
            }
        }
        // DANE-EE records match each leaf, whatever is wrong with it.
        #expect((10..<DANERecords.all.count).contains(accepted))
    }

    private func opensslsVerdict(
        _ records: [String], _ roots: String, _ port: UInt16
    ) async throws -> (verdict: Verdict, printed: String) {
        let program = try Program(
            [
                "openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-brief", "-verify_return_error", "-CAfile", roots,
                "-no-CApath", "-no-CAstore", "-dane_tlsa_domain", DANEChain.host, "-dane_ee_no_namechecks",
            ] + records.flatMap { ["-dane_tlsa_rrdata", $0] }, input: "")
        defer { program.stop() }
        let status = await program.exitStatus()
        let printed = program.printed
        if status == 0, printed.contains("Verification: OK"), printed.contains("DANE TLSA") { return (.accepted, printed) }
        if printed.contains("Failed to import any TLSA records") { return (.unusable, printed) }
        let number = printed.firstRange(of: "verify error:num=").map { printed[$0.upperBound...].prefix { $0.isNumber } }
        return (.rejected(try #require(number.flatMap { Int32($0) }, "\(printed)")), printed)
    }

    private func ourVerdict(_ records: [String], _ root: TLSCertificate, _ port: UInt16) async throws -> Verdict {
        var settings = TLSSettings.client(serverName: DANEChain.host)
        settings.trustRoots = .certificates([root])
        settings.resumption = .none
        settings.proof = .dane(TLSDANE(try records.map { try TLSARecord($0) }, policy: .required))
        let socket = AsyncSocket()
        defer { socket.disconnect() }
        do {
            try await socket.connect(to: "127.0.0.1", port: port, tls: settings)
            guard case .matched = socket.tlsSession?.dane else { throw Unexpected(description: "no record") }
            return .accepted
        } catch let error as AsyncSocketError {
            if error.tls?.code == .noUsableTLSARecord { return .unusable }
            #expect(error.fault == .certificate, "\(error)")
            return .rejected(try #require(error.tls?.verifyCode, "\(error)"))
        }
    }
}

/// A chain that a server sends.
struct DANEChain: Sendable, CustomTestStringConvertible {
    static let host = "mail.example.org"

    /// The certificates to which records refer.
    struct Certificates {
        let leaf: TLSCertificate
        /// The issuer of the leaf, sent or not.
        let issuer: TLSCertificate
        let root: TLSCertificate
        /// Another issuer of the issuer's key.
        let cross: TLSCertificate
        let stranger: TLSCertificate
        let sent: [TLSCertificate]
    }

    enum Part: Sendable { case leaf, issuer, root, cross, stranger }

    let testDescription: String
    var leaf = CertificatePlan.server
    var issuer = CertificatePlan.authority("Intermediate", .middle)
    var sent: [Part] = [.leaf, .issuer]
    /// Whether the server matches certain records.
    var expectations: [String: Bool] = [:]

    private static let root = CertificatePlan.authority("Root", .root)
    private static let stranger = CertificatePlan.authority("Stranger", .stranger)

    init(_ description: String, _ expectations: [String: Bool] = [:], _ change: (inout DANEChain) -> Void = { _ in }) {
        testDescription = description
        self.expectations = expectations
        change(&self)
    }

    static let all = [
        DANEChain(
            "a valid chain",
            ["3 1 1 leaf": true, "2 0 1 issuer": true, "2 0 1 root": false, "1 1 1 leaf": true]
                // The server need not send the authority of a record that contains it.
                .merging(["2 0 0 root": true, "2 1 0 root": true, "3 1 0 large": false]) { $1 }),
        DANEChain("with the root", ["2 0 1 root": true, "0 1 1 root": true]) { $0.sent = [.leaf, .issuer, .root] },
        DANEChain("expired", ["3 1 1 leaf": true, "2 0 1 issuer": false, "1 1 1 leaf": false]) { $0.leaf.expire() },
        DANEChain("not valid yet", ["3 0 1 leaf": true, "2 0 1 issuer": false]) { $0.leaf.beginLater() },
        DANEChain("for another name", ["3 1 1 leaf": true, "2 0 1 issuer": false, "0 0 1 issuer": false]) {
            $0.leaf.setNames("dns_name = \"www.example.org\"")
        },
        DANEChain("expired and for another name", ["3 1 1 leaf": true, "2 1 1 issuer": false]) {
            $0.leaf.expire()
            $0.leaf.setNames("dns_name = \"www.example.org\"")
        },
        DANEChain("for a wildcard", ["2 0 1 issuer": true]) { $0.leaf.setNames("dns_name = \"*.example.org\"") },
        DANEChain("without the issuer", ["2 0 1 issuer": false, "2 0 0 issuer": true, "3 1 1 leaf": true]) {
            $0.sent = [.leaf]
        },
        // The dates of a trust anchor are not part of the path (RFC 5280, 6.1).
        DANEChain("with an expired issuer", ["2 0 1 issuer": true, "0 0 1 issuer": false, "3 1 1 leaf": true]) {
            $0.issuer.expire()
        },
        DANEChain("self-signed", ["3 1 1 leaf": true, "1 1 1 leaf": false, "2 1 1 leaf": false]) {
            $0.leaf.isSelfSigned = true
            $0.sent = [.leaf]
        },
        DANEChain("cross-signed", ["2 1 1 issuer": true, "2 0 1 issuer": false, "2 0 1 cross": true]) {
            $0.sent = [.leaf, .cross]
        },
        DANEChain("cross-signed, with both issuers", ["2 1 1 issuer": true]) { $0.sent = [.leaf, .cross, .issuer, .stranger] },
        DANEChain("out of order", ["2 0 1 root": true]) { $0.sent = [.leaf, .root, .stranger, .issuer] },
        DANEChain("for clients", ["3 1 1 leaf": true, "2 0 1 issuer": false]) { $0.leaf = .client },
    ]

    func certificates() async throws -> Certificates {
        func certificate(_ plan: CertificatePlan, _ issuers: [CertificatePlan]) async throws -> TLSCertificate {
            try TLSCertificate(pem: try await CerttoolAuthority.shared.certificate(plan, below: issuers[...]))
        }
        let parts: [Part: TLSCertificate] = [
            .leaf: try await certificate(leaf, [issuer, Self.root]), .issuer: try await certificate(issuer, [Self.root]),
            .root: try await certificate(Self.root, []), .cross: try await certificate(issuer, [Self.stranger]),
            .stranger: try await certificate(Self.stranger, []),
        ]
        func part(_ part: Part) throws -> TLSCertificate { try #require(parts[part]) }
        return Certificates(
            leaf: try part(.leaf), issuer: try part(.issuer), root: try part(.root), cross: try part(.cross),
            stranger: try part(.stranger), sent: try sent.map(part))
    }
}

/// The records of a server, in presentation form.
struct DANERecords: Sendable {
    let description: String
    let make: @Sendable (DANEChain.Certificates) throws -> [String]

    private init(_ description: String, _ make: @escaping @Sendable (DANEChain.Certificates) throws -> [String]) {
        (self.description, self.make) = (description, make)
    }

    /// Records such as "3 1 1 leaf". Malformed ones are given in full.
    private init(_ names: String...) {
        self.init(names.joined(separator: ", ")) { certificates in try names.map { try Self.text($0, certificates) } }
    }

    private static func text(_ name: String, _ certificates: DANEChain.Certificates) throws -> String {
        let words = name.split(separator: " ")
        let certificate: TLSCertificate
        switch words[3] {
        case "leaf": certificate = certificates.leaf
        case "issuer": certificate = certificates.issuer
        case "root": certificate = certificates.root
        case "cross": certificate = certificates.cross
        case "stranger": certificate = certificates.stranger
        case "large": return "\(words[0]) \(words[1]) 0 \(largeKey)"
        default: return name
        }
        let numbers = words.prefix(3).compactMap { UInt8($0) }
        return try TLSARecord(
            for: certificate, usage: .init(rawValue: numbers[0]), selector: .init(rawValue: numbers[1]),
            matchingType: .init(rawValue: numbers[2])
        ).text
    }

    static let all =
        [
            // Each form of each usage.
            DANERecords("3 1 1 leaf"), DANERecords("3 1 2 leaf"), DANERecords("3 1 0 leaf"), DANERecords("3 0 1 leaf"),
            DANERecords("3 0 2 leaf"), DANERecords("3 0 0 leaf"), DANERecords("2 1 1 issuer"), DANERecords("2 1 2 issuer"),
            DANERecords("2 1 0 issuer"), DANERecords("2 0 1 issuer"), DANERecords("2 0 2 issuer"), DANERecords("2 0 0 issuer"),
            DANERecords("2 1 1 root"), DANERecords("2 1 0 root"), DANERecords("2 0 1 root"), DANERecords("2 0 0 root"),
            DANERecords("1 1 1 leaf"), DANERecords("1 0 2 leaf"), DANERecords("0 1 1 issuer"), DANERecords("0 0 1 issuer"),
            DANERecords("0 1 1 root"), DANERecords("0 0 0 root"), DANERecords("2 0 1 cross"), DANERecords("0 0 1 cross"),
            // The wrong certificate, or the wrong usage for it.
            DANERecords("3 1 1 stranger"), DANERecords("3 1 1 issuer"), DANERecords("2 1 1 leaf"), DANERecords("2 0 1 stranger"),
            DANERecords("1 1 1 stranger"), DANERecords("0 1 1 leaf"), DANERecords("3 1 0 large"),
            // Several records.
            DANERecords("3 1 1 stranger", "3 1 1 leaf"), DANERecords("3 1 1 stranger", "2 1 1 issuer"),
            DANERecords("3 1 2 stranger", "3 1 1 leaf"), DANERecords("3 0 2 stranger", "3 1 1 leaf"),
            DANERecords("2 0 1 root", "2 0 1 issuer", "3 0 1 stranger"), DANERecords("1 1 1 leaf", "2 1 1 stranger"),
            DANERecords("1 1 1 stranger", "2 1 1 issuer"), DANERecords("0 0 1 stranger", "0 0 1 root"),
        ] + malformed

    private static let malformed = [
        DANERecords("4 1 1 \(digits(32))"), DANERecords("3 2 1 \(digits(32))"), DANERecords("3 1 3 \(digits(32))"),
        DANERecords("3 1 1 \(digits(31))"), DANERecords("2 0 0 3003020101"), DANERecords("4 1 1 \(digits(32))", "3 1 1 leaf"),
        DANERecords("3 1 2 \(digits(32))", "3 1 1 leaf"), DANERecords("2 1 0 \(digits(32))", "3 1 1 stranger"),
    ]

    /// An RSA key of 16,384 bits, which OpenSSL can decode. It exceeds our limit.
    private static let largeKey =
        "30820822300d06092a864886f70d01010105000382080f003082080a0282080100\(digits(2048))0203010001"

    private static func digits(_ count: Int) -> String { String(repeating: "ab", count: count) }
}
