// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation

/// A certificate, under the name used by the Security framework. It wraps a `TLSCertificate` from
/// AsyncSockets.
///
/// Its subclass is `SecIdentity`: programs for Apple platforms cast an array of an identity and its chain to
/// an array of certificates, because casts between types of Core Foundation are not checked there.
public class SecCertificate: NSObject, @unchecked Sendable {
    // Unchecked, because only a final class can be checked. Its properties are constants.
    let certificate: TLSCertificate

    init(_ certificate: TLSCertificate) {
        self.certificate = certificate
    }

    /// Returns whether both are certificates with equal DER encodings.
    public override func isEqual(_ object: Any?) -> Bool {
        Self.certificate(object) == certificate
    }

    /// A hash of the DER encoding.
    public override var hash: Int { certificate.hashValue }

    /// A description that contains the subject.
    public override var description: String { "\(type(of: self))(\(certificate.subject))" }

    var displayName: NSString {
        (certificate.commonName ?? certificate.dnsNames.first ?? certificate.subject) as NSString
    }

    /// The same as `certificate`, or `nil` for an identity, which cannot replace a certificate.
    var plainCertificate: TLSCertificate? { certificate }

    /// Returns `nil` if the object is not a certificate. An identity is not a certificate.
    static func certificate(_ object: Any?) -> TLSCertificate? { (object as? SecCertificate)?.plainCertificate }

    /// Returns `nil` if the object is not an array of certificates.
    static func certificates(_ object: Any?) -> [TLSCertificate]? {
        guard let array = object as? NSArray else { return nil }
        let certificates = array.compactMap { certificate($0) }
        return certificates.count == array.count ? certificates : nil
    }
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
public func SecCertificateCopySubjectSummary(_ certificate: SecCertificate) -> CFString? { certificate.displayName }

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
    SecKey(.publicKey(certificate.certificate.publicKey))
}
