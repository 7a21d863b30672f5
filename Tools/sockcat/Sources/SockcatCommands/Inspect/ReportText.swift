internal import Foundation

/// A report as text for people.
struct ReportText {
    let report: InspectionReport
    let style: TerminalStyle
    /// Whether to print every certificate of the chain in full.
    var isVerbose = false

    private static let width = 16

    /// The complete report.
    var full: String {
        var lines = [style.bold(report.target) + (report.address.map { style.dim(" (\($0))") } ?? "")]
        if let failure = report.failure {
            lines.append("  " + style.red("failed: ") + failure.message)
            if let advice = failure.advice { lines.append("  " + style.dim("next: \(advice)")) }
        }
        lines += certificateLines + sessionLines + capabilityLines + problemLines
        return lines.joined(separator: "\n") + "\n"
    }

    /// One line for each error, with the target, for `--quiet`.
    var brief: String {
        let failure = report.failure.map { ["\(report.target): \($0.message)"] } ?? []
        let errors = report.problems.filter { $0.severity == .error }
        let lines = failure + errors.map { "\(report.target): \($0.message)" }
        return lines.map { $0 + "\n" }.joined()
    }

    private func line(_ name: String, _ value: String?) -> [String] {
        guard let value else { return [] }
        return ["  " + style.dim(name.padding(toLength: Self.width, withPad: " ", startingAt: 0)) + value]
    }

    // MARK: - Parts

    private var certificateLines: [String] {
        if isVerbose || report.kind == .file { return report.certificates.flatMap(lines) }
        guard let leaf = report.certificates.first else { return [] }
        return lines(of: leaf) + chainLines
    }

    private func lines(of certificate: CertificateReport) -> [String] {
        line("certificate", certificate.subject.isEmpty ? "(no subject)" : certificate.subject)
            + line("names", certificate.names.isEmpty ? nil : certificate.names.joined(separator: ", "))
            + line("issued by", certificate.isSelfIssued ? "itself" : certificate.issuer)
            + line("valid", validity(of: certificate))
            + line("key", certificate.key + (certificate.isAuthority ? " (authority)" : ""))
            + line("signed with", certificate.signatureAlgorithm)
            + line("serial", certificate.serialNumber)
            + line("fingerprint", certificate.fingerprint)
            + line("pin", certificate.pin)
    }

    private func validity(of certificate: CertificateReport) -> String {
        let left =
            certificate.daysLeft < 0
            ? style.red("expired") : "\(certificate.daysLeft) \(certificate.daysLeft == 1 ? "day" : "days") left"
        return "\(certificate.notBefore.ISO8601Format()) to \(certificate.notAfter.ISO8601Format()), \(left)"
    }

    private var chainLines: [String] {
        report.certificates.dropFirst().enumerated().flatMap { index, certificate in
            line(
                index == 0 ? "chain" : "", "\(certificate.displayName), \(certificate.key), \(certificate.daysLeft) days left")
        }
    }

    private var sessionLines: [String] {
        guard let session = report.session else { return [] }
        let parameters = [
            session.version, session.cipherSuite, session.group, session.signature,
            session.applicationProtocol.map { "ALPN \($0)" },
        ]
        return line("negotiated", parameters.compactMap(\.self).joined(separator: ", "))
            + line("trust", session.isTrusted ? style.green("trusted") : style.red("not trusted"))
            + line("OCSP stapling", Self.text(of: session.stapling))
    }

    private static func text(of stapling: SessionReport.Stapling) -> String {
        switch stapling {
        case .notSent: "no response"
        case .good: "good"
        case .unchecked: "a response that cannot be checked without the issuer"
        case .rejected: "rejected"
        }
    }

    private var capabilityLines: [String] {
        guard let capabilities = report.capabilities else { return [] }
        let early = capabilities.earlyDataBytes.map { "up to \($0) bytes" } ?? Self.text(of: capabilities.earlyData)
        let versions = TLSVersionName.all.compactMap { name in
            capabilities.versions[name].map { "\(name) \(Self.text(of: $0))" }
        }
        let untested = capabilities.suites.filter { $0.support == .notTestable }.map(\.kind)
        return line("resumption", Self.text(of: capabilities.resumption)) + line("early data", early)
            + line("oldest version", capabilities.oldestVersion ?? "none accepted")
            + line("versions", versions.joined(separator: ", "))
            + line("weakest suite", capabilities.weakestSuite ?? "none accepted")
            + line("not testable", untested.isEmpty ? nil : "suites with " + untested.joined(separator: ", "))
    }

    private static func text(of support: Support) -> String {
        switch support {
        case .accepted: "accepted"
        case .notAccepted: "not accepted"
        case .notTestable: "not testable"
        }
    }

    private var problemLines: [String] {
        report.problems.map { problem in
            switch problem.severity {
            case .error: "  " + style.red("problem: ") + problem.message
            case .warning: "  " + style.yellow("warning: ") + problem.message
            }
        }
    }
}

extension InspectionReport {
    /// The report as a JSON object on one line, with sorted keys.
    func json() throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .iso8601
        return String(decoding: try encoder.encode(self), as: UTF8.self) + "\n"
    }
}
