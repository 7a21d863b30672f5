import AsyncSocketsTesting
import FoundationEssentials
import SocketTLS
import Testing

/// The facts of a certificate that describe its key and its signature.
@Suite struct CertificateFactTests {
    private func certificate(_ keyType: CertificateAuthority.KeyType) throws -> TLSCertificate {
        let authority = try CertificateAuthority(keyType: keyType)
        return try TLSCertificate(pem: authority.issue(.server(names: ["localhost"]), keyType: keyType).certificatePEM)
    }

    @Test func aCurveHasAName() throws {
        let certificate = try certificate(.p256)
        #expect(certificate.publicKeyKind == "EC")
        #expect(certificate.publicKeyCurve == "P-256")
        #expect(certificate.publicKeyBits == 256)
        #expect(certificate.publicKeySecurityBits == 128)
        #expect(certificate.publicKeyDescription == "ECDSA P-256")
        #expect(certificate.signatureAlgorithm == "ecdsa-with-SHA256")
    }

    @Test func anRSAKeyHasASize() throws {
        let certificate = try certificate(.rsa2048)
        #expect(certificate.publicKeyKind == "RSA")
        #expect(certificate.publicKeyCurve == nil)
        #expect(certificate.publicKeyBits == 2048)
        #expect(certificate.publicKeySecurityBits == 112)
        #expect(certificate.publicKeyDescription == "RSA 2048 bits")
        #expect(certificate.signatureAlgorithm == "sha256WithRSAEncryption")
    }

    @Test func onlyAnAuthorityIsMarkedAsOne() throws {
        let authority = try CertificateAuthority()
        #expect(try TLSCertificate(pem: authority.rootPEM).isAuthority)
        #expect(try TLSCertificate(pem: authority.intermediatePEM).isAuthority)
        #expect(try !certificate(.p256).isAuthority)
    }

    /// Replaces the dates in a certificate, which does not change the length of its encoding.
    private func certificate(from start: String, to end: String) throws -> TLSCertificate {
        var der = try certificate(.p256).derBytes
        // Each date is a UTCTime (0x17) of 13 bytes: twelve digits and "Z". A key may contain other such
        // bytes.
        let digits = UInt8(ascii: "0")...UInt8(ascii: "9")
        let places = der.indices.dropLast(14).filter {
            der[$0...].starts(with: [0x17, 13]) && der[($0 + 2)..<($0 + 14)].allSatisfy(digits.contains)
                && der[$0 + 14] == UInt8(ascii: "Z")
        }
        try #require(places.count == 2)
        for (place, text) in zip(places, [start, end]) { der.replaceSubrange((place + 2)..<(place + 15), with: Array(text.utf8)) }
        return try TLSCertificate(der: der)
    }

    @Test func anUnreadableDateIsNeverInsideTheValidityPeriod() throws {
        let good = try certificate(from: "260101000000Z", to: "270101000000Z")
        #expect(good.hasReadableDates && good.notBefore < good.notAfter)
        let (start, end) = (
            try certificate(from: "26010100000xZ", to: "270101000000Z"),
            try certificate(from: "260101000000Z", to: "279901000000Z")
        )
        #expect(!start.hasReadableDates && start.notBefore == .distantFuture)
        #expect(!end.hasReadableDates && end.notAfter == .distantPast)
    }
}
