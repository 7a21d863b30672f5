internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Inspects a file with certificates: PEM, DER or PKCS #12.
struct FileInspector: Sendable {
    let path: String
    let choices: InspectionChoices
    let passphraseFile: String?

    func inspect(at now: Date = Date()) -> InspectionReport {
        var report = InspectionReport(target: path, kind: .file, inspectedAt: now, status: .ok)
        do {
            let certificates = try certificates()
            report.certificates = certificates.map { CertificateReport($0, at: now) }
            try describeChain(certificates, in: &report)
            let own = Assessment.problems(
                of: report.certificates, days: choices.days, at: now, isServer: report.chain?.purpose == .server)
            report.problems = Assessment.merged(report.problems, own)
            report.daysLeft = report.certificates.compactMap(\.daysLeft).min()
            report.status = Assessment.status(of: report.problems)
        } catch {
            let failure = Failure(error)
            report.failure = FailureReport(message: failure.message, advice: failure.advice)
            report.status = .fileFailed
        }
        return report
    }

    /// Verifies the first certificate, with the others as its chain, if `--ca` or `--sni` was given.
    private func describeChain(_ certificates: [TLSCertificate], in report: inout InspectionReport) throws {
        guard choices.verifiesFiles else {
            if !choices.pins.isEmpty, !certificates.contains(where: { choices.pins.contains($0.publicKeySHA256) }) {
                report.problems.append(.error(.pinMismatch, "no certificate in the file has a key that matches --pin"))
            }
            return
        }
        let trust = try trust(of: certificates)
        report.chain = ChainReport(isTrusted: trust.verdict == .trusted, purpose: trust.peer == .server ? .server : .client)
        report.serverName = trust.serverName
        report.problems = Assessment.problems(of: trust)
    }

    /// Without an expected name, a certificate that is not for servers is verified as the certificate of a
    /// client.
    private func trust(of certificates: [TLSCertificate]) throws -> PeerTrust {
        var settings = choices.fileServerName.map { TLSSettings.client(serverName: $0) } ?? .client
        (settings.trustRoots, settings.policy) = (choices.trustRoots, .compatible)
        settings.verifiesHostName = choices.fileServerName != nil
        if !choices.pins.isEmpty { settings.proof = .certificates(TLSCertificateRules(pins: choices.pins)) }
        let server = try PeerTrust(verifying: certificates, settings: settings)
        let isForOthers = ([server.verdict] + server.otherFaults).contains(where: Self.isPurposeOfLeaf)
        guard choices.fileServerName == nil, isForOthers else { return server }
        return try PeerTrust(verifying: certificates, of: .client, settings: settings)
    }

    /// Whether the fault is that the first certificate has another purpose (X509_V_ERR_INVALID_PURPOSE).
    private static func isPurposeOfLeaf(_ verdict: PeerTrust.Verdict) -> Bool {
        if case .untrusted(_, 26, 0) = verdict { true } else { false }
    }

    /// Returns all certificates in the file. The start of a file does not show its format: text before the
    /// first PEM block may start with "0", the first byte of DER.
    private func certificates() throws -> [TLSCertificate] {
        let bytes = try InputFile.bytes(path)
        guard bytes.first == 0x30 else { return try fromPEM(bytes) }
        if let certificate = try? TLSCertificate(der: bytes) { return [certificate] }
        do {
            return try fromPKCS12(bytes)
        } catch {
            let isOtherFormat = error.code == .invalidCertificate
            if isOtherFormat, let certificates = try? fromPEM(bytes) { return certificates }
            throw Failure(
                isOtherFormat ? "\"\(path)\" contains no certificate in a known format" : "\"\(path)\": \(error.message)",
                advice: isOtherFormat
                    ? Self.formats
                    : error.message.contains("passphrase")
                        ? "pass the passphrase with --passphrase-file or in SOCKCAT_PASSPHRASE" : nil,
                status: .fileFailed, details: error.description)
        }
    }

    private func fromPEM(_ bytes: [UInt8]) throws -> [TLSCertificate] {
        do {
            return try TLSCertificate.certificates(pem: String(decoding: bytes, as: UTF8.self))
        } catch {
            throw Failure(
                "\"\(path)\": \(error.message)", advice: Self.formats, status: .fileFailed, details: error.description)
        }
    }

    private static let formats = "pass a file with a certificate in PEM, DER or PKCS #12 form"

    private func fromPKCS12(_ bytes: [UInt8]) throws(TLSError) -> [TLSCertificate] {
        let passphrase = Passphrase(file: passphraseFile)
        return try TLSCertificate.certificates(pkcs12: bytes, allowsLegacyAlgorithms: true) { try passphrase.read(for: path) }
    }
}
