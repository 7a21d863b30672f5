internal import AsyncSockets
internal import Foundation

extension AsyncSocketError {
    /// The error in the form that a stream socket's delegate receives.
    var asStreamError: any Error {
        switch code {
        case .badConfiguration: known(.badConfigError, message)
        case .badParameter: known(.badParamError, message)
        case .noUsableAddress: known(operation == .connect ? .otherError : .badConfigError, message)
        case .connectTimeout: known(.connectTimeoutError, "Attempt to connect to host timed out")
        case .readTimeout: known(.readTimeoutError, "Read operation timed out")
        case .writeTimeout: known(.writeTimeoutError, "Write operation timed out")
        case .readMaxedOut: known(.readMaxedOutError, "Read operation reached set maximum length")
        case .closedByPeer: known(.closedError, "Socket closed by remote peer")
        case .hostNotFound: NSError.lookup(fault == .caller ? EAI_NONAME : EAI_AGAIN, message)
        case .truncated: secureTransport(errSSLClosedNoNotify)
        case .earlyPlaintext: secureTransport(errSSLProtocol)
        case .tls: tls.map { secureTransport($0.status) } ?? known(.otherError, message)
        default: errno.map { posix($0) } ?? known(.otherError, message)
        }
    }

    private func known(_ code: GCDAsyncSocketError.Code, _ message: String) -> GCDAsyncSocketError {
        GCDAsyncSocketError(code, userInfo: [NSLocalizedDescriptionKey: message, NSUnderlyingErrorKey: self])
    }

    /// Returns a system error with the given errno.
    func posix(_ number: Int32) -> NSError {
        NSError(
            domain: NSPOSIXErrorDomain, code: Int(number),
            userInfo: [
                NSLocalizedDescriptionKey: String(cString: strerror(number)),
                NSLocalizedFailureReasonErrorKey: message, NSUnderlyingErrorKey: self,
            ])
    }

    /// Returns a Secure Transport error, or `otherError` for unusable settings, which have no Secure
    /// Transport status.
    private func secureTransport(_ status: OSStatus?) -> any Error {
        guard let status else { return known(.otherError, message) }
        return NSError(
            domain: "kCFStreamErrorDomainSSL", code: Int(status),
            userInfo: [NSLocalizedDescriptionKey: description, NSUnderlyingErrorKey: self])
    }
}

extension NSError {
    /// Returns the error for a failed lookup with the given `EAI_…` code.
    static func lookup(_ code: Int32, _ reason: String) -> NSError {
        NSError(
            domain: "kCFStreamErrorDomainNetDB", code: Int(code), userInfo: [NSLocalizedDescriptionKey: reason])
    }
}

extension TLSError {
    /// The Secure Transport status, or `nil` for an error in the program's own settings.
    fileprivate var status: OSStatus? {
        switch code {
        case .invalidSettings, .invalidCertificate, .invalidPrivateKey, .invalidSession, .keyMismatch: nil
        case .certificateExpired: errSSLCertExpired
        case .certificateNotYetValid: errSSLCertNotYetValid
        case .hostNameMismatch: errSSLHostNameMismatch
        case .unknownIssuer: [18, 19].contains(verifyCode) ? errSSLUnknownRootCert : errSSLNoRootCert
        case .certificateRevoked: errSSLPeerCertRevoked
        case .trustRejected, .trustTimeout: errSSLPeerBadCert
        case .clientCertificateMissing: errSSLCertificateRequired
        case .peerAlert: alert.flatMap { Self.statuses[$0.rawValue] } ?? errSSLFatalAlert
        case .noSharedParameters: errSSLNegotiation
        case .truncated: errSSLClosedNoNotify
        case .closedDuringHandshake: errSSLClosedAbort
        case .internalError: errSSLInternal
        case .certificateRejected, .certificateTooLarge: errSSLXCertChainInvalid
        default: errSSLProtocol
        }
    }

    /// Statuses by alert number (RFC 8446, section 6.2).
    private static let statuses: [UInt8: OSStatus] = [
        10: errSSLPeerUnexpectedMsg, 20: errSSLPeerBadRecordMac, 22: errSSLPeerRecordOverflow, 40: errSSLPeerHandshakeFail,
        42: errSSLPeerBadCert, 43: errSSLPeerUnsupportedCert, 44: errSSLPeerCertRevoked, 45: errSSLPeerCertExpired,
        46: errSSLPeerCertUnknown, 47: errSSLIllegalParam, 48: errSSLPeerUnknownCA, 49: errSSLPeerAccessDenied,
        50: errSSLPeerDecodeError, 51: errSSLPeerDecryptError, 70: errSSLPeerProtocolVersion,
        71: errSSLPeerInsufficientSecurity, 80: errSSLPeerInternalError, 90: errSSLPeerUserCancelled,
        100: errSSLPeerNoRenegotiation, 112: errSSLUnrecognizedName, 116: errSSLCertificateRequired,
        120: errSSLPeerHandshakeFail,
    ]
}
