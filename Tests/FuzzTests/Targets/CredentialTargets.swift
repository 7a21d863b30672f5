import COpenSSL
import Foundation

@testable import SocketTLS

extension FuzzTarget {
    /// Certificates and keys in PEM.
    static let pem = FuzzTarget(name: "pem", maximumLength: 8192) { input in
        var input = input
        let flags = input.byte()
        let text = String(decoding: input.all(), as: UTF8.self)
        let passphrase = flags & 1 == 0 ? nil : "secret"
        if let certificates = try? TLSCertificate.certificates(pem: text) {
            for certificate in certificates { try check(certificate) }
        }
        if let certificate = try? TLSCertificate(pem: text) { try check(certificate) }
        _ = try? TLSPrivateKey(pem: text, passphrase: passphrase)
        if let identity = try? TLSIdentity(pem: text, passphrase: passphrase) {
            try require(!identity.certificateChain.isEmpty, "an identity without a certificate")
        }
    }

    /// Certificates and keys in DER, and each property that the library reads.
    static let certificates = FuzzTarget(name: "certificates", maximumLength: 8192) { input in
        let bytes = Array(input.rest)
        if let certificate = try? TLSCertificate(der: bytes) { try check(certificate) }
        _ = try? TLSPrivateKey(der: bytes)
        _ = bytes.withUnsafeBytes { KeyDerivation.rounds(ofKey: $0) }
        if let canonical = PublicKeyInfo.canonical(bytes) {
            try require(PublicKeyInfo.canonical(canonical) == canonical, "the canonical form of a key changes")
        }
        _ = PublicKeyInfo.isKey(bytes, ofRSA: true)
        _ = try? TLSRawPublicKeys(expected: [bytes])
    }

    private static func check(_ certificate: TLSCertificate) throws {
        let x509 = certificate.handle.x509
        _ = (certificate.subject, certificate.issuer, certificate.commonName, certificate.serialNumber)
        _ = (certificate.dnsNames, certificate.ipAddresses, certificate.notBefore, certificate.notAfter)
        _ = (certificate.publicKeyDescription, certificate.publicKeyKind, certificate.publicKeyBits)
        _ = (certificate.publicKeySecurityBits, certificate.publicKeyCurve, certificate.signatureAlgorithm)
        _ = (certificate.isAuthority, certificate.publicKey, certificate.publicKeySHA256, certificate.displayName)
        _ = PeerKeyBounds.complaint(about: x509)
        let again = try? TLSCertificate(pem: certificate.pem)
        try require(again == certificate, "the certificate changes as PEM")
        try require(certificate.sha256Fingerprint.count == 32, "the fingerprint is short")
        // C code would compare only the part before a NUL.
        for name in certificate.dnsNames { try require(!name.utf8.contains(0), "a name with NUL: \(name)") }
        let verdict = try ChainEvaluation(
            [certificate, FixedIdentity.root], of: .server, serverName: FixedIdentity.name, anchors: [FixedIdentity.root],
            trustsSystemRoots: false
        ).verdict()
        if case .trusted = verdict {
            try require(
                certificate.derBytes == FixedIdentity.certificate.derBytes || certificate == FixedIdentity.root,
                "an altered certificate is trusted")
        }
    }

    /// PKCS#12 files.
    static let pkcs12 = FuzzTarget(name: "pkcs12", maximumLength: 8192) { input in
        var input = input
        let flags = input.byte()
        let bytes = input.all()
        let passphrase = flags & 1 == 0 ? "secret" : nil
        let identity = try? TLSIdentity(pkcs12: bytes, passphrase: passphrase, allowsLegacyAlgorithms: flags & 2 != 0)
        if let identity { try require(!identity.certificateChain.isEmpty, "an identity without a certificate") }
        _ = SecretBytes(copying: bytes).kind
    }

    /// Certificate revocation lists, in PEM or DER.
    static let revocationLists = FuzzTarget(name: "revocation-lists", maximumLength: 8192) { input in
        try TemporaryInput.shared.write(input.rest)
        let store = try TrustStore([FixedIdentity.root])
        let revocation = Revocation([.file(path: TemporaryInput.shared.path)], .chain)
        try? revocation.add(to: store)
        _ = revocation.flags
    }

    /// Stored sessions and files of ticket keys.
    static let sessions = FuzzTarget(name: "sessions", maximumLength: 8192) { input in
        let bytes = Array(input.rest)
        if let session = try? TLSResumableSession(bytes: bytes) {
            let again = session.bytes
            try require((try? TLSResumableSession(bytes: again))?.bytes == again, "the session changes")
        }
        try TemporaryInput.shared.write(bytes[...])
        if let file = try? TLSTicketKeyFile(path: TemporaryInput.shared.path) {
            let keys = file.keys
            try require(keys.decryptionOnly.count == 2, "a file with three keys has \(keys.decryptionOnly.count + 1)")
        }
    }
}

/// A file with the input, for functions that read a file.
final class TemporaryInput: @unchecked Sendable {
    // Unchecked: neither property changes, and targets that use the file do not run in parallel.
    static let shared = TemporaryInput()

    private let descriptor: CInt
    let path: String

    private init() {
        var name = Array("/tmp/input.XXXXXX".utf8CString)
        descriptor = mkstemp(&name)
        precondition(descriptor >= 0, "mkstemp failed")
        // The kernel deletes the file when the process exits.
        unlink(name)
        path = "/proc/self/fd/\(descriptor)"
    }

    func write(_ bytes: ArraySlice<UInt8>) throws {
        let isWritten = bytes.withUnsafeBytes { bytes in
            ftruncate(descriptor, 0) == 0 && pwrite(descriptor, bytes.baseAddress, bytes.count, 0) == bytes.count
        }
        try require(isWritten, "the input cannot be written")
    }
}
