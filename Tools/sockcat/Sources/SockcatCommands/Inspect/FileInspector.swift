internal import AsyncSockets
internal import Foundation

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
            report.daysLeft = report.certificates.map(\.daysLeft).min()
            report.status = Assessment.status(of: report.problems)
        } catch {
            let failure = Failure(error)
            report.failure = FailureReport(message: failure.message, advice: failure.advice)
            report.status = .fileFailed
        }
        return report
    }

    private func certificates() throws -> [TLSCertificate] {
        let bytes = try InputFile.bytes(path)
        if bytes.starts(with: Array("-----BEGIN".utf8)) || !bytes.starts(with: [0x30]) {
            return try fromPEM(String(decoding: bytes, as: UTF8.self))
        }
        do {
            return [try TLSCertificate(der: bytes)]
        } catch {
            return try fromPKCS12(bytes)
        }
    }

    private func fromPEM(_ text: String) throws -> [TLSCertificate] {
        do {
            return try TLSCertificate.certificates(pem: text)
        } catch {
            throw Failure(
                "\"\(path)\": \(error.message)", advice: "pass a file with a certificate in PEM, DER or PKCS #12 form",
                status: .fileFailed, details: error.description)
        }
    }

    private func fromPKCS12(_ bytes: [UInt8]) throws -> [TLSCertificate] {
        let passphrase = Passphrase(file: passphraseFile)
        do {
            return try TLSIdentity(pkcs12: bytes, allowsLegacyAlgorithms: true) { try passphrase.read(for: path) }
                .certificateChain
        } catch {
            throw Failure(
                "\"\(path)\": \(error.message)", advice: "pass the passphrase with --passphrase-file", status: .fileFailed,
                details: error.description)
        }
    }
}
