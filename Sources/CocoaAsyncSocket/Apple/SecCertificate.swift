// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation

/// A certificate, as the Security framework names it: a `Certificate` of AsyncSockets.
public final class SecCertificate: NSObject, Sendable {
    let certificate: Certificate

    init(_ certificate: Certificate) {
        self.certificate = certificate
    }

    /// Equal means the same DER encoding.
    public override func isEqual(_ object: Any?) -> Bool {
        (object as? SecCertificate)?.certificate == certificate
    }

    /// A hash of the DER encoding.
    public override var hash: Int { certificate.hashValue }

    /// The subject.
    public override var description: String { "SecCertificate(\(certificate.subject))" }
}

/// A public key, or the private key of an identity.
public final class SecKey: NSObject, Sendable {
    /// A SubjectPublicKeyInfo in DER; nil for a private key, whose bytes nothing gets.
    let publicKeyInfo: [UInt8]?

    init(publicKeyInfo: [UInt8]?) {
        self.publicKeyInfo = publicKeyInfo
    }

    /// Equal means the same public key.
    public override func isEqual(_ object: Any?) -> Bool {
        guard let other = object as? SecKey, let publicKeyInfo else { return object as AnyObject? === self }
        return other.publicKeyInfo == publicKeyInfo
    }

    /// A hash of the public key.
    public override var hash: Int { publicKeyInfo.hashValue }
}

// MARK: - Certificates

/// A certificate from its DER encoding; nil for other bytes.
public func SecCertificateCreateWithData(_ allocator: CFAllocator?, _ data: CFData) -> SecCertificate? {
    do throws(TLSError) {
        return SecCertificate(try Certificate(der: Array(Data(referencing: data))))
    } catch {
        return nil
    }
}

/// The DER encoding of a certificate.
public func SecCertificateCopyData(_ certificate: SecCertificate) -> CFData {
    NSData(data: Data(certificate.certificate.derBytes))
}

/// The name of a certificate for a person: the common name, or else the first host name, or the subject.
public func SecCertificateCopySubjectSummary(_ certificate: SecCertificate) -> CFString? {
    let certificate = certificate.certificate
    return (certificate.commonName ?? certificate.dnsNames.first ?? certificate.subject) as NSString
}

/// Stores the common name of a certificate, which may be nil.
@discardableResult
public func SecCertificateCopyCommonName(
    _ certificate: SecCertificate, _ commonName: UnsafeMutablePointer<CFString?>
) -> OSStatus {
    commonName.pointee = certificate.certificate.commonName.map { $0 as NSString }
    return errSecSuccess
}

/// The public key of a certificate.
public func SecCertificateCopyKey(_ certificate: SecCertificate) -> SecKey? {
    SecKey(publicKeyInfo: certificate.certificate.publicKey)
}

// MARK: - Keys

/// The bytes of a public key: for RSA as in PKCS#1, for a curve the point (X9.63), otherwise as they are
/// stand in the certificate. Nil for a private key, which cannot be read.
public func SecKeyCopyExternalRepresentation(
    _ key: SecKey, _ error: UnsafeMutablePointer<Unmanaged<CFError>?>?
) -> CFData? {
    if let info = key.publicKeyInfo, let bytes = PublicKeyBits.bits(of: info) { return NSData(data: Data(bytes)) }
    let reason = [NSLocalizedDescriptionKey: "a private key cannot be read"]
    error?.pointee = .passRetained(NSError(domain: NSOSStatusErrorDomain, code: Int(errSecParam), userInfo: reason))
    return nil
}

/// Reads the BIT STRING at the end of a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
enum PublicKeyBits {
    private static let sequence: UInt8 = 0x30
    private static let bitString: UInt8 = 0x03

    static func bits(of info: [UInt8]) -> [UInt8]? {
        guard let outer = content(of: info[...], tag: sequence), let algorithm = content(of: outer, tag: sequence) else {
            return nil
        }
        // The first byte says how many bits of the last one are unused: none in a key.
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
