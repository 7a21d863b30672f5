import FoundationEssentials
import SocketBuffers
import SocketTestSupport

/// A certificate to be created by certtool(1) of GnuTLS, so that it is written neither by OpenSSL nor by this
/// library.
struct CertificatePlan: Hashable, Sendable {
    var name: String
    /// Lines of a template.
    var lines: [String]
    var key: CerttoolAuthority.Key
    /// The signing key, if it differs from the issuer's key.
    var signingKey: CerttoolAuthority.Key?
    var activation = "2020-01-01 00:00:00"
    var expiration = "2040-01-01 00:00:00"
    /// Whether it is self-signed.
    var isSelfSigned = false
    /// Additional arguments for certtool.
    var options: [String] = []

    static func authority(_ name: String, _ key: CerttoolAuthority.Key) -> CertificatePlan {
        CertificatePlan(name: name, lines: ["ca", "cert_signing_key"], key: key)
    }

    static let server = CertificatePlan(
        name: "Leaf", lines: ["tls_www_server", "signing_key", "dns_name = \"mail.example.org\""], key: .leaf)
    static let client = CertificatePlan(name: "Leaf", lines: ["tls_www_client", "signing_key"], key: .leaf)

    fileprivate var template: String {
        var lines = lines
        if !name.isEmpty { lines.append("cn = \"\(name)\"") }
        lines += ["activation_date = \"\(activation)\"", "expiration_date = \"\(expiration)\""]
        return lines.joined(separator: "\n") + "\n"
    }

    mutating func expire() { (activation, expiration) = ("2020-01-01 00:00:00", "2021-01-01 00:00:00") }
    mutating func beginLater() { activation = "2039-01-01 00:00:00" }
    mutating func remove(_ line: String) { lines.removeAll { $0 == line } }
    /// Replaces the names.
    mutating func setNames(_ names: String...) {
        lines.removeAll { $0.hasPrefix("dns_name") }
        lines += names
    }
}

/// A certificate revocation list of a root, to be created by certtool.
struct RevocationPlan: Sendable {
    var revoked: [CertificatePlan]
    /// The signing key, if it differs from the issuer's key.
    var signingKey: CerttoolAuthority.Key?
    var update = "2020-01-01 00:00:00"
    var nextUpdate = "2039-01-01 00:00:00"

    fileprivate var template: String {
        """
        crl_number = 1
        crl_this_update_date = "\(update)"
        crl_next_update_date = "\(nextUpdate)"
        crl_revocation_date = "2020-01-01 00:00:00"

        """
    }
}

/// Creates keys, certificates and lists with certtool, each once per run.
actor CerttoolAuthority {
    static let shared = CerttoolAuthority()

    enum Key: String, CaseIterable, Sendable {
        case root, middle, lower, leaf, stranger, rsa, weak

        fileprivate var options: [String] {
            switch self {
            case .rsa: ["--key-type", "rsa", "--bits", "2048"]
            case .weak: ["--key-type", "rsa", "--bits", "1024"]
            default: ["--key-type", "ecdsa", "--curve", "secp256r1"]
            }
        }
    }

    private let folder = Result { try TemporaryFolder() }
    private var files: [String: Task<String, any Error>] = [:]

    /// Returns the file with a key.
    func key(_ key: Key) async throws -> String {
        try await file(of: key.rawValue) { file in
            ["certtool", "--generate-privkey", "--outfile", file] + key.options
        }
    }

    /// Returns the PEM of a certificate with its issuers, the last of which is self-signed.
    func certificate(_ plan: CertificatePlan, below issuers: ArraySlice<CertificatePlan>) async throws -> String {
        let issuerPlan = plan.isSelfSigned ? nil : issuers.first
        let template = try folder.get().write(plan.template, to: "\(abs(plan.hashValue)).template")
        let key = try await key(plan.key)
        var arguments = ["certtool", "--template", template, "--load-privkey", key] + plan.options
        if let issuerPlan {
            let issuer = try await certificate(issuerPlan, below: issuers.dropFirst())
            let file = try folder.get().write(issuer, to: "\(abs(issuer.hashValue)).issuer")
            arguments += ["--generate-certificate", "--load-ca-certificate", file, "--load-ca-privkey"]
            arguments.append(try await self.key(plan.signingKey ?? issuerPlan.key))
        } else {
            arguments.append("--generate-self-signed")
        }
        let path = issuerPlan == nil ? [plan] : [plan] + issuers
        let made = try await file(of: "\(path)") { [arguments] in arguments + ["--outfile", $0] }
        return try String(contentsOfFile: made, encoding: .utf8)
    }

    /// Returns the PEM of a list from `issuer`.
    func list(_ list: RevocationPlan, of issuer: CertificatePlan) async throws -> String {
        var revoked = ""
        for plan in list.revoked { revoked += try await certificate(plan, below: [issuer]) }
        let name = "\(list) of \(issuer)"
        let (files, key) = (try folder.get(), try await key(list.signingKey ?? issuer.key))
        let number = "\(abs(name.hashValue))"
        var arguments = ["certtool", "--generate-crl", "--load-ca-privkey", key, "--load-ca-certificate"]
        arguments.append(try files.write(try await certificate(issuer, below: []), to: "\(number).issuer"))
        arguments += ["--template", try files.write(list.template, to: "\(number).template")]
        if !revoked.isEmpty { arguments += ["--load-certificate", try files.write(revoked, to: "\(number).revoked")] }
        let made = try await file(of: name) { [arguments] in arguments + ["--outfile", $0] }
        return try String(contentsOfFile: made, encoding: .utf8)
    }

    private func file(of name: String, _ arguments: @escaping @Sendable (String) -> [String]) async throws -> String {
        if let task = files[name] { return try await task.value }
        let path = try folder.get().path + "/\(files.count).pem"
        let task = Task {
            let program = try Program(arguments(path), input: "")
            guard await program.exitStatus() == 0 else { throw Unexpected(description: program.printed) }
            return path
        }
        files[name] = task
        return try await task.value
    }
}
