// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Foundation

/// The TLS of a connection, which `GCDAsyncSocket.sslContext()` returns.
public final class SSLContext: NSObject, Sendable {
    let session: TLSSession
    let evaluation: EvaluationSettings

    init(_ session: TLSSession, _ evaluation: EvaluationSettings) {
        self.session = session
        self.evaluation = evaluation
    }
}

/// Stores the version that was negotiated.
@discardableResult
public func SSLGetNegotiatedProtocolVersion(
    _ context: SSLContext, _ protocol: UnsafeMutablePointer<SSLProtocol>
) -> OSStatus {
    `protocol`.pointee = context.session.protocolVersion == .tls13 ? .tlsProtocol13 : .tlsProtocol12
    return errSecSuccess
}

/// Stores the cipher suite that was negotiated; 0 for one that has no name here.
@discardableResult
public func SSLGetNegotiatedCipher(
    _ context: SSLContext, _ cipherSuite: UnsafeMutablePointer<SSLCipherSuite>
) -> OSStatus {
    cipherSuite.pointee = CipherSuiteNames.number(of: context.session.cipherSuite)
    return errSecSuccess
}

/// Stores the application protocol that was negotiated, in an array; nil without one.
@discardableResult
public func SSLCopyALPNProtocols(_ context: SSLContext, _ protocols: UnsafeMutablePointer<CFArray?>) -> OSStatus {
    protocols.pointee = context.session.applicationProtocol.map { [$0] as NSArray }
    return errSecSuccess
}

/// Stores the peer's certificates and the means to judge them.
@discardableResult
public func SSLCopyPeerTrust(_ context: SSLContext, _ trust: UnsafeMutablePointer<SecTrust?>) -> OSStatus {
    let chain = context.session.peerCertificates
    guard !chain.isEmpty else { return errSecItemNotFound }
    trust.pointee = SecTrust(chain, context.evaluation)
    return errSecSuccess
}
