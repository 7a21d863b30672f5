import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct SecurityFunctionTests {
    @Test func importingPKCS12ReturnsTheIdentityAndItsChain() throws {
        let made = try TestIdentity.make()
        #expect(made.chain.count >= 1 && SecCertificateCopySubjectSummary(made.certificate) == "localhost")
        var certificate: SecCertificate?
        var key: SecKey?
        #expect(SecIdentityCopyCertificate(made.identity, &certificate) == errSecSuccess && certificate == made.certificate)
        #expect(SecIdentityCopyPrivateKey(made.identity, &key) == errSecSuccess)
        // A private key is never exported.
        var error: Unmanaged<CFError>?
        #expect(key.flatMap { SecKeyCopyExternalRepresentation($0, &error) } == nil)
        #expect(error?.takeRetainedValue().domain == NSOSStatusErrorDomain)
    }

    @Test func anIdentityIsNotEqualToItsCertificate() throws {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        let file = try TestIdentity.archive(issued)
        let identities = try (1...2).map { _ in
            try #require(Spellings.identity(pkcs12: file, passphrase: TestIdentity.passphrase).identity)
        }
        let other = try TestIdentity.make()
        var certificate: SecCertificate?
        #expect(SecIdentityCopyCertificate(identities[0], &certificate) == errSecSuccess)
        let leaf = try #require(certificate)
        #expect(!identities[0].isEqual(leaf) && !leaf.isEqual(identities[0]) && !CFEqual(leaf, identities[0]))
        #expect(identities[0] == identities[1] && Set(identities).count == 1 && identities[0] != other.identity)
        #expect(CFGetTypeID(identities[0]) == SecIdentityGetTypeID() && CFGetTypeID(leaf) == SecCertificateGetTypeID())
        #expect(identities[0].description.hasPrefix("SecIdentity(") && leaf.description.hasPrefix("SecCertificate("))
    }

    @Test func anIdentityIsNotAcceptedAsACertificate() throws {
        let made = try TestIdentity.make()
        var trust: SecTrust?
        #expect(SecTrustCreateWithCertificates(made.identity, nil, &trust) == errSecParam)
        #expect(SecTrustCreateWithCertificates([made.certificate, made.identity] as CFArray, nil, &trust) == errSecParam)
        #expect(SecTrustCreateWithCertificates(made.certificate, nil, &trust) == errSecSuccess)
        let created = try #require(trust)
        #expect(SecTrustSetAnchorCertificates(created, [made.identity] as CFArray) == errSecParam)
    }

    @Test func aPKCS12FileWithLegacyAlgorithmsIsImported() throws {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        let old = try TestIdentity.archive(issued, ["-legacy"])
        #expect(Spellings.identity(pkcs12: old, passphrase: TestIdentity.passphrase).status == errSecSuccess)
    }

    @Test func unreadablePKCS12FilesCauseSpecificErrorCodes() throws {
        let file = try TestIdentity.archive(TestCertificates.authority.issue(.server(names: ["localhost"])))
        #expect(Spellings.identity(pkcs12: file, passphrase: "wrong").status == errSecAuthFailed)
        #expect(Spellings.identity(pkcs12: Data([1, 2, 3]), passphrase: "sesame").status == errSecDecode)
        var items: CFArray?
        #expect(SecPKCS12Import(file as CFData, [String: String]() as CFDictionary, &items) == errSecPassphraseRequired)
        #expect(SecPKCS12Import(file as CFData, [kSecImportExportPassphrase as String: 3] as CFDictionary, &items) == errSecParam)
        #expect(items == nil)
    }

    @Test func importingPKCS12WithoutAKeyReturnsNoItems() throws {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        let file = try TestIdentity.archive(issued, ["-nokeys"])
        var items: CFArray?
        let options = [kSecImportExportPassphrase as String: TestIdentity.passphrase] as CFDictionary
        #expect(SecPKCS12Import(file as CFData, options, &items) == errSecSuccess && items?.count == 0)
        items = nil
        let wrong = [kSecImportExportPassphrase as String: "wrong"] as CFDictionary
        #expect(SecPKCS12Import(file as CFData, wrong, &items) == errSecAuthFailed && items == nil)
    }

    @Test func theChainOfAPKCS12FileEndsWithItsRoot() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("cocoa-" + UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let root = try TestCertificates.authority.writeRoot(to: folder.path)
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        let file = try TestIdentity.archive(issued, ["-certfile", root])
        let (_, identity, chain) = Spellings.identity(pkcs12: file, passphrase: TestIdentity.passphrase)
        try #require(chain.count == 3 && identity != nil)
        #expect(try chain.last == TestIdentity.root)
        #expect(try chain[1] == TestIdentity.certificate(pem: TestCertificates.authority.intermediatePEM))
    }

    @Test func importedPKCS12ItemsHaveAllDictionaryKeys() throws {
        let file = try TestIdentity.archive(TestCertificates.authority.issue(.server(names: ["localhost"])))
        var items: CFArray?
        let options = [kSecImportExportPassphrase as String: TestIdentity.passphrase] as CFDictionary
        #expect(SecPKCS12Import(file as CFData, options, &items) == errSecSuccess)
        let item = try #require((items as? [NSDictionary])?.first)
        #expect(item[kSecImportItemIdentity] is SecIdentity && item[kSecImportItemTrust] is SecTrust)
        #expect(item[kSecImportItemLabel] as? String == "localhost" && (item[kSecImportItemKeyID] as? Data)?.count == 32)
        #expect((item[kSecImportItemCertChain] as? NSArray)?.firstObject is SecCertificate)
    }

    @Test func aCertificateCanBeCreatedFromItsBytes() throws {
        let root = try TestIdentity.root
        let bytes = SecCertificateCopyData(root) as Data
        let again = try #require(SecCertificateCreateWithData(nil, bytes as CFData))
        #expect(again == root && again.hash == root.hash && Set([again, root]).count == 1)
        #expect(SecCertificateCreateWithData(kCFAllocatorDefault, Data([0x30, 0]) as CFData) == nil)
        var name: CFString?
        #expect(SecCertificateCopyCommonName(root, &name) == errSecSuccess && name?.length ?? 0 > 0)
    }

    @Test(arguments: [(CertificateAuthority.KeyType.p256, 65), (.rsa2048, 270)])
    func publicKeysAreExportedInApplesFormat(type: CertificateAuthority.KeyType, size: Int) throws {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]), keyType: type)
        let certificate = try TestIdentity.certificate(pem: issued.certificatePEM)
        var trust: SecTrust?
        #expect(SecTrustCreateWithCertificates(certificate, SecPolicyCreateBasicX509(), &trust) == errSecSuccess)
        let key = try #require(trust.flatMap(SecTrustCopyKey))
        let bytes = try #require(SecKeyCopyExternalRepresentation(key, nil)) as Data
        // An uncompressed point, or a sequence of modulus and exponent.
        #expect(bytes.count == size && bytes.first == (type == .p256 ? 0x04 : 0x30))
        #expect(key == SecCertificateCopyKey(certificate) && key == trust.flatMap(SecTrustCopyPublicKey))
    }

    @Test func aTrustObjectContainsTheCertificateChain() throws {
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        let leaf = try TestIdentity.certificate(pem: issued.certificatePEM)
        let intermediate = try TestIdentity.certificate(pem: TestCertificates.authority.intermediatePEM)
        var trust: SecTrust?
        let policy = SecPolicyCreateSSL(true, "localhost" as CFString)
        #expect(SecTrustCreateWithCertificates([leaf, intermediate] as CFArray, policy, &trust) == errSecSuccess)
        let made = try #require(trust)
        #expect(leaf != intermediate && !leaf.isEqual(nil))
        #expect(SecTrustGetCertificateCount(made) == 2 && SecTrustGetCertificateAtIndex(made, 1) == intermediate)
        #expect(SecTrustGetCertificateAtIndex(made, 2) == nil && SecTrustGetCertificateAtIndex(made, -1) == nil)
        #expect(SecTrustCopyCertificateChain(made) as? [SecCertificate] == [leaf, intermediate])
        var result = SecTrustResultType.proceed
        #expect(SecTrustGetTrustResult(made, &result) == errSecSuccess && result == .invalid)
        #expect(SecTrustEvaluate(made, &result) == errSecSuccess && result == .recoverableTrustFailure)
        #expect(SecTrustSetAnchorCertificates(made, [try TestIdentity.root] as CFArray) == errSecSuccess)
        #expect(SecTrustEvaluate(made, &result) == errSecSuccess && result == .unspecified)
        // Without anchors, the system's roots are used again.
        #expect(SecTrustSetAnchorCertificates(made, nil) == errSecSuccess && !SecTrustEvaluateWithError(made, nil))
    }

    @Test func aTrustObjectRejectsInvalidArguments() throws {
        var trust: SecTrust?
        #expect(SecTrustCreateWithCertificates([NSNull()] as CFArray, nil, &trust) == errSecParam && trust == nil)
        #expect(SecTrustCreateWithCertificates([] as CFArray, nil, &trust) == errSecParam)
        #expect(SecTrustCreateWithCertificates(try TestIdentity.root, nil, &trust) == errSecSuccess)
        let made = try #require(trust)
        #expect(SecTrustSetAnchorCertificates(made, ["root"] as CFArray) == errSecParam)
        #expect(SecTrustSetPolicies(made, NSNull()) == errSecParam)
        // A name that cannot be verified must not disable the verification of names.
        _ = SecTrustSetAnchorCertificates(made, [try TestIdentity.root] as CFArray)
        _ = SecTrustSetPolicies(made, SecPolicyCreateSSL(true, "" as CFString))
        #expect(!SecTrustEvaluateWithError(made, nil))
    }

    @Test func aServersOwnCertificateCanBeATrustAnchor() throws {
        let issued = try TestCertificates.stranger.issue(.server(names: ["localhost"]))
        let leaf = try TestIdentity.certificate(pem: issued.certificatePEM)
        var trust: SecTrust?
        _ = SecTrustCreateWithCertificates(leaf, SecPolicyCreateSSL(true, "localhost" as CFString), &trust)
        let made = try #require(trust)
        #expect(!SecTrustEvaluateWithError(made, nil))
        _ = SecTrustSetAnchorCertificates(made, [leaf] as CFArray)
        #expect(SecTrustEvaluateWithError(made, nil))
        _ = SecTrustSetAnchorCertificatesOnly(made, false)
        #expect(SecTrustEvaluateWithError(made, nil))
        // The certificate is for a server, not for a client.
        _ = SecTrustSetPolicies(made, SecPolicyCreateSSL(false, nil))
        #expect(!SecTrustEvaluateWithError(made, nil))
    }

    @Test func aTrustEvaluationChecksTheValidityDates() throws {
        for (validity, code) in [
            (CertificateAuthority.Validity.expired, errSecCertificateExpired), (.notYetValid, errSecCertificateNotValidYet),
        ] {
            let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]), validity: validity)
            var trust: SecTrust?
            let leaf = try TestIdentity.certificate(pem: issued.certificatePEM)
            let intermediate = try TestIdentity.certificate(pem: TestCertificates.authority.intermediatePEM)
            _ = SecTrustCreateWithCertificates([leaf, intermediate] as CFArray, nil, &trust)
            let made = try #require(trust)
            _ = SecTrustSetAnchorCertificates(made, [try TestIdentity.root] as CFArray)
            var error: CFError?
            #expect(!SecTrustEvaluateWithError(made, &error) && error?.code == Int(code))
        }
    }
}
