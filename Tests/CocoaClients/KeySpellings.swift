// As written for Apple platforms: the file does not import CocoaAsyncSocket.
import Foundation
import Security

/// Keys and random numbers, as pinning code uses them.
package enum KeySpellings {
    package static func randomBytes(_ count: Int) -> Data? {
        var data = Data(count: count)
        let status = data.withUnsafeMutableBytes { room in
            room.baseAddress.map { SecRandomCopyBytes(kSecRandomDefault, count, $0) } ?? errSecParam
        }
        return status == errSecSuccess ? data : nil
    }

    package static func publicKey(of identity: SecIdentity) -> SecKey? {
        var privateKey: SecKey?
        guard SecIdentityCopyPrivateKey(identity, &privateKey) == errSecSuccess, let key = privateKey else { return nil }
        return SecKeyCopyPublicKey(key)
    }

    package static func key(_ data: Data, rsa: Bool, isPrivate: Bool = false) -> (key: SecKey?, code: Int?) {
        let attributes: [String: Any] = [
            kSecAttrKeyType as String: rsa ? kSecAttrKeyTypeRSA : kSecAttrKeyTypeECSECPrimeRandom,
            kSecAttrKeyClass as String: isPrivate ? kSecAttrKeyClassPrivate : kSecAttrKeyClassPublic,
            kSecAttrKeySizeInBits as String: 256,
        ]
        var error: Unmanaged<CFError>?
        let key = SecKeyCreateWithData(data as CFData, attributes as CFDictionary, &error)
        return (key, (error?.takeRetainedValue()).map { CFErrorGetCode($0) })
    }

    package static func areEqual(_ left: SecCertificate, _ right: SecCertificate) -> Bool { CFEqual(left, right) }

    package static var isDuplicate: OSStatus { errSecDuplicateItem }
}
