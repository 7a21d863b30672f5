// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation
internal import SocketTLS

/// A certificate with its private key, for use as the first item of `kCFStreamSSLCertificates`.
public final class SecIdentity: SecCertificate, @unchecked Sendable {
    // Unchecked, like its superclass.
    let identity: TLSIdentity

    init(_ identity: TLSIdentity, _ leaf: TLSCertificate) {
        self.identity = identity
        super.init(leaf)
    }

    override var plainCertificate: TLSCertificate? { nil }

    /// Returns whether both are identities with equal chains and keys.
    public override func isEqual(_ object: Any?) -> Bool {
        (object as? SecIdentity)?.identity == identity
    }
}

/// Stores an identity's certificate in `certificate`.
@discardableResult
public func SecIdentityCopyCertificate(
    _ identity: SecIdentity, _ certificate: UnsafeMutablePointer<SecCertificate?>
) -> OSStatus {
    certificate.pointee = identity.identity.certificateChain.first.map { SecCertificate($0) }
    return errSecSuccess
}

/// Stores a reference to an identity's private key in `privateKey`.
@discardableResult
public func SecIdentityCopyPrivateKey(
    _ identity: SecIdentity, _ privateKey: UnsafeMutablePointer<SecKey?>
) -> OSStatus {
    privateKey.pointee = SecKey(.privateKey(identity.identity.privateKey))
    return errSecSuccess
}

/// The key for the passphrase in the options of `SecPKCS12Import`.
public var kSecImportExportPassphrase: CFString { "passphrase" }
/// The key for the identity in the items of `SecPKCS12Import`.
public var kSecImportItemIdentity: CFString { "identity" }
/// The key for the identity's chain in the items of `SecPKCS12Import`.
public var kSecImportItemCertChain: CFString { "chain" }
/// The key for the identity's trust in the items of `SecPKCS12Import`.
public var kSecImportItemTrust: CFString { "trust" }
/// The key for the identity's label in the items of `SecPKCS12Import`.
public var kSecImportItemLabel: CFString { "label" }
/// The key for the SHA-256 digest of the public key in the items of `SecPKCS12Import`.
public var kSecImportItemKeyID: CFString { "keyid" }

/// Reads a PKCS#12 file and stores an array with one dictionary for its identity and chain. The array is
/// empty if the file has no private key.
///
/// The chain includes the root if the file contains it. The root is not sent in a handshake. The identity is
/// not added to a keychain. Files from old programs, encrypted with RC2 or 3DES, are supported too.
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
    /// Tries old algorithms last, because they need a provider that may not be installed.
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
        item[kSecImportItemCertChain] = chain.map { SecCertificate($0) } as NSArray
        item[kSecImportItemTrust] = SecTrust(chain, EvaluationSettings())
        if let leaf = chain.first {
            item[kSecImportItemIdentity] = SecIdentity(contents.identity, leaf)
            item[kSecImportItemLabel] = (leaf.commonName ?? leaf.subject) as NSString
            item[kSecImportItemKeyID] = Data(leaf.publicKeySHA256) as NSData
        }
        return item
    }
}

// MARK: - The Keychain

/// Searches the Keychain, which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: read the identity from a file, with SecPKCS12Import")
@discardableResult
public func SecItemCopyMatching(_ query: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    errSecUnimplemented
}

/// Adds an item to the Keychain, which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file")
@discardableResult
public func SecItemAdd(_ attributes: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    errSecUnimplemented
}

/// Deletes an item from the Keychain, which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file")
@discardableResult
public func SecItemDelete(_ query: CFDictionary) -> OSStatus { errSecUnimplemented }

/// A Keychain constant (the class of an item), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecClass: CFString { "kSecClass" }
/// A Keychain constant (certificates), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecClassCertificate: CFString { "kSecClassCertificate" }
/// A Keychain constant (identities), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecClassIdentity: CFString { "kSecClassIdentity" }
/// A Keychain constant (keys), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecClassKey: CFString { "kSecClassKey" }
/// A Keychain constant (the label of an item), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecAttrLabel: CFString { "kSecAttrLabel" }
/// A Keychain constant (when an item is accessible), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecAttrAccessible: CFString { "kSecAttrAccessible" }
/// A Keychain constant (items that are accessible after the first unlock), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecAttrAccessibleAfterFirstUnlock: CFString { "kSecAttrAccessibleAfterFirstUnlock" }
/// A Keychain constant (items that stay on this device), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly: CFString { "kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly" }
/// A Keychain constant (an item's reference), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecValueRef: CFString { "kSecValueRef" }
/// A Keychain constant (an item's data), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecValueData: CFString { "kSecValueData" }
/// A Keychain constant (whether to return a reference), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecReturnRef: CFString { "kSecReturnRef" }
/// A Keychain constant (whether to return data), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecReturnData: CFString { "kSecReturnData" }
/// A Keychain constant (the number of results), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecMatchLimit: CFString { "kSecMatchLimit" }
/// A Keychain constant (a single result), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecMatchLimitOne: CFString { "kSecMatchLimitOne" }
/// A Keychain constant (all results), which is not available on Linux.
@available(*, unavailable, message: "Linux has no Keychain: keep the identity in a file, and read it with SecPKCS12Import")
public var kSecMatchLimitAll: CFString { "kSecMatchLimitAll" }
