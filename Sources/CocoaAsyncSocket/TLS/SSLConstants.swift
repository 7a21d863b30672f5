/// A TLS version, with the numbers of Apple's Secure Transport.
///
/// This library supports TLS 1.2 and 1.3.
public enum SSLProtocol: Int32, Sendable {
    /// No particular version. The setting has no effect.
    case sslProtocolUnknown = 0
    /// SSL 2.0.
    case sslProtocol2 = 1
    /// SSL 3.0.
    case sslProtocol3 = 2
    /// SSL 3.0 only.
    case sslProtocol3Only = 3
    /// TLS 1.0.
    case tlsProtocol1 = 4
    /// TLS 1.0 only.
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
    /// The newest supported version.
    case tlsProtocolMaxSupported = 999
}

/// Whether a server requests a client certificate. A value for `GCDAsyncSocketSSLClientAuthentication`.
public enum SSLAuthenticate: Int32, Sendable {
    /// The server does not request a certificate.
    case neverAuthenticate = 0
    /// The server rejects clients without a valid certificate.
    case alwaysAuthenticate = 1
    /// The server accepts clients without a certificate, but rejects clients with an invalid certificate.
    case tryAuthenticate = 2
}

// MARK: - Security framework results

/// Success.
public let errSecSuccess: OSStatus = 0
/// Success, under the name from Core Services.
public let noErr: OSStatus = 0
/// The function is not implemented.
public let errSecUnimplemented: OSStatus = -4
/// An argument is invalid.
public let errSecParam: OSStatus = -50
/// Out of memory.
public let errSecAllocate: OSStatus = -108
/// The trust is not available.
public let errSecNotAvailable: OSStatus = -25291
/// The passphrase is wrong.
public let errSecAuthFailed: OSStatus = -25293
/// The item already exists.
public let errSecDuplicateItem: OSStatus = -25299
/// The item was not found.
public let errSecItemNotFound: OSStatus = -25300
/// The bytes cannot be decoded.
public let errSecDecode: OSStatus = -26275
/// The format is unknown.
public let errSecUnknownFormat: OSStatus = -25257
/// The passphrase is missing.
public let errSecPassphraseRequired: OSStatus = -25260
/// The passphrase of a PKCS#12 file is wrong.
public let errSecPkcs12VerifyFailure: OSStatus = -25264
/// The certificate is for a different host.
public let errSecHostNameMismatch: OSStatus = -67602
/// The certificate has expired.
public let errSecCertificateExpired: OSStatus = -67818
/// The certificate is not valid yet.
public let errSecCertificateNotValidYet: OSStatus = -67819
/// The certificate is revoked.
public let errSecCertificateRevoked: OSStatus = -67820
/// The certificate is not trusted.
public let errSecNotTrusted: OSStatus = -67843

// MARK: - Secure Transport results, in the domain "kCFStreamErrorDomainSSL"

/// The peer violated the TLS protocol.
public let errSSLProtocol: OSStatus = -9800
/// The two sides have no version or cipher suite in common.
public let errSSLNegotiation: OSStatus = -9801
/// The peer sent a fatal alert.
public let errSSLFatalAlert: OSStatus = -9802
/// The peer closed the connection cleanly.
public let errSSLClosedGraceful: OSStatus = -9805
/// The connection closed during the handshake or because of an error.
public let errSSLClosedAbort: OSStatus = -9806
/// The certificate chain is invalid.
public let errSSLXCertChainInvalid: OSStatus = -9807
/// The certificate cannot be read.
public let errSSLBadCert: OSStatus = -9808
/// OpenSSL failed.
public let errSSLInternal: OSStatus = -9810
/// The chain leads to a root that is not trusted.
public let errSSLUnknownRootCert: OSStatus = -9812
/// The chain does not lead to a root.
public let errSSLNoRootCert: OSStatus = -9813
/// A certificate has expired.
public let errSSLCertExpired: OSStatus = -9814
/// A certificate is not valid yet.
public let errSSLCertNotYetValid: OSStatus = -9815
/// The peer closed the connection without a close_notify alert. Data may be missing.
public let errSSLClosedNoNotify: OSStatus = -9816
/// The peer sent an unexpected_message alert.
public let errSSLPeerUnexpectedMsg: OSStatus = -9819
/// The peer sent a bad_record_mac alert.
public let errSSLPeerBadRecordMac: OSStatus = -9820
/// The peer sent a record_overflow alert.
public let errSSLPeerRecordOverflow: OSStatus = -9822
/// The peer sent a handshake_failure alert.
public let errSSLPeerHandshakeFail: OSStatus = -9824
/// The delegate rejected the peer, or the peer sent a bad_certificate alert.
public let errSSLPeerBadCert: OSStatus = -9825
/// The peer sent an unsupported_certificate alert.
public let errSSLPeerUnsupportedCert: OSStatus = -9826
/// A certificate was revoked, or the peer sent a certificate_revoked alert.
public let errSSLPeerCertRevoked: OSStatus = -9827
/// The peer sent a certificate_expired alert.
public let errSSLPeerCertExpired: OSStatus = -9828
/// The peer sent a certificate_unknown alert.
public let errSSLPeerCertUnknown: OSStatus = -9829
/// The peer sent an illegal_parameter alert.
public let errSSLIllegalParam: OSStatus = -9830
/// The peer sent an unknown_ca alert.
public let errSSLPeerUnknownCA: OSStatus = -9831
/// The peer sent an access_denied alert.
public let errSSLPeerAccessDenied: OSStatus = -9832
/// The peer sent a decode_error alert.
public let errSSLPeerDecodeError: OSStatus = -9833
/// The peer sent a decrypt_error alert.
public let errSSLPeerDecryptError: OSStatus = -9834
/// The peer sent a protocol_version alert.
public let errSSLPeerProtocolVersion: OSStatus = -9836
/// The peer sent an insufficient_security alert.
public let errSSLPeerInsufficientSecurity: OSStatus = -9837
/// The peer sent an internal_error alert.
public let errSSLPeerInternalError: OSStatus = -9838
/// The peer sent a user_canceled alert.
public let errSSLPeerUserCancelled: OSStatus = -9839
/// The peer sent a no_renegotiation alert.
public let errSSLPeerNoRenegotiation: OSStatus = -9840
/// The certificate is for a different host.
public let errSSLHostNameMismatch: OSStatus = -9843
/// The settings cannot be used.
public let errSSLBadConfiguration: OSStatus = -9848
/// The server requires a client certificate, but the client sent no certificate.
public let errSSLCertificateRequired: OSStatus = -9863
/// The peer sent an unrecognized_name alert.
public let errSSLUnrecognizedName: OSStatus = -9865
