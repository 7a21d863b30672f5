import CocoaAsyncSocket
import Foundation

enum IdentityError: LocalizedError {
    case wrongPassphrase
    case noIdentity
    case notPKCS12(OSStatus)

    var errorDescription: String? {
        switch self {
        case .wrongPassphrase: return "the passphrase is wrong"
        case .noIdentity: return "the file holds no identity"
        case .notPKCS12(let status): return "the file cannot be read (OSStatus \(status))"
        }
    }
}

/// A certificate with its key and chain.
struct Identity {
    /// The value for `kCFStreamSSLCertificates`: a `SecIdentity`, followed by the rest of its chain.
    let certificates: NSArray
    /// The subject of the certificate.
    let name: String

    init(file: URL, passphrase: String) throws {
        let data = try Data(contentsOf: file)
        let options = [kSecImportExportPassphrase as String: passphrase] as CFDictionary
        var rawItems: CFArray?
        let status = SecPKCS12Import(data as CFData, options, &rawItems)
        switch status {
        case errSecSuccess: break
        case errSecAuthFailed, errSecPkcs12VerifyFailure: throw IdentityError.wrongPassphrase
        default: throw IdentityError.notPKCS12(status)
        }
        guard let items = rawItems as? [[String: Any]], let item = items.first,
            let identity = item[kSecImportItemIdentity as String],
            let chain = item[kSecImportItemCertChain as String] as? [SecCertificate], let own = chain.first
        else { throw IdentityError.noIdentity }
        certificates = ([identity] + Array(chain.dropFirst())) as NSArray
        name = SecCertificateCopySubjectSummary(own) as String? ?? "?"
    }
}
