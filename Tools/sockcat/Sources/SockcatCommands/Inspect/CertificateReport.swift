internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// One certificate of a chain.
struct CertificateReport: Codable, Equatable, Sendable {
    var subject: String
    var issuer: String
    var commonName: String?
    /// The DNS names and IP addresses.
    var names: [String]
    var serialNumber: String
    /// `nil` if the date cannot be read.
    var notBefore: Date?
    /// `nil` if the date cannot be read.
    var notAfter: Date?
    var daysLeft: Int?
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
        let isReadable = certificate.hasReadableDates
        notBefore = isReadable || certificate.notBefore != .distantFuture ? certificate.notBefore : nil
        notAfter = isReadable || certificate.notAfter != .distantPast ? certificate.notAfter : nil
        daysLeft = notAfter.map { Self.days(from: now, to: $0) }
        key = certificate.publicKeyDescription
        keyBits = certificate.publicKeyBits
        keyStrength = certificate.publicKeySecurityBits
        signatureAlgorithm = certificate.signatureAlgorithm
        isAuthority = certificate.isAuthority
        fingerprint = Hexadecimal.text(certificate.sha256Fingerprint)
        pin = PinArgument.text(of: certificate)
    }

    /// The name in messages.
    var displayName: String { commonName ?? names.first ?? subject }

    var isSelfIssued: Bool { subject == issuer }

    /// Complete days, rounded down: 0 on the last day, and negative after the end.
    static func days(from now: Date, to end: Date) -> Int {
        Int((end.timeIntervalSince(now) / 86_400).rounded(.down))
    }
}

extension Date {
    /// The date in UTC in the format of ISO 8601, such as "2026-11-27T18:01:22Z".
    ///
    /// Years before 1582 are in the Gregorian calendar too, as ISO 8601 and X.509 require. Foundation's
    /// functions use the Julian calendar for them.
    var gregorianText: String {
        let seconds = Int(timeIntervalSince1970.rounded(.down))
        let second = ((seconds % 86_400) + 86_400) % 86_400
        let (year, month, day) = Self.gregorianDay((seconds - second) / 86_400)
        let date = [NumberText.padded(year, to: 4), NumberText.padded(month, to: 2), NumberText.padded(day, to: 2)]
        let time = [second / 3600, second / 60 % 60, second % 60].map { NumberText.padded($0, to: 2) }
        return "\(date.joined(separator: "-"))T\(time.joined(separator: ":"))Z"
    }

    /// Returns the date of a day that is counted from 1970-01-01. Internally, years start on March 1, so that
    /// a leap day is the last day of its year.
    private static func gregorianDay(_ number: Int) -> (year: Int, month: Int, day: Int) {
        let days = number + 719_468  // since 0000-03-01
        let era = (days >= 0 ? days : days - 146_096) / 146_097  // 400 years
        let dayOfEra = days - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * month + 2) / 5 + 1
        return (yearOfEra + era * 400 + (month >= 10 ? 1 : 0), month < 10 ? month + 3 : month - 9, day)
    }
}
