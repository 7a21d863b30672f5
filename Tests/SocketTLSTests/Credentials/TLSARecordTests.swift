import AsyncSocketsTesting
import Testing

@testable import SocketTLS

/// Reading, writing and making TLSA records.
@Suite struct TLSARecordTests {
    @Test func thePresentationFormIsRead() throws {
        let record = try TLSARecord("3 1 1 0102aBFf")
        #expect(record.usage == .daneEE && record.selector == .publicKey && record.matchingType == .sha256)
        #expect(record.data == [1, 2, 0xAB, 0xFF] && record.text == "3 1 1 0102abff" && "\(record)" == record.text)
        // Zone files break long data (RFC 6698, 2.2), with any line ends.
        #expect(try TLSARecord("  3\t1 1 01 02\r\nab\nff ") == record)
        // RFC 7218.
        #expect(try TLSARecord("DANE-EE spki SHA2-256 0102abff") == record)
        #expect(try TLSARecord("PKIX-TA Cert Full 00") == TLSARecord("0 0 0 00"))
        #expect(try TLSARecord("PrivCert PrivSel PrivMatch 00") == TLSARecord("255 255 255 00"))
        #expect(try TLSARecord("255 254 253 00").usage.rawValue == 255)
    }

    @Test(
        arguments: [
            "", "3", "3 1 1", "3 1 1 ", "3 1 1 0", "3 1 1 0g", "-3 1 1 00", "+3 1 1 00", "256 1 1 00", "3 x 1 00", "3 1 SHA-1 00",
            "3 1 1 0x00", "3 1 1 ００", "3 1 1 00 ;", "(3 1 1 00)", "3 1 1 00\u{0}", "３ 1 1 00",
            // The upper case of these characters is an ASCII letter, or they are equivalent to one.
            "3 \u{17F}pki 1 00", "P\u{212A}IX-TA 1 1 00", "3 1 PrivCert 00",
        ]) func otherTextIsRejected(_ text: String)
    {
        let error = thrown { try TLSARecord(text) }
        #expect(error?.code == .invalidTLSARecord && error?.fault == .caller)
    }

    @Test func longTextIsRejected() throws {
        #expect(try TLSARecord("3 1 0 " + String(repeating: "00", count: 65_532)).data.count == 65_532)
        #expect(thrown { try TLSARecord("3 1 0 " + String(repeating: "00", count: 65_533)) }?.code == .invalidTLSARecord)
        #expect(thrown { try TLSARecord(String(repeating: " ", count: 200_001)) }?.message.contains("at most") == true)
    }

    @Test func recordsAreMadeForCertificates() throws {
        let certificate = try TLSCertificate(pem: CertificateAuthority(name: "Test").rootPEM)
        #expect(try TLSARecord(for: certificate).text == "3 1 1 \(certificate.publicKeySHA256.hexadecimal)")
        let whole = try TLSARecord(for: certificate, usage: .daneTA, selector: .certificate)
        #expect(whole.text == "2 0 1 \(certificate.sha256Fingerprint.hexadecimal)")
        #expect(try TLSARecord(for: certificate, selector: .certificate, matchingType: .full).data == certificate.derBytes)
        #expect(try TLSARecord(for: certificate, matchingType: .sha512).data.count == 64)
        // The next key of a server has no certificate yet.
        #expect(try TLSARecord(forPublicKey: certificate.publicKey) == TLSARecord(for: certificate))
        for record in try [
            TLSARecord(for: certificate), TLSARecord(for: certificate, selector: .certificate, matchingType: .full),
            TLSARecord(for: certificate, usage: .daneTA, matchingType: .full),
        ] { #expect(record.isUsable && record.matches(certificate)) }
    }

    @Test func recordsAreNotMadeWithUnknownNumbers() throws {
        let certificate = try TLSCertificate(pem: CertificateAuthority(name: "Test").rootPEM)
        let errors = [
            thrown { try TLSARecord(for: certificate, usage: .init(rawValue: 4)) },
            thrown { try TLSARecord(for: certificate, selector: .init(rawValue: 2)) },
            thrown { try TLSARecord(for: certificate, matchingType: .init(rawValue: 3)) },
            thrown { try TLSARecord(forPublicKey: certificate.publicKey, matchingType: .init(rawValue: 3)) },
            thrown { try TLSARecord(forPublicKey: certificate.derBytes) }, thrown { try TLSARecord(forPublicKey: []) },
        ]
        #expect(errors.allSatisfy { $0?.code == .invalidTLSARecord })
    }

    /// Records come from the network, and a client decodes the keys in them.
    @Test func expensiveKeysMatchNothing() throws {
        let described = try HandmadeCertificate("Described", HandmadeCertificate.authority)
        let usable = TLSARecord(
            usage: .daneTA, selector: .publicKey, matchingType: .full, data: try described.certificate.publicKey)
        #expect(usable.use == .comparable)
        var other = usable
        other.data.append(0)
        #expect(other.use == .unusable("its data is not a public key in DER") && !other.isUsable)
        // The identifier of a field (RFC 3279, 2.3.5) occurs only in explicit parameters.
        other.data += [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x01, 0x01]
        #expect(other.use == .matchesNothing("its key is on an unnamed curve") && other.isUsable)
        #expect(
            try DANEFixture.recordOfLargeKey.use
                == .matchesNothing("its data has an RSA key of 16384 bits, but at most 8192 are accepted"))
    }
}
