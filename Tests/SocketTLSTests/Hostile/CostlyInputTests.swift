import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// Inputs that would take seconds or hours to process are rejected early.
@Suite(.timeLimit(.patient)) struct CostlyInputTests {
    // MARK: - Stapled responses

    /// Returns a client's error for a server that staples these bytes.
    private func fault(
        of response: [UInt8], _ leaf: HandmadeCertificate, _ issuer: HandmadeCertificate, _ root: HandmadeCertificate
    )
        throws -> Int32?
    {
        var settings = try Fixture(.tls12, leaf: leaf, roots: [root]).client
        settings.values.ocspStapling = .required
        return try StaplingServer(leaf, chain: [issuer], response: response).error(of: settings).error?.verifyCode
    }

    /// Returns the response with `extra` among its certificates, after its signature.
    private func response(
        _ chain: (root: HandmadeCertificate, intermediate: HandmadeCertificate, leaf: HandmadeCertificate),
        extra: [HandmadeCertificate]
    )
        throws -> [UInt8]
    {
        let bytes = try chain.intermediate.response(about: chain.leaf)
        guard
            let old = bytes.withUnsafeBufferPointer({ buffer -> OpaquePointer? in
                var cursor = buffer.baseAddress
                return d2i_OCSP_RESPONSE(nil, &cursor, buffer.count)
            }), let basic = OCSP_response_get1_basic(old)
        else { throw TestFailure(what: "decoding") }
        for certificate in extra { OCSP_basic_add1_cert(basic, certificate.x509) }
        guard let new = OCSP_response_create(OCSP_RESPONSE_STATUS_SUCCESSFUL, basic) else { throw TestFailure(what: "encoding") }
        defer {
            OCSP_RESPONSE_free(old)
            OCSP_BASICRESP_free(basic)
            OCSP_RESPONSE_free(new)
        }
        var result = [UInt8](repeating: 0, count: Int(i2d_OCSP_RESPONSE(new, nil)))
        result.withUnsafeMutableBufferPointer { buffer in
            var cursor = buffer.baseAddress
            i2d_OCSP_RESPONSE(new, &cursor)
        }
        return result
    }

    @Test func aResponseWithManyCertificatesIsRefused() throws {
        let chain = try HandmadeCertificate.chain()
        let others = try (0..<5).map { _ in try HandmadeCertificate("Other", HandmadeCertificate.authority) }
        #expect(try fault(of: response(chain, extra: [others[0]]), chain.leaf, chain.intermediate, chain.root) == nil)
        #expect(
            try fault(of: response(chain, extra: others), chain.leaf, chain.intermediate, chain.root)
                == X509_V_ERR_OCSP_VERIFY_FAILED)
    }

    /// Bytes that contain the identifier of explicit curve parameters are not decoded.
    @Test(arguments: [1, 2] as [UInt8]) func aResponseWithADescribedCurveIsRefused(kindOfField: UInt8) throws {
        let chain = try HandmadeCertificate.chain()
        let identifier: [UInt8] = [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x01, kindOfField]
        let strange = try HandmadeCertificate("Other", HandmadeCertificate.authority, raw: [("1.2.3.4", identifier)])
        #expect(
            try fault(of: response(chain, extra: [strange]), chain.leaf, chain.intermediate, chain.root)
                == X509_V_ERR_OCSP_VERIFY_FAILED)
    }

    // MARK: - Key files

    private static func encrypted(_ key: OpaquePointer, rounds: Int32) throws -> (der: [UInt8], pem: String) {
        guard let info = EVP_PKEY2PKCS8(key) else { throw TestFailure(what: "EVP_PKEY2PKCS8") }
        defer { PKCS8_PRIV_KEY_INFO_free(info) }
        guard let envelope = PKCS8_encrypt(-1, EVP_aes_256_cbc(), "sesame", 6, nil, 0, rounds, info) else {
            throw TestFailure(what: "PKCS8_encrypt")
        }
        defer { X509_SIG_free(envelope) }
        return (
            try MemoryBytes.written { i2d_PKCS8_bio($0, envelope) }, MemoryBIO.text { PEM_write_bio_PKCS8($0, envelope) } ?? ""
        )
    }

    /// Changes only the number in the file, which turns a tenth of a second's work into hours.
    private static func with(_ rounds: [UInt8], insteadOf old: [UInt8], in der: [UInt8]) throws -> [UInt8] {
        guard let place = (0...(der.count - old.count)).first(where: { Array(der[$0..<$0 + old.count]) == old }) else {
            throw TestFailure(what: "the rounds are not there")
        }
        return Array(der[..<place]) + rounds + Array(der[(place + old.count)...])
    }

    @Test func anEncryptedKeyThatTakesHoursIsRefused() throws {
        let key = try HandmadeCertificate("Key", HandmadeCertificate.authority)
        let good = try Self.encrypted(key.key, rounds: 0x0102_0304)
        // A four-byte INTEGER with its maximum value.
        let bad = try Self.with([2, 4, 0x7F, 0xFF, 0xFF, 0xFF], insteadOf: [2, 4, 1, 2, 3, 4], in: good.der)
        let pem =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\n" + Data(bad).base64EncodedString(options: .lineLength64Characters)
            + "\n-----END ENCRYPTED PRIVATE KEY-----\n"
        // OpenSSL may skip a block that it cannot read.
        let broken = "-----BEGIN PRIVATE KEY-----\n%%%%\n-----END PRIVATE KEY-----\n"
        let foreign = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"
        for error in [
            thrown { try TLSPrivateKey(der: bad, passphrase: "sesame") },
            thrown { try TLSPrivateKey(pem: pem, passphrase: "sesame") },
            thrown { try TLSPrivateKey(pem: broken + pem, passphrase: "sesame") },
            thrown { try TLSPrivateKey(pem: broken + foreign + broken + pem, passphrase: "sesame") },
        ] {
            #expect(error?.code == .invalidPrivateKey)
            #expect(error?.message.contains("rounds of key derivation") == true, "\(String(describing: error))")
        }
    }

    @Test func anEncryptedKeyWithUsualRoundsIsRead() throws {
        let key = try HandmadeCertificate("Key", HandmadeCertificate.authority)
        let (der, pem) = try Self.encrypted(key.key, rounds: 100_000)
        #expect(
            try TLSPrivateKey(der: der, passphrase: "sesame").publicKey == TLSPrivateKey(pem: pem, passphrase: "sesame").publicKey
        )
    }

    // MARK: - Early data after another ClientHello

    /// Returns a server's message with these extensions.
    private static func message(_ extensions: [Int]) -> [UInt8] {
        let list: [UInt8] = extensions.flatMap { number -> [UInt8] in [0, UInt8(number), 0, 2, 9, 9] }
        let header: [UInt8] = [8, 0, 0, UInt8(list.count + 2), 0, UInt8(list.count)]
        return header + list
    }

    @Test(arguments: [([16, 42, 0], 12), ([42], 6), ([10, 16], nil), ([], nil)] as [([Int], Int?)])
    func theExtensionOfEarlyDataIsFound(extensions: [Int], place: Int?) {
        Self.message(extensions).withUnsafeBytes { #expect(EncryptedExtensions($0).placeOfEarlyData == place) }
    }

    @Test func aMessageThatIsCutShortIsNotReadBeyondItsEnd() {
        let whole = Self.message([16, 10, 42])
        for count in 0..<whole.count - 5 {
            whole.prefix(count).withUnsafeBytes { #expect(EncryptedExtensions($0).placeOfEarlyData == nil) }
        }
    }

    // MARK: - The key log

    @Test func aLogThatOthersMayReadIsRefused() throws {
        let file = try TemporaryFile("")
        var fixture = try Fixture()
        fixture.client.keyLogFile = file.path
        for mode in [0o644, 0o660, 0o602] as [mode_t] {
            chmod(file.path, mode)
            #expect(thrown { try fixture.pair() }?.message.contains("other users can read it") == true, "\(mode)")
        }
        chmod(file.path, 0o600)
        _ = try fixture.pair()
    }

    @Test func aLogBehindASymbolicLinkIsRefused() throws {
        let file = try TemporaryFile("")
        let link = file.path + ".link"
        #expect(symlink(file.path, link) == 0)
        defer { unlink(link) }
        var fixture = try Fixture()
        fixture.client.keyLogFile = link
        #expect(thrown { try fixture.pair() }?.message.contains("symbolic link") == true)
    }
}
