import AsyncSocketsTesting
import COpenSSL
import Glibc
import SocketTLS
import SocketTestTraits
import Testing

@Suite(.ownThreads) struct PKCS12Tests {
    private let authority: CertificateAuthority
    private let issued: IssuedCertificate
    private let identity: TLSIdentity
    private let key: WrittenKey

    init() throws {
        authority = try CertificateAuthority(name: "Test")
        issued = try authority.issue(.server(names: ["a.example.org"]))
        identity = try issued.identity()
        key = try WrittenKey(pem: issued.privateKeyPEM)
    }

    private func archive(
        _ encryption: WrittenKey.Encryption = .aes, passphrase: String? = "sesame", others: [TLSCertificate]? = nil,
        hasMAC: Bool = true
    ) throws -> [UInt8] {
        try key.pkcs12(
            certificate: identity.certificateChain[0], others: others ?? Array(identity.certificateChain.dropFirst()),
            passphrase: passphrase, encryption, hasMAC: hasMAC)
    }

    @Test func anIdentityIsReadFromBytesAndFile() throws {
        let bytes = try archive()
        let file = try TemporaryFile(bytes: bytes)
        #expect(try TLSIdentity(pkcs12: bytes, passphrase: "sesame") == identity)
        #expect(try TLSIdentity(pkcs12: bytes, passphrase: "sesame", allowsLegacyAlgorithms: true) == identity)
        #expect(try TLSIdentity(pkcs12File: file.path, passphrase: "sesame") == identity)
        #expect(try TLSIdentity(pkcs12File: file.path) { "sesame" } == identity)
        #expect(thrownCode { try TLSIdentity(pkcs12File: "/nonexistent/a.p12", passphrase: "sesame") } == .invalidCertificate)
    }

    @Test func theChainBeginsAtTheLeafWhateverTheOrder() throws {
        let root = try TLSCertificate(pem: authority.rootPEM)
        let stranger = try TLSCertificate(pem: CertificateAuthority(name: "Somebody else").intermediatePEM)
        let intermediate = identity.certificateChain[1]
        for others in [[root, intermediate, stranger], [stranger, intermediate, root], [intermediate, root]] {
            let read = try TLSIdentity(pkcs12: archive(others: others), passphrase: "sesame")
            #expect(read.certificateChain.map(\.commonName) == ["a.example.org", "Test Intermediate"])
        }
    }

    @Test(arguments: ["wrong", "", nil]) func aWrongPassphraseIsSaid(passphrase: String?) throws {
        let bytes = try archive()
        let error = thrown { try TLSIdentity(pkcs12: bytes, passphrase: passphrase) }
        #expect(error?.code == .invalidPrivateKey)
        let reason = passphrase == nil ? "no passphrase was given" : "passphrase is wrong"
        #expect(error?.message.hasPrefix("the PKCS#12 file is encrypted, ") == true)
        #expect(error?.message.contains(reason) == true)
    }

    @Test func anEncryptedFileNeedsAMAC() throws {
        let bytes = try archive(hasMAC: false)
        #expect(thrown { try TLSIdentity(pkcs12: bytes, passphrase: "sesame") }?.message.contains("has no MAC") == true)
    }

    @Test func theClosureIsCalledOnceAndOnlyIfItIsNeeded() throws {
        var calls = 0
        let ask = {
            calls += 1
            return "sesame"
        }
        #expect(try TLSIdentity(pkcs12: archive(), passphrase: ask) == identity)
        #expect(calls == 1)
        for passphrase in [nil, ""] {
            #expect(try TLSIdentity(pkcs12: archive(passphrase: passphrase), passphrase: ask) == identity)
        }
        #expect(try TLSIdentity(pkcs12: archive(.none, hasMAC: false), passphrase: ask) == identity)
        #expect(calls == 1)
    }

    @Test(arguments: ["sesame", "", nil]) func everyCertificateIsListedInTheOrderOfTheFile(passphrase: String?) throws {
        let root = try TLSCertificate(pem: authority.rootPEM)
        let stranger = try TLSCertificate(pem: CertificateAuthority(name: "Somebody else").intermediatePEM)
        let others = [stranger, root, identity.certificateChain[1]]
        for encryption in [WrittenKey.Encryption.aes, .rc2] {
            let bytes = try archive(encryption, passphrase: passphrase, others: others)
            let read = try TLSCertificate.certificates(pkcs12: bytes, allowsLegacyAlgorithms: true) { "sesame" }
            #expect(read == [identity.certificateChain[0]] + others)
        }
    }

    @Test func certificatesNeedNoKeyButARightPassphrase() throws {
        let leaf = identity.certificateChain[0]
        let keyless = try key.pkcs12(certificate: leaf, passphrase: "sesame", hasKey: false)
        #expect(try TLSCertificate.certificates(pkcs12: keyless) { "sesame" } == [leaf])
        #expect(thrownCode { try TLSCertificate.certificates(pkcs12: keyless) { "wrong" } } == .invalidPrivateKey)
        #expect(thrownCode { try TLSCertificate.certificates(pkcs12: archive(.rc2)) { "sesame" } } == .invalidPrivateKey)
        #expect(thrownCode { try TLSCertificate.certificates(pkcs12: leaf.derBytes) { "" } } == .invalidCertificate)
        let empty = try key.pkcs12(certificate: nil, others: [], passphrase: "sesame")
        #expect(
            thrown { try TLSCertificate.certificates(pkcs12: empty) { "sesame" } }?.message.contains("no certificates") == true)
    }

    @Test(arguments: [WrittenKey.Encryption.rc2, .tripleDES])
    func oldAlgorithmsNeedPermission(encryption: WrittenKey.Encryption) throws {
        let bytes = try archive(encryption)
        var calls = 0
        let refused = thrown {
            try TLSIdentity(pkcs12: bytes) {
                calls += 1
                return "sesame"
            }
        }
        #expect(refused?.code == .invalidPrivateKey)
        #expect(refused?.message.contains(encryption == .rc2 ? "RC2" : "3-KeyTripleDES") == true, "\(refused?.message ?? "")")
        #expect(calls == 0)
        let read = try TLSIdentity(pkcs12: bytes, passphrase: "sesame", allowsLegacyAlgorithms: true)
        #expect(read == identity)
        let wrong = thrown { try TLSIdentity(pkcs12: bytes, passphrase: "wrong", allowsLegacyAlgorithms: true) }
        #expect(wrong?.message.contains("passphrase is wrong") == true)
    }

    /// The key belongs to a library context that is freed before the handshake.
    @Test(arguments: versions) func aKeyFromAnOldFileSigns(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        let issued = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa2048)
        let chain = try issued.identity().certificateChain
        let bytes = try WrittenKey(pem: issued.privateKeyPEM).pkcs12(
            certificate: chain[0], others: [chain[1]], passphrase: "sesame", .rc2)
        fixture.server.identity = try TLSIdentity(pkcs12: bytes, passphrase: "sesame", allowsLegacyAlgorithms: true)
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.session?.peerCertificates == chain)
    }

    @Test func theRestOfTheProcessGetsNoOldAlgorithms() throws {
        _ = try TLSIdentity(pkcs12: archive(.rc2), passphrase: "sesame", allowsLegacyAlgorithms: true)
        let cipher = EVP_CIPHER_fetch(nil, "RC2-40-CBC", nil)
        defer { EVP_CIPHER_free(cipher) }
        #expect(cipher == nil)
        #expect(OSSL_PROVIDER_available(nil, "legacy") == 0)
    }

    @Test func aFileWithoutAKeyOrItsCertificateIsRefused() throws {
        let leaf = identity.certificateChain[0]
        let keyless = try key.pkcs12(certificate: leaf, passphrase: "sesame", hasKey: false)
        let noKey = thrown { try TLSIdentity(pkcs12: keyless, passphrase: "sesame") }
        #expect(noKey?.code == .invalidPrivateKey)
        #expect(noKey?.message == "the PKCS#12 file contains no private key")
        let alone = try key.pkcs12(certificate: nil, others: [identity.certificateChain[1]], passphrase: "sesame")
        let noCertificate = thrown { try TLSIdentity(pkcs12: alone, passphrase: "sesame") }
        #expect(noCertificate?.code == .invalidCertificate)
        #expect(noCertificate?.message == "the PKCS#12 file contains no certificate for its private key")
    }

    /// An iteration count in the file determines how long it takes to check a passphrase. The maximum takes
    /// minutes.
    @Test func aFileThatTakesMinutesToOpenIsRefused() throws {
        for passphrase in ["sesame", nil] {
            let error = thrown {
                try TLSIdentity(pkcs12: Self.withIterations(.max, archive(passphrase: "")), passphrase: passphrase)
            }
            #expect(error?.code == .invalidPrivateKey)
            #expect(error?.message.contains("rounds of key derivation") == true, "\(error?.message ?? "")")
        }
    }

    /// Returns the same file with a different iteration count for its MAC.
    private static func withIterations(_ count: Int32, _ bytes: [UInt8]) throws -> [UInt8] {
        let archive = bytes.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            return d2i_PKCS12(nil, &cursor, bytes.count)
        }
        defer { PKCS12_free(archive) }
        guard PKCS12_setup_mac(archive, count, nil, 8, EVP_sha256()) == 1 else { throw TestFailure(what: "PKCS12_setup_mac") }
        return try MemoryBytes.written { i2d_PKCS12_bio($0, archive) }
    }

    /// A MAC according to RFC 9879 has its count in the parameters of the algorithm. OpenSSL 3.4 and newer
    /// verify such a MAC.
    @Test func theCountOfAPBMAC1IsLimited() throws {
        let bytes = try Self.withPBMAC1(.max, archive())
        let error = thrown { try TLSIdentity(pkcs12: bytes, passphrase: "sesame") }
        #expect(error?.code == .invalidPrivateKey)
        #expect(error?.message.contains("rounds of key derivation") == true, "\(error?.message ?? "")")
    }

    /// Returns the same file with an incorrect MAC in the format of RFC 9879.
    private static func withPBMAC1(_ count: Int32, _ bytes: [UInt8]) throws -> [UInt8] {
        let archive = bytes.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            return d2i_PKCS12(nil, &cursor, bytes.count)
        }
        defer { PKCS12_free(archive) }
        var algorithm: UnsafePointer<X509_ALGOR>?
        PKCS12_get0_mac(nil, &algorithm, nil, nil, archive)
        let derivation = PKCS5_pbkdf2_set(count, nil, 16, NID_hmacWithSHA256, 32)
        defer { X509_ALGOR_free(derivation) }
        var encoding: UnsafeMutablePointer<UInt8>?
        let length = Int(i2d_X509_ALGOR(derivation, &encoding))
        defer { COpenSSL_free(encoding) }
        // hmacWithSHA256, without parameters.
        let mac: [UInt8] = [0x30, 10, 6, 8, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 2, 9]
        let contents = Array(UnsafeBufferPointer(start: encoding, count: length)) + mac
        let parameters = ASN1_STRING_type_new(V_ASN1_SEQUENCE)
        ASN1_STRING_set(parameters, [0x30, UInt8(contents.count)] + contents, Int32(contents.count) + 2)
        X509_ALGOR_set0(
            UnsafeMutablePointer(mutating: algorithm), OBJ_nid2obj(NID_pbmac1), V_ASN1_SEQUENCE,
            UnsafeMutableRawPointer(parameters))
        return try MemoryBytes.written { i2d_PKCS12_bio($0, archive) }
    }

    private typealias SetPBMAC1 =
        @convention(c) (
            OpaquePointer?, UnsafePointer<CChar>?, CInt, UnsafePointer<UInt8>?, CInt, CInt, OpaquePointer?, UnsafePointer<CChar>?
        ) -> CInt

    @Test(.enabled(if: dlsym(nil, "PKCS12_set_pbmac1_pbkdf2") != nil, "OpenSSL 3.4 introduced this MAC"))
    func aFileWithAPBMAC1IsRead() throws {
        let set = unsafeBitCast(try #require(dlsym(nil, "PKCS12_set_pbmac1_pbkdf2")), to: SetPBMAC1.self)
        let bytes = try archive(hasMAC: false)
        let archive = bytes.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            return d2i_PKCS12(nil, &cursor, bytes.count)
        }
        defer { PKCS12_free(archive) }
        #expect(set(archive, "sesame", -1, nil, 16, 10_000, EVP_sha256(), nil) == 1)
        let written = try MemoryBytes.written { i2d_PKCS12_bio($0, archive) }
        #expect(try TLSIdentity(pkcs12: written, passphrase: "sesame") == identity)
    }

    /// The same for the count in each part, which each algorithm stores in a different place.
    @Test(arguments: [WrittenKey.Encryption.aes, .tripleDES]) func theCountOfEachPartIsLimited(
        _ encryption: WrittenKey.Encryption
    ) throws {
        let bytes = try archive(encryption, passphrase: "")
        // 2,048 iterations, the default.
        let places = (0..<bytes.count - 4).filter { bytes[$0...].starts(with: [2, 2, 8, 0]) }
        #expect(places.count >= 2)
        var seen = 0
        for place in places {
            var changed = bytes
            // A negative number.
            changed[place + 2] = 0xFF
            let error = thrown { try TLSIdentity(pkcs12: changed, passphrase: nil, allowsLegacyAlgorithms: true) }
            if error?.message.contains("rounds") == true { seen += 1 }
        }
        #expect(seen == places.count)
    }

    @Test func bytesThatAreNotPKCS12AreRefused() throws {
        let archive = try archive()
        let kinds: [(bytes: [UInt8], kind: String)] = [
            ([], "is not in PKCS#12 format"), ([0x30, 0x00], "is not in PKCS#12 format"),
            (archive.dropLast(20), "is truncated: its header specifies a length of \(archive.count) bytes"),
            (identity.certificateChain[0].derBytes, "is not in PKCS#12 format: it is a certificate"),
        ]
        for (bytes, kind) in kinds {
            for allowsLegacyAlgorithms in [false, true] {
                let error = thrown {
                    try TLSIdentity(pkcs12: bytes, passphrase: "sesame", allowsLegacyAlgorithms: allowsLegacyAlgorithms)
                }
                #expect(error?.code == .invalidCertificate)
                #expect(error?.message == "the PKCS#12 file \(kind)")
            }
        }
    }
}
