import AsyncSocketsTesting
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
}
