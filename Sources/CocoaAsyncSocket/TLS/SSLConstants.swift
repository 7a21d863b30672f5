/// A version of TLS, with the numbers of Apple's Secure Transport.
///
/// This library speaks TLS 1.2 and 1.3.
public enum SSLProtocol: Int32, Sendable {
    /// No version is named: the setting means nothing.
    case sslProtocolUnknown = 0
    /// SSL 2.0.
    case sslProtocol2 = 1
    /// SSL 3.0.
    case sslProtocol3 = 2
    /// SSL 3.0 alone.
    case sslProtocol3Only = 3
    /// TLS 1.0.
    case tlsProtocol1 = 4
    /// TLS 1.0 alone.
    case tlsProtocol1Only = 5
    /// All versions.
    case sslProtocolAll = 6
    /// TLS 1.1.
    case tlsProtocol11 = 7
    /// TLS 1.2.
    case tlsProtocol12 = 8
    /// DTLS 1.0.
    case dtlsProtocol1 = 9
    /// TLS 1.3.
    case tlsProtocol13 = 10
    /// DTLS 1.2.
    case dtlsProtocol12 = 11
    /// The newest version.
    case tlsProtocolMaxSupported = 999
}

/// Whether a server asks for a client certificate: for `GCDAsyncSocketSSLClientAuthentication`.
public enum SSLAuthenticate: Int32, Sendable {
    /// It does not ask.
    case neverAuthenticate = 0
    /// It refuses a client without a good certificate.
    case alwaysAuthenticate = 1
    /// It admits a client without a certificate, but not one with a bad certificate.
    case tryAuthenticate = 2
}

// MARK: - Results of the Security framework

/// Success.
public let errSecSuccess: OSStatus = 0
/// The function does not do that.
public let errSecUnimplemented: OSStatus = -4
/// An argument is invalid.
public let errSecParam: OSStatus = -50
/// Memory is missing.
public let errSecAllocate: OSStatus = -108
/// The trust is not available.
public let errSecNotAvailable: OSStatus = -25291
/// The passphrase is wrong.
public let errSecAuthFailed: OSStatus = -25293
/// The item was not found.
public let errSecItemNotFound: OSStatus = -25300
/// The bytes cannot be decoded.
public let errSecDecode: OSStatus = -26275
/// The format is not known.
public let errSecUnknownFormat: OSStatus = -25257
/// A passphrase is missing.
public let errSecPassphraseRequired: OSStatus = -25260
/// The passphrase of a PKCS#12 file is wrong.
public let errSecPkcs12VerifyFailure: OSStatus = -25264
/// The certificate is for another host.
public let errSecHostNameMismatch: OSStatus = -67602
/// The certificate has expired.
public let errSecCertificateExpired: OSStatus = -67818
/// The certificate is not valid yet.
public let errSecCertificateNotValidYet: OSStatus = -67819
/// The certificate is revoked.
public let errSecCertificateRevoked: OSStatus = -67820
/// The certificate is not trusted.
public let errSecNotTrusted: OSStatus = -67843

// MARK: - Results of Secure Transport, in the domain "kCFStreamErrorDomainSSL"

/// The peer broke the rules of TLS.
public let errSSLProtocol: OSStatus = -9800
/// The two sides have no version or cipher suite in common.
public let errSSLNegotiation: OSStatus = -9801
/// A fatal alert.
public let errSSLFatalAlert: OSStatus = -9802
/// The peer closed the connection in good order.
public let errSSLClosedGraceful: OSStatus = -9805
/// The connection ended during the handshake, or by an error.
public let errSSLClosedAbort: OSStatus = -9806
/// The certificate chain is not valid.
public let errSSLXCertChainInvalid: OSStatus = -9807
/// The certificate cannot be read.
public let errSSLBadCert: OSStatus = -9808
/// OpenSSL failed.
public let errSSLInternal: OSStatus = -9810
/// The chain ends at a root that is not trusted.
public let errSSLUnknownRootCert: OSStatus = -9812
/// The chain leads to no root.
public let errSSLNoRootCert: OSStatus = -9813
/// A certificate has expired.
public let errSSLCertExpired: OSStatus = -9814
/// A certificate is not valid yet.
public let errSSLCertNotYetValid: OSStatus = -9815
/// The peer closed the connection without a close_notify: bytes may be missing.
public let errSSLClosedNoNotify: OSStatus = -9816
/// An alert of the peer: unexpected_message.
public let errSSLPeerUnexpectedMsg: OSStatus = -9819
/// An alert of the peer: bad_record_mac.
public let errSSLPeerBadRecordMac: OSStatus = -9820
/// An alert of the peer: record_overflow.
public let errSSLPeerRecordOverflow: OSStatus = -9822
/// An alert of the peer: handshake_failure.
public let errSSLPeerHandshakeFail: OSStatus = -9824
/// The delegate refused the peer, or an alert of the peer: bad_certificate.
public let errSSLPeerBadCert: OSStatus = -9825
/// An alert of the peer: unsupported_certificate.
public let errSSLPeerUnsupportedCert: OSStatus = -9826
/// A certificate is revoked, or an alert of the peer: certificate_revoked.
public let errSSLPeerCertRevoked: OSStatus = -9827
/// An alert of the peer: certificate_expired.
public let errSSLPeerCertExpired: OSStatus = -9828
/// An alert of the peer: certificate_unknown.
public let errSSLPeerCertUnknown: OSStatus = -9829
/// An alert of the peer: illegal_parameter.
public let errSSLIllegalParam: OSStatus = -9830
/// An alert of the peer: unknown_ca.
public let errSSLPeerUnknownCA: OSStatus = -9831
/// An alert of the peer: access_denied.
public let errSSLPeerAccessDenied: OSStatus = -9832
/// An alert of the peer: decode_error.
public let errSSLPeerDecodeError: OSStatus = -9833
/// An alert of the peer: decrypt_error.
public let errSSLPeerDecryptError: OSStatus = -9834
/// An alert of the peer: protocol_version.
public let errSSLPeerProtocolVersion: OSStatus = -9836
/// An alert of the peer: insufficient_security.
public let errSSLPeerInsufficientSecurity: OSStatus = -9837
/// An alert of the peer: internal_error.
public let errSSLPeerInternalError: OSStatus = -9838
/// An alert of the peer: user_canceled.
public let errSSLPeerUserCancelled: OSStatus = -9839
/// An alert of the peer: no_renegotiation.
public let errSSLPeerNoRenegotiation: OSStatus = -9840
/// The certificate is for another host.
public let errSSLHostNameMismatch: OSStatus = -9843
/// The settings cannot be used.
public let errSSLBadConfiguration: OSStatus = -9848
/// The client showed no certificate, and the server requires one.
public let errSSLCertificateRequired: OSStatus = -9863
/// An alert of the peer: unrecognized_name.
public let errSSLUnrecognizedName: OSStatus = -9865
