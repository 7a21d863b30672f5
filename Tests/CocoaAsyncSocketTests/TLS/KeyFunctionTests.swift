import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTLS
import SocketTestSupport
import Testing

/// `SecKey` and its neighbours, as called by files that import the module Security.
@Suite struct KeyFunctionTests {
    private static let kinds: [(CertificateAuthority.KeyType, isRSA: Bool)] = [(.p256, false), (.rsa2048, true)]

    private func issued(_ kind: CertificateAuthority.KeyType) throws -> (certificate: SecCertificate, key: String) {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]), keyType: kind)
        let der = try TLSCertificate(pem: issued.certificatePEM).derBytes
        return (try #require(SecCertificateCreateWithData(nil, Data(der) as CFData)), issued.privateKeyPEM)
    }

    @Test(arguments: kinds) func aPublicKeyComesBackFromItsBytes(_ kind: CertificateAuthority.KeyType, isRSA: Bool) throws {
        let key = try #require(SecCertificateCopyKey(issued(kind).certificate))
        let data = try #require(SecKeyCopyExternalRepresentation(key, nil)) as Data
        let made = KeySpellings.key(data, rsa: isRSA)
        #expect(made.key == key && made.code == nil)
        #expect(made.key.flatMap { SecKeyCopyPublicKey($0) } == key)
        // The other type, the other class, and damaged bytes.
        #expect(KeySpellings.key(data, rsa: !isRSA).key == nil)
        #expect(KeySpellings.key(data, rsa: isRSA, isPrivate: true).key == nil)
        for damaged in [Data(), Data([4]), data.dropLast(), data + [0], Data(data.reversed())] {
            let refused = KeySpellings.key(damaged, rsa: isRSA)
            #expect(refused.key == nil && refused.code == Int(errSecParam))
        }
    }

    /// The private forms, made with openssl's encodings.
    @Test func aPrivateKeyComesBackFromItsBytes() throws {
        let rsa = try issued(.rsa2048)
        let pkcs1 = try TestIdentity.der(ofKey: rsa.key, ["rsa", "-traditional"])
        let made = KeySpellings.key(pkcs1, rsa: true, isPrivate: true)
        #expect(made.key.flatMap { SecKeyCopyPublicKey($0) } == SecCertificateCopyKey(rsa.certificate))
        #expect(made.key.flatMap { SecKeyCopyExternalRepresentation($0, nil) } == nil)

        let curve = try issued(.p256)
        let sec1 = try TestIdentity.der(ofKey: curve.key, ["ec"])
        // SEQUENCE, version, OCTET STRING of 32 bytes; and the public point at the end.
        let (secret, point) = (sec1[7..<39], sec1.suffix(65))
        let x963 = KeySpellings.key(point + secret, rsa: false, isPrivate: true)
        #expect(x963.key.flatMap { SecKeyCopyPublicKey($0) } == SecCertificateCopyKey(curve.certificate))
        #expect(KeySpellings.key(point + Data(count: 32), rsa: false, isPrivate: true).key == nil)
    }

    /// The lengths of these keys need one byte, or two, in DER.
    @Test(arguments: [
        (["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], false),
        (["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"], false),
        (["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"], true),
        (["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096"], true),
    ]) func keysOfEachSizeComeBackFromTheirBytes(_ command: [String], isRSA: Bool) throws {
        let key = try #require(KeySpellings.key(try TestIdentity.publicKey(command), rsa: isRSA).key)
        let data = try #require(SecKeyCopyExternalRepresentation(key, nil)) as Data
        #expect(KeySpellings.key(data, rsa: isRSA).key == key)
    }

    @Test func anIdentityHasThePublicKeyOfItsCertificate() throws {
        let made = try TestIdentity.make()
        #expect(KeySpellings.publicKey(of: made.identity) == SecCertificateCopyKey(made.certificate))
        #expect(KeySpellings.publicKey(of: made.identity) != nil)
    }

    @Test func wrongAttributesAreErrors() {
        for attributes in [
            [:], [kSecAttrKeyType as String: kSecAttrKeyTypeRSA], [kSecAttrKeyClass as String: kSecAttrKeyClassPublic],
        ] {
            var error: Unmanaged<CFError>?
            #expect(SecKeyCreateWithData(Data([1]) as CFData, attributes as CFDictionary, &error) == nil)
            #expect((error?.takeRetainedValue()).map { CFErrorGetCode($0) } == Int(errSecParam))
        }
    }

    @Test func randomBytesDiffer() throws {
        let bytes = try (0..<8).map { _ in try #require(KeySpellings.randomBytes(1_000)) }
        #expect(Set(bytes).count == 8 && bytes.allSatisfy { Set($0).count > 100 })
        #expect(KeySpellings.randomBytes(0)?.isEmpty != false)
        var byte: UInt8 = 7
        #expect(SecRandomCopyBytes(kSecRandomDefault, -1, &byte) == errSecParam && byte == 7)
    }

    @Test func objectsAreComparedByValue() throws {
        let one = try issued(.p256)
        let copy = try #require(SecCertificateCreateWithData(nil, SecCertificateCopyData(one.certificate)))
        #expect(KeySpellings.areEqual(one.certificate, copy) && copy !== one.certificate)
        #expect(try !KeySpellings.areEqual(one.certificate, issued(.p256).certificate))
        #expect(CFEqual(nil, nil) && !CFEqual(copy, nil) && CFEqual("a" as NSString, "a" as NSString))
        #expect(KeySpellings.isDuplicate == -25_299)
    }
}
