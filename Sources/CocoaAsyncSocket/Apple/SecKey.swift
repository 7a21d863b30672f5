// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation
internal import SocketTLS

/// A public or private key.
public final class SecKey: NSObject, Sendable {
    enum Kind: Hashable, Sendable {
        /// A DER SubjectPublicKeyInfo.
        case publicKey([UInt8])
        case privateKey(TLSPrivateKey)
    }

    let kind: Kind

    init(_ kind: Kind) {
        self.kind = kind
    }

    /// Returns whether both keys are public or both are private, and their public keys are equal.
    public override func isEqual(_ object: Any?) -> Bool { (object as? SecKey)?.kind == kind }

    /// A hash of the public key.
    public override var hash: Int { kind.hashValue }
}

/// Returns the bytes of a public key: an RSA key in PKCS#1 form, the point of an elliptic curve key (X9.63),
/// or any other key as encoded in certificates. Returns `nil` for a private key, which cannot be exported.
public func SecKeyCopyExternalRepresentation(
    _ key: SecKey, _ error: UnsafeMutablePointer<Unmanaged<CFError>?>?
) -> CFData? {
    if case .publicKey(let info) = key.kind, let bytes = PublicKeyBits.bits(of: info) { return NSData(data: Data(bytes)) }
    fail(error, "a private key cannot be exported")
    return nil
}

/// Returns the public half of a key, or `nil` if the key is in a token that does not reveal it.
public func SecKeyCopyPublicKey(_ key: SecKey) -> SecKey? {
    switch key.kind {
    case .publicKey: key
    case .privateKey(let key): key.publicKey.map { SecKey(.publicKey($0)) }
    }
}

/// Creates a key from its external representation, in the formats of Apple's function
/// `SecKeyCopyExternalRepresentation`.
///
/// An RSA key is in PKCS#1 form. A key of an elliptic curve (P-256, P-384 or P-521) is in X9.63 form: the
/// byte 0x04, x and y, followed by the private scalar for a private key. A public key may also be a
/// SubjectPublicKeyInfo, and a private RSA key may be in PKCS#8 form. Returns `nil` and an error with the
/// code `errSecParam` for any other bytes or attributes.
///
/// - Parameters:
///   - keyData: The bytes of the key.
///   - attributes: `kSecAttrKeyType` and `kSecAttrKeyClass`. Other attributes are ignored.
///   - error: Receives the error. The caller releases it.
public func SecKeyCreateWithData(
    _ keyData: CFData, _ attributes: CFDictionary, _ error: UnsafeMutablePointer<Unmanaged<CFError>?>?
) -> SecKey? {
    let bytes = Array(Data(referencing: keyData))
    let type = attributes.object(forKey: kSecAttrKeyType) as? String
    let keyClass = attributes.object(forKey: kSecAttrKeyClass) as? String
    let encodings: [String: KeyEncoding] = [
        kSecAttrKeyTypeRSA as String: .rsa, kSecAttrKeyTypeECSECPrimeRandom as String: .curve,
    ]
    guard let encoding = type.flatMap({ encodings[$0] }) else {
        fail(error, "kSecAttrKeyType must be kSecAttrKeyTypeRSA or kSecAttrKeyTypeECSECPrimeRandom")
        return nil
    }
    let isPrivate = keyClass == kSecAttrKeyClassPrivate as String
    guard isPrivate || keyClass == kSecAttrKeyClassPublic as String else {
        fail(error, "kSecAttrKeyClass must be kSecAttrKeyClassPublic or kSecAttrKeyClassPrivate")
        return nil
    }
    let key = isPrivate ? encoding.privateKey(bytes) : encoding.publicKey(bytes)
    if key == nil { fail(error, "the data is not a key of this type and class") }
    return key
}

private func fail(_ error: UnsafeMutablePointer<Unmanaged<CFError>?>?, _ reason: String) {
    error?.pointee = .passRetained(
        NSError(domain: NSOSStatusErrorDomain, code: Int(errSecParam), userInfo: [NSLocalizedDescriptionKey: reason]))
}

/// The attribute key for the type of a key.
public var kSecAttrKeyType: CFString { "type" }
/// The type of RSA keys.
public var kSecAttrKeyTypeRSA: CFString { "42" }
/// The type of elliptic curve keys.
public var kSecAttrKeyTypeEC: CFString { "73" }
/// The type of elliptic curve keys on P-256, P-384 and P-521.
public var kSecAttrKeyTypeECSECPrimeRandom: CFString { "73" }
/// The attribute key for the size of a key.
public var kSecAttrKeySizeInBits: CFString { "bsiz" }
/// The attribute key for the class of a key: public or private.
public var kSecAttrKeyClass: CFString { "kcls" }
/// The class of public keys.
public var kSecAttrKeyClassPublic: CFString { "0" }
/// The class of private keys.
public var kSecAttrKeyClassPrivate: CFString { "1" }

// MARK: - Random numbers

/// A source of random numbers. The only one is the kernel's.
public typealias SecRandomRef = OpaquePointer

/// The source of random numbers to pass to `SecRandomCopyBytes`.
public var kSecRandomDefault: SecRandomRef? { nil }

/// Fills memory with random bytes from the kernel (getrandom(2)), which are suitable for keys.
public func SecRandomCopyBytes(_ rnd: SecRandomRef?, _ count: Int, _ bytes: UnsafeMutableRawPointer) -> OSStatus {
    guard count >= 0 else { return errSecParam }
    var generator = SystemRandomNumberGenerator()
    for start in stride(from: 0, to: count, by: 8) {
        let room = UnsafeMutableRawBufferPointer(start: bytes + start, count: min(8, count - start))
        withUnsafeBytes(of: generator.next() as UInt64) { word in
            room.copyMemory(from: UnsafeRawBufferPointer(rebasing: word[..<room.count]))
        }
    }
    return errSecSuccess
}

// MARK: - Encodings

private enum KeyEncoding {
    case rsa
    case curve

    private static let sequence: UInt8 = 0x30
    private static let bitString: UInt8 = 0x03
    /// `rsaEncryption` (RFC 8017, appendix C), with its null parameter.
    private static let rsaAlgorithm: [UInt8] = [0x06, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1, 0x05, 0]
    /// `id-ecPublicKey` (RFC 5480, section 2.1.1).
    private static let curveAlgorithm: [UInt8] = [0x06, 7, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1]

    func publicKey(_ bytes: [UInt8]) -> SecKey? {
        let algorithm: [UInt8]
        switch self {
        case .rsa: algorithm = Self.rsaAlgorithm
        case .curve:
            guard let curve = Self.curve(ofSize: (bytes.count - 1) / 2), bytes.first == 4 else { return known(bytes) }
            algorithm = Self.curveAlgorithm + curve
        }
        let info = Self.value(Self.sequence, Self.value(Self.sequence, algorithm) + Self.value(Self.bitString, [0] + bytes))
        return known(info) ?? known(bytes)
    }

    /// Returns `nil` if the bytes are not exactly one key: OpenSSL ignores bytes after an RSA key.
    private func known(_ info: [UInt8]) -> SecKey? {
        guard PublicKeyInfo.canonical(info) == info, PublicKeyInfo.isKey(info, ofRSA: self == .rsa) else { return nil }
        return SecKey(.publicKey(info))
    }

    func privateKey(_ bytes: [UInt8]) -> SecKey? {
        var der = bytes
        if self == .curve {
            let size = (bytes.count - 1) / 3
            guard bytes.first == 4, bytes.count == 1 + 3 * size, let curve = Self.curve(ofSize: size) else { return nil }
            // SEC 1, appendix C.4, and RFC 5915.
            let content: [UInt8] =
                [0x02, 1, 1] + Self.value(0x04, Array(bytes.suffix(size))) + Self.value(0xA0, curve)
                + Self.value(0xA1, Self.value(Self.bitString, [0] + bytes.dropLast(size)))
            der = Self.value(Self.sequence, content)
        }
        do throws(TLSError) {
            let key = try TLSPrivateKey(der: der)
            guard let info = key.publicKey, PublicKeyInfo.isKey(info, ofRSA: self == .rsa), key.isConsistent else { return nil }
            return SecKey(.privateKey(key))
        } catch {
            return nil
        }
    }

    /// - Parameter size: The number of bytes in a coordinate.
    private static func curve(ofSize size: Int) -> [UInt8]? {
        switch size {
        case 32: [0x06, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7]
        case 48: [0x06, 5, 0x2B, 0x81, 4, 0, 0x22]
        case 66: [0x06, 5, 0x2B, 0x81, 4, 0, 0x23]
        default: nil
        }
    }

    private static func value(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        let low = UInt8(truncatingIfNeeded: content.count)
        let length: [UInt8] =
            switch content.count {
            case 0..<0x80: [low]
            case 0x80...0xFF: [0x81, low]
            default: [0x82, UInt8(truncatingIfNeeded: content.count >> 8), low]
            }
        return [tag] + length + content
    }
}

/// Extracts the BIT STRING at the end of a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
enum PublicKeyBits {
    private static let sequence: UInt8 = 0x30
    private static let bitString: UInt8 = 0x03

    static func bits(of info: [UInt8]) -> [UInt8]? {
        guard let outer = content(of: info[...], tag: sequence), let algorithm = content(of: outer, tag: sequence) else {
            return nil
        }
        // The first byte is the number of unused bits in the last byte, which is 0 for a key.
        guard let bits = content(of: outer[algorithm.endIndex...], tag: bitString), bits.first == 0 else { return nil }
        return Array(bits.dropFirst())
    }

    private static func content(of bytes: ArraySlice<UInt8>, tag: UInt8) -> ArraySlice<UInt8>? {
        guard bytes.count >= 2, bytes.first == tag else { return nil }
        let first = Int(bytes[bytes.startIndex + 1])
        let lengthSize = first < 0x80 ? 0 : first & 0x7F
        let start = bytes.startIndex + 2 + lengthSize
        guard lengthSize <= 3, start <= bytes.endIndex else { return nil }
        let length = first < 0x80 ? first : bytes[bytes.startIndex + 2..<start].reduce(0) { $0 << 8 | Int($1) }
        guard length <= bytes.endIndex - start else { return nil }
        return bytes[start..<start + length]
    }
}
