// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation

/// The TLS state of a connection, as returned by `GCDAsyncSocket.sslContext()`.
public final class SSLContext: NSObject, Sendable {
    let session: TLSSession
    let evaluation: EvaluationSettings

    init(_ session: TLSSession, _ evaluation: EvaluationSettings) {
        self.session = session
        self.evaluation = evaluation
    }
}

/// Stores the negotiated version.
@discardableResult
public func SSLGetNegotiatedProtocolVersion(
    _ context: SSLContext, _ protocol: UnsafeMutablePointer<SSLProtocol>
) -> OSStatus {
    `protocol`.pointee = context.session.protocolVersion == .tls13 ? .tlsProtocol13 : .tlsProtocol12
    return errSecSuccess
}

/// Stores the negotiated cipher suite, or 0 if the suite has no constant in this module.
@discardableResult
public func SSLGetNegotiatedCipher(
    _ context: SSLContext, _ cipherSuite: UnsafeMutablePointer<SSLCipherSuite>
) -> OSStatus {
    cipherSuite.pointee = CipherSuiteNames.number(of: context.session.cipherSuite)
    return errSecSuccess
}

/// Stores an array with the negotiated application protocol, or `nil` if no protocol was negotiated.
@discardableResult
public func SSLCopyALPNProtocols(_ context: SSLContext, _ protocols: UnsafeMutablePointer<CFArray?>) -> OSStatus {
    protocols.pointee = context.session.applicationProtocol.map { [$0] as NSArray }
    return errSecSuccess
}

/// Stores a trust for evaluating the peer's certificates.
@discardableResult
public func SSLCopyPeerTrust(_ context: SSLContext, _ trust: UnsafeMutablePointer<SecTrust?>) -> OSStatus {
    let chain = context.session.peerCertificates
    guard !chain.isEmpty else { return errSecItemNotFound }
    trust.pointee = SecTrust(chain, context.evaluation)
    return errSecSuccess
}
