internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Finds the problems in the facts about a target. Pure functions, so that tests need no network.
enum Assessment {
    /// Problems that the certificates have by themselves.
    ///
    /// - Parameters:
    ///   - days: A certificate that expires within this many days is a problem.
    ///   - isServer: Whether the first certificate is a server's, which needs names.
    static func problems(
        of certificates: [CertificateReport], days: Int, at now: Date, isServer: Bool
    ) -> [Problem] {
        certificates.flatMap { endOfValidity(of: $0, days: days, at: now) + strength(of: $0) }
            + (isServer ? names(in: certificates) + order(of: certificates) : [])
    }

    private static func endOfValidity(of certificate: CertificateReport, days: Int, at now: Date) -> [Problem] {
        let owner = "the certificate of \"\(certificate.displayName)\""
        guard let start = certificate.notBefore, let end = certificate.notAfter, let daysLeft = certificate.daysLeft else {
            return [.error(.unreadableDate, "\(owner) has a validity period that cannot be read")]
        }
        if now > end { return [.error(.expired, "\(owner) expired on \(end.gregorianText)")] }
        if now < start { return [.error(.notYetValid, "\(owner) is not valid before \(start.gregorianText)")] }
        guard daysLeft < days else { return [] }
        return [.error(.expiresSoon, "\(owner) expires on \(end.gregorianText), in less than \(days) days")]
    }

    private static func strength(of certificate: CertificateReport) -> [Problem] {
        let owner = "the certificate of \"\(certificate.displayName)\""
        var problems: [Problem] = []
        if certificate.keyStrength < 112 {
            problems.append(.warning(.weakKey, "\(owner) has a weak key: \(certificate.key)"))
        }
        // The signature of a root is not verified.
        if !certificate.isSelfIssued, isWeak(certificate.signatureAlgorithm) {
            problems.append(
                .warning(.weakSignature, "\(owner) has a weak signature: \(certificate.signatureAlgorithm)"))
        }
        return problems
    }

    private static func isWeak(_ algorithm: String) -> Bool {
        let name = algorithm.lowercased()
        return ["md5", "sha1", "md4", "md2"].contains { name.hasPrefix($0) || name.hasSuffix($0) }
    }

    private static func names(in chain: [CertificateReport]) -> [Problem] {
        guard let leaf = chain.first, leaf.names.isEmpty else { return [] }
        return [
            .warning(
                .noNames, "the certificate of \"\(leaf.displayName)\" has no host name (subjectAltName), so clients reject it")
        ]
    }

    private static func order(of chain: [CertificateReport]) -> [Problem] {
        var problems: [Problem] = []
        for (certificate, next) in zip(chain, chain.dropFirst()) where certificate.issuer != next.subject {
            problems.append(
                .warning(
                    .chainOrder,
                    "the chain is out of order: \"\(next.displayName)\" did not issue \"\(certificate.displayName)\""))
        }
        if chain.count > 1, let last = chain.last, last.isSelfIssued {
            problems.append(.warning(.needlessRoot, "the chain includes the root \"\(last.displayName)\", which clients ignore"))
        }
        return problems
    }

    /// The faults that OpenSSL found in a server's chain.
    static func problems(of trust: PeerTrust) -> [Problem] {
        var problems: [Problem] = []
        for verdict in [trust.verdict] + trust.otherFaults {
            guard case .untrusted(let reason, let code, _) = verdict else { continue }
            // OpenSSL reports a missing issuer twice: X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE follows.
            if code == 21, problems.contains(where: { $0.code == .unknownIssuer }) { continue }
            let problem = Problem.error(self.code(ofVerification: code), reason)
            if !problems.contains(problem) { problems.append(problem) }
        }
        return problems
    }

    /// Returns the kind of a fault from OpenSSL's `X509_V_ERR_*` code (x509_verify_cert_error_string(3)).
    static func code(ofVerification code: Int32) -> Problem.Code {
        switch code {
        case 10: .expired
        case 9: .notYetValid
        case 13, 14: .unreadableDate
        case 62, 64: .nameMismatch
        case 2, 18, 19, 20, 21, 27: .unknownIssuer
        case 23: .revoked
        // The library's code for a chain without a pinned key (X509_V_ERR_APPLICATION_VERIFICATION).
        case 50: .pinMismatch
        case 66, 67: .weakKey
        case 68: .weakSignature
        case 73, 74, 75: .stapling
        default: .rejected
        }
    }

    /// The weaknesses of what a server accepts.
    static func problems(of capabilities: CapabilityReport) -> [Problem] {
        var problems: [Problem] = []
        if let oldest = capabilities.oldestVersion, TLSVersionName.obsolete.contains(oldest) {
            problems.append(.warning(.oldVersion, "the server accepts \(oldest), which is obsolete (RFC 8996)"))
        }
        if capabilities.versions[TLSVersionName.tls13] == .notAccepted {
            problems.append(.warning(.noTLS13, "the server does not support TLS 1.3"))
        }
        if let weakest = capabilities.weakestSuite, let kind = capabilities.acceptedKind {
            problems.append(.warning(.weakSuite, "the server accepts the cipher suite \(weakest) (\(kind))"))
        }
        return problems
    }

    /// Joins OpenSSL's faults with the problems of the certificates, which can describe the same fault of the
    /// same certificate. Errors are first.
    static func merged(_ faults: [Problem], _ own: [Problem]) -> [Problem] {
        let remaining = own.filter { problem in
            guard [.expired, .notYetValid, .unreadableDate].contains(problem.code) else { return true }
            let certificate = problem.message.prefix(
                upTo: problem.message.firstRange(of: "\" ")?.upperBound ?? problem.message.endIndex)
            return !faults.contains { $0.code == problem.code && $0.message.hasPrefix(certificate) }
        }
        let all = faults + remaining
        return all.filter { $0.severity == .error } + all.filter { $0.severity == .warning }
    }

    /// Returns the most serious consequence of the problems.
    static func status(of problems: [Problem]) -> InspectionReport.Status {
        let errors = problems.filter { $0.severity == .error }
        if errors.isEmpty { return .ok }
        return errors.allSatisfy { $0.code == .expiresSoon } ? .expiresSoon : .untrusted
    }
}

/// The names of the versions that are tested.
enum TLSVersionName {
    static let tls13 = "TLSv1.3"
    static let tls12 = "TLSv1.2"
    /// Versions that must not be used (RFC 8996), oldest first.
    static let obsolete = ["TLSv1.0", "TLSv1.1"]
    /// All versions, oldest first.
    static let all = obsolete + [tls12, tls13]
}
