// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation

/// A certificate, under the name used by the Security framework. It wraps a `TLSCertificate` from
/// AsyncSockets.
public final class SecCertificate: NSObject, Sendable {
    let certificate: TLSCertificate

    init(_ certificate: TLSCertificate) {
        self.certificate = certificate
    }

    /// Returns whether the DER encodings are equal.
    public override func isEqual(_ object: Any?) -> Bool {
        (object as? SecCertificate)?.certificate == certificate
    }

    /// A hash of the DER encoding.
    public override var hash: Int { certificate.hashValue }

    /// A description that contains the subject.
    public override var description: String { "SecCertificate(\(certificate.subject))" }
}

/// A public key, or the private key of an identity.
public final class SecKey: NSObject, Sendable {
    /// The public key as a DER SubjectPublicKeyInfo, or `nil` for a private key, which cannot be exported.
    let publicKeyInfo: [UInt8]?

    init(publicKeyInfo: [UInt8]?) {
        self.publicKeyInfo = publicKeyInfo
    }

    /// Returns whether the public keys are equal.
    public override func isEqual(_ object: Any?) -> Bool {
        guard let other = object as? SecKey, let publicKeyInfo else { return object as AnyObject? === self }
        return other.publicKeyInfo == publicKeyInfo
    }

    /// A hash of the public key.
    public override var hash: Int { publicKeyInfo.hashValue }
}

// MARK: - Certificates

/// Creates a certificate from its DER encoding. Returns `nil` for any other data.
public func SecCertificateCreateWithData(_ allocator: CFAllocator?, _ data: CFData) -> SecCertificate? {
    do throws(TLSError) {
        return SecCertificate(try TLSCertificate(der: Array(Data(referencing: data))))
    } catch {
        return nil
    }
}

/// Returns the DER encoding of a certificate.
public func SecCertificateCopyData(_ certificate: SecCertificate) -> CFData {
    NSData(data: Data(certificate.certificate.derBytes))
}

/// Returns a certificate's display name: the common name, otherwise the first host name, otherwise the
/// subject.
public func SecCertificateCopySubjectSummary(_ certificate: SecCertificate) -> CFString? {
    let certificate = certificate.certificate
    return (certificate.commonName ?? certificate.dnsNames.first ?? certificate.subject) as NSString
}

/// Stores a certificate's common name, which may be `nil`.
@discardableResult
public func SecCertificateCopyCommonName(
    _ certificate: SecCertificate, _ commonName: UnsafeMutablePointer<CFString?>
) -> OSStatus {
    commonName.pointee = certificate.certificate.commonName.map { $0 as NSString }
    return errSecSuccess
}

/// Returns a certificate's public key.
public func SecCertificateCopyKey(_ certificate: SecCertificate) -> SecKey? {
    SecKey(publicKeyInfo: certificate.certificate.publicKey)
}

// MARK: - Keys

/// Returns the bytes of a public key: an RSA key in PKCS#1 form, the point of an elliptic curve key (X9.63),
/// or any other key as encoded in certificates. Returns `nil` for a private key, which cannot be exported.
public func SecKeyCopyExternalRepresentation(
    _ key: SecKey, _ error: UnsafeMutablePointer<Unmanaged<CFError>?>?
) -> CFData? {
    if let info = key.publicKeyInfo, let bytes = PublicKeyBits.bits(of: info) { return NSData(data: Data(bytes)) }
    let reason = [NSLocalizedDescriptionKey: "a private key cannot be exported"]
    error?.pointee = .passRetained(NSError(domain: NSOSStatusErrorDomain, code: Int(errSecParam), userInfo: reason))
    return nil
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
