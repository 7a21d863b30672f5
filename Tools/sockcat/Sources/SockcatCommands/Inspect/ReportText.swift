internal import FoundationEssentials
internal import Glibc

/// A report as text for people.
struct ReportText {
    let report: InspectionReport
    let style: TerminalStyle
    /// Whether to print every certificate of the chain in full.
    var isVerbose = false

    private static let width = 16

    /// The complete report.
    var full: PrintableText {
        var lines = [style.bold("\(report.target)") + (report.address.map { style.dim(" (\($0))") } ?? "")]
        if let failure = report.failure {
            lines.append("  \(style.red("failed:")) \(failure.message)")
            if let advice = failure.advice { lines.append("  \(style.dim("hint: \(advice)"))") }
        }
        if let origin = report.origin { lines += line("found by", Self.text(of: origin)) }
        lines += certificateLines + sessionLines + daneLines + clientLines + capabilityLines + problemLines
        return lines.asLines
    }

    /// One line for each error, with the target, for `--quiet`.
    var brief: PrintableText {
        let failure: [PrintableText] = report.failure.map { ["\(report.target): \($0.message)"] } ?? []
        let errors = report.problems.filter { $0.severity == .error }
        return (failure + errors.map { "\(report.target): \($0.message)" }).asLines
    }

    private func line(_ name: PrintableText, _ value: PrintableText?) -> [PrintableText] {
        guard let value else { return [] }
        return ["  \(style.dim(name.padded(to: Self.width)))\(value)"]
    }

    // MARK: - Parts

    private var certificateLines: [PrintableText] {
        if isVerbose || report.kind == .file { return report.certificates.flatMap(lines) }
        guard let leaf = report.certificates.first else { return [] }
        return lines(of: leaf) + chainLines
    }

    private func lines(of certificate: CertificateReport) -> [PrintableText] {
        line("certificate", certificate.subject.isEmpty ? "(no subject)" : "\(certificate.subject)")
            + line("names", certificate.names.isEmpty ? nil : "\(certificate.names.joined(separator: ", "))")
            + line("issued by", certificate.isSelfIssued ? "itself" : "\(certificate.issuer)")
            + line("valid", validity(of: certificate))
            + line("key", "\(certificate.key)\(certificate.isAuthority ? " (authority)" : "")")
            + line("signed with", "\(certificate.signatureAlgorithm)")
            + line("serial", "\(certificate.serialNumber)")
            + line("fingerprint", "\(certificate.fingerprint)")
            + line("pin", "\(certificate.pin)")
    }

    private func validity(of certificate: CertificateReport) -> PrintableText {
        let (start, end) = (Self.text(of: certificate.notBefore), Self.text(of: certificate.notAfter))
        return "\(start) to \(end)\(remainder(of: certificate))"
    }

    private static func text(of date: Date?) -> String { date?.gregorianText ?? "a date that cannot be read" }

    private func remainder(of certificate: CertificateReport) -> PrintableText {
        guard let days = certificate.daysLeft else { return "" }
        return ", \(days < 0 ? style.red("expired") : "\(days) \(days == 1 ? "day" : "days") left")"
    }

    private var chainLines: [PrintableText] {
        report.certificates.dropFirst().enumerated().flatMap { index, certificate in
            line(index == 0 ? "chain" : "", "\(certificate.displayName), \(certificate.key)\(remainder(of: certificate))")
        }
    }

    private var sessionLines: [PrintableText] {
        if let chain = report.chain {
            let purpose: PrintableText = chain.purpose == .client ? ", as the certificate of a client" : ""
            return line("trust", trust(chain.isTrusted) + purpose)
        }
        guard let session = report.session else { return [] }
        let parameters = [
            session.version, session.cipherSuite, session.group, session.signature,
            session.applicationProtocol.map { "ALPN \($0)" },
        ]
        return line("negotiated", "\(parameters.compactMap(\.self).joined(separator: ", "))")
            + line("trust", trust(session.isTrusted))
            + line("OCSP stapling", Self.text(of: session.stapling))
    }

    private func trust(_ isTrusted: Bool) -> PrintableText {
        isTrusted ? style.green("trusted") : style.red("not trusted")
    }

    /// Without a session, the line says what the DNS says about the server.
    private var daneLines: [PrintableText] { line("DANE", report.dane.map { Self.text(of: $0, style) }) }

    private static func text(of stapling: SessionReport.Stapling) -> PrintableText {
        switch stapling {
        case .notSent: "no response"
        case .good: "good"
        case .unchecked: "a response that cannot be checked without the issuer"
        case .rejected: "rejected"
        }
    }

    private var clientLines: [PrintableText] {
        guard let report = report.clientCertificate else { return [] }
        let shown = report.authorities.prefix(3).joined(separator: " or ")
        let more = report.authorities.count > 3 ? " or \(report.authorities.count - 3) more" : ""
        let authorities = report.authorities.isEmpty ? "" : ", from \(shown)\(more)"
        return line("client cert", "\(Self.text(of: report.request))\(authorities)")
            + line("use of --cert", report.presentation.map(text))
    }

    private static func text(of request: ClientCertificateReport.Request) -> PrintableText {
        switch request {
        case .notRequested: "not requested"
        case .requested: "requested"
        case .optional: "requested, but not required"
        case .required: "required"
        }
    }

    private func text(of presentation: ClientCertificateReport.Presentation) -> PrintableText {
        switch presentation {
        case .accepted: style.green("accepted by the server")
        case .refused: style.red("refused by the server")
        case .notConfirmed: style.yellow("sent, but not confirmed by the server")
        case .withheld: style.yellow("not sent, because the server is not trusted")
        case .notRequested: "not sent, because the server did not request it"
        }
    }

    private var capabilityLines: [PrintableText] {
        guard let capabilities = report.capabilities else { return [] }
        let resumption = line("resumption", Self.text(of: capabilities.resumption))
        // DTLS has no early data, and its versions and suites are not tested.
        if capabilities.versions.isEmpty { return resumption }
        let early: PrintableText =
            capabilities.earlyDataBytes.map { "up to \($0) bytes" } ?? Self.text(of: capabilities.earlyData)
        let versions = TLSVersionName.all.compactMap { name -> PrintableText? in
            capabilities.versions[name].map { "\(name) \(Self.text(of: $0))" }
        }
        return resumption + line("early data", early)
            + line("oldest version", Self.text(ofOldest: capabilities.oldestVersion, Self.olderVersions(in: capabilities)))
            + line("versions", versions.joined(separator: ", "))
            + line("weakest suite", "\(capabilities.weakestSuiteText)")
    }

    /// The versions that are older than the oldest accepted version and could not be tested.
    private static func olderVersions(in capabilities: CapabilityReport) -> [String] {
        TLSVersionName.all.prefix { $0 != capabilities.oldestVersion }.filter { capabilities.versions[$0] == .notTestable }
    }

    private static func text(ofOldest version: String?, _ untested: [String]) -> PrintableText {
        let rest = untested.joined(separator: ", ")
        if let version { return untested.isEmpty ? "\(version)" : "\(version) (\(rest) not testable)" }
        return untested.isEmpty ? "none accepted" : "unknown (\(rest) not testable)"
    }

    private static func text(of support: Support) -> PrintableText {
        switch support {
        case .accepted: "accepted"
        case .notAccepted: "not accepted"
        case .notTestable: "not testable"
        }
    }

    private var problemLines: [PrintableText] {
        report.problems.map { problem in
            switch problem.severity {
            case .error: "  \(style.red("problem:")) \(problem.message)"
            case .warning: "  \(style.yellow("warning:")) \(problem.message)"
            }
        }
    }
}

extension CapabilityReport {
    var weakestSuiteText: String {
        let untested = suites.filter { $0.support == .notTestable }.map(\.kind)
        if untested.isEmpty { return weakestSuite ?? "no weak suite accepted" }
        return "\(weakestSuite ?? "unknown") (suites not testable: \(untested.joined(separator: ", ")))"
    }
}
