struct CertificateTemplate {
    var commonName: String
    /// `notBefore` and `notAfter` are in seconds from now.
    var notBefore: Int
    var notAfter: Int
    /// The text of the following extensions uses the syntax of x509v3_config(5).
    var basicConstraints: String
    var keyUsage: String
    var extendedKeyUsage: String?
    var alternativeNames: [AlternativeName] = []

    private static let day = 24 * 60 * 60

    static func authority(name: String, pathLength: Int) -> CertificateTemplate {
        CertificateTemplate(
            commonName: name,
            notBefore: -365 * day,
            notAfter: 3650 * day,
            basicConstraints: "critical,CA:TRUE,pathlen:\(pathLength)",
            keyUsage: "critical,keyCertSign,cRLSign"
        )
    }

    static func leaf(
        for purpose: CertificateAuthority.Purpose,
        validity: CertificateAuthority.Validity,
        keyType: CertificateAuthority.KeyType
    ) throws(CertificateAuthorityError) -> CertificateTemplate {
        let (notBefore, notAfter) = period(of: validity)
        var template = CertificateTemplate(
            commonName: "",
            notBefore: notBefore,
            notAfter: notAfter,
            basicConstraints: "critical,CA:FALSE",
            keyUsage: keyUsage(of: keyType)
        )
        try template.describe(purpose)
        return template
    }

    /// Makes the certificate valid until `days` from now. The validity starts a day ago, or 30 days before
    /// its end if that is earlier.
    mutating func setValidity(days: Int) {
        notAfter = days * Self.day
        notBefore = min(-Self.day, notAfter - 30 * Self.day)
    }

    private mutating func describe(_ purpose: CertificateAuthority.Purpose) throws(CertificateAuthorityError) {
        switch purpose {
        case .server(let names, let commonName):
            // Uses the first name that fits the X.509 limit for a common name (64 characters). Clients
            // check only the alternative names.
            self.commonName = commonName ?? names.first { $0.utf8.count <= 64 } ?? "Server"
            extendedKeyUsage = "serverAuth"
            for name in names { alternativeNames.append(try AlternativeName(host: name)) }
        case .client(let commonName, let email):
            self.commonName = commonName
            extendedKeyUsage = "clientAuth"
            if let email { alternativeNames = [try AlternativeName(email: email)] }
        }
    }

    private static func period(of validity: CertificateAuthority.Validity) -> (notBefore: Int, notAfter: Int) {
        switch validity {
        case .endsSoon: (-day, 600)
        case .current: (-day, 365 * day)
        case .expired: (-31 * day, -day)
        case .notYetValid: (day, 31 * day)
        }
    }

    /// An RSA key may also be used to encrypt the TLS 1.2 premaster secret. An elliptic curve key cannot.
    private static func keyUsage(of keyType: CertificateAuthority.KeyType) -> String {
        switch keyType {
        case .p256: "critical,digitalSignature"
        case .rsa2048, .rsa3072: "critical,digitalSignature,keyEncipherment"
        }
    }
}
