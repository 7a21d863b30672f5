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
    SecKey(.publicKey(certificate.certificate.publicKey))
}
