internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Inspects a file with certificates: PEM, DER or PKCS #12.
struct FileInspector: Sendable {
    let path: String
    let days: Int
    let passphraseFile: String?

    func inspect(at now: Date = Date()) -> InspectionReport {
        var report = InspectionReport(target: path, kind: .file, inspectedAt: now, status: .ok)
        do {
            report.certificates = try certificates().map { CertificateReport($0, at: now) }
            report.problems = Assessment.problems(of: report.certificates, days: days, at: now, isServer: false)
            report.daysLeft = report.certificates.compactMap(\.daysLeft).min()
            report.status = Assessment.status(of: report.problems)
        } catch {
            let failure = Failure(error)
            report.failure = FailureReport(message: failure.message, advice: failure.advice)
            report.status = .fileFailed
        }
        return report
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
