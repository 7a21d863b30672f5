// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation
internal import SocketTLS

/// A certificate with its private key: the first item of `kCFStreamSSLCertificates`.
public final class SecIdentity: NSObject, Sendable {
    let identity: TLSIdentity

    init(_ identity: TLSIdentity) {
        self.identity = identity
    }
}

/// Stores the certificate of an identity.
@discardableResult
public func SecIdentityCopyCertificate(
    _ identity: SecIdentity, _ certificate: UnsafeMutablePointer<SecCertificate?>
) -> OSStatus {
    certificate.pointee = identity.identity.certificateChain.first.map { SecCertificate($0) }
    return errSecSuccess
}

/// Stores the private key of an identity.
@discardableResult
public func SecIdentityCopyPrivateKey(
    _ identity: SecIdentity, _ privateKey: UnsafeMutablePointer<SecKey?>
) -> OSStatus {
    privateKey.pointee = SecKey(publicKeyInfo: nil)
    return errSecSuccess
}

/// The passphrase, a key of the options of `SecPKCS12Import`.
public var kSecImportExportPassphrase: CFString { "passphrase" }
/// The identity, a key of the items of `SecPKCS12Import`.
public var kSecImportItemIdentity: CFString { "identity" }
/// The chain of the identity, a key of the items of `SecPKCS12Import`.
public var kSecImportItemCertChain: CFString { "chain" }
/// The trust of the identity, a key of the items of `SecPKCS12Import`.
public var kSecImportItemTrust: CFString { "trust" }
/// The label of the identity, a key of the items of `SecPKCS12Import`.
public var kSecImportItemLabel: CFString { "label" }
/// The SHA-256 digest of the public key, a key of the items of `SecPKCS12Import`.
public var kSecImportItemKeyID: CFString { "keyid" }

/// Reads a PKCS#12 file: one dictionary with its identity and its chain, and none for a file without a
/// private key. The chain ends with the root if the file has it; a handshake does not send that.
///
/// Nothing is stored in a keychain. Files of old programs, with RC2 or 3DES, are read too.
@discardableResult
public func SecPKCS12Import(
    _ pkcs12_data: CFData, _ options: CFDictionary, _ items: UnsafeMutablePointer<CFArray?>
) -> OSStatus {
    guard let given = options.object(forKey: kSecImportExportPassphrase) else { return errSecPassphraseRequired }
    guard let passphrase = given as? String else { return errSecParam }
    do throws(TLSError) {
        let contents = try PKCS12Item.contents(of: Array(Data(referencing: pkcs12_data)), passphrase)
        items.pointee = contents.map { [PKCS12Item.dictionary(of: $0)] as NSArray } ?? []
        return errSecSuccess
    } catch {
        return error.code == .invalidPrivateKey ? errSecAuthFailed : errSecDecode
    }
}

private enum PKCS12Item {
    /// Old algorithms are tried last: they need a provider that may be missing.
    static func contents(of file: [UInt8], _ passphrase: String) throws(TLSError) -> PKCS12Contents? {
        do throws(TLSError) {
            return try TLSIdentity.contents(ofPKCS12: file, passphrase: passphrase)
        } catch {
            guard error.code == .invalidPrivateKey else { throw error }
            return try TLSIdentity.contents(ofPKCS12: file, passphrase: passphrase, allowsLegacyAlgorithms: true)
        }
    }

    static func dictionary(of contents: PKCS12Contents) -> NSDictionary {
        let chain = contents.identity.certificateChain + (contents.root.map { [$0] } ?? [])
        let item = NSMutableDictionary()
        item[kSecImportItemIdentity] = SecIdentity(contents.identity)
        item[kSecImportItemCertChain] = chain.map { SecCertificate($0) } as NSArray
        item[kSecImportItemTrust] = SecTrust(chain, EvaluationSettings())
        if let leaf = chain.first {
            item[kSecImportItemLabel] = (leaf.commonName ?? leaf.subject) as NSString
            item[kSecImportItemKeyID] = Data(leaf.publicKeySHA256) as NSData
        }
        return item
    }
}

// MARK: - The Keychain

/// Linux has no Keychain.
@available(*, unavailable, message: "Linux has no Keychain: read the identity from a file, with SecPKCS12Import")
@discardableResult
public func SecItemCopyMatching(_ query: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    errSecUnimplemented
}

/// Linux has no Keychain.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file")
@discardableResult
public func SecItemAdd(_ attributes: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    errSecUnimplemented
}

/// Linux has no Keychain.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file")
@discardableResult
public func SecItemDelete(_ query: CFDictionary) -> OSStatus { errSecUnimplemented }
