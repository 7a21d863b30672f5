internal import AsyncSockets
internal import Foundation

/// One certificate of a chain.
struct CertificateReport: Codable, Equatable, Sendable {
    var subject: String
    var issuer: String
    var commonName: String?
    /// The DNS names and IP addresses.
    var names: [String]
    var serialNumber: String
    var notBefore: Date
    var notAfter: Date
    var daysLeft: Int
    /// The kind and size of the key, such as "ECDSA P-256" or "RSA 2048 bits".
    var key: String
    var keyBits: Int
    /// The strength of the key in bits (NIST SP 800-57).
    var keyStrength: Int
    var signatureAlgorithm: String
    var isAuthority: Bool
    /// The SHA-256 digest of the certificate, in hexadecimal.
    var fingerprint: String
    /// The SHA-256 digest of the public key, to copy: "sha256//BASE64", as `--pin` and curl accept it.
    var pin: String

    init(_ certificate: TLSCertificate, at now: Date) {
        subject = certificate.subject
        issuer = certificate.issuer
        commonName = certificate.commonName
        names = certificate.dnsNames + certificate.ipAddresses
        serialNumber = certificate.serialNumber
        (notBefore, notAfter) = (certificate.notBefore, certificate.notAfter)
        daysLeft = Self.days(from: now, to: certificate.notAfter)
        key = certificate.publicKeyDescription
        keyBits = certificate.publicKeyBits
        keyStrength = certificate.publicKeySecurityBits
        signatureAlgorithm = certificate.signatureAlgorithm
        isAuthority = certificate.isAuthority
        fingerprint = Hexadecimal.text(certificate.sha256Fingerprint)
        pin = "sha256//" + Data(certificate.publicKeySHA256).base64EncodedString()
    }

    /// The name in messages.
    var displayName: String { commonName ?? names.first ?? subject }

    var isSelfIssued: Bool { subject == issuer }

    /// Complete days, rounded down: 0 on the last day, and negative after the end.
    static func days(from now: Date, to end: Date) -> Int {
        Int((end.timeIntervalSince(now) / 86_400).rounded(.down))
    }
}
