// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Rules of a trust:
//  1. It is evaluated by the same rules as in a handshake (`ChainEvaluation`).
//  2. Unless the program sets a policy, a server's certificate must match the name in the settings, or, if
//     the settings contain no name, the host that the socket connected to. On Apple platforms, only the name
//     in the settings is checked (D10).
//  3. Anchors replace the system's roots, unless the program enables both.

internal import AsyncSockets
public import Foundation
internal import SocketBuffers
internal import SocketTLS

struct EvaluationSettings: Sendable {
    /// The trusted roots, or `nil` to use the system's roots.
    var anchors: [TLSCertificate]?
    var peer = TLSRole.server
    /// The name that a server's certificate must match, or `nil` if no name is checked.
    var serverName: String?
}

/// A peer's certificates, together with the rules for their evaluation.
public final class SecTrust: NSObject, Sendable {
    let chain: [TLSCertificate]
    private let evaluation: Locked<ChainEvaluation>
    private let lastVerdict = Locked<PeerTrust.Verdict?>(nil)

    init(_ chain: [TLSCertificate], _ settings: EvaluationSettings) {
        self.chain = chain
        evaluation = Locked(
            ChainEvaluation(
                chain, of: settings.peer, serverName: settings.serverName, anchors: settings.anchors ?? [],
                trustsSystemRoots: settings.anchors == nil))
    }

    init(_ chain: [TLSCertificate], _ policy: SecPolicy?) {
        self.chain = chain
        evaluation = Locked(
            ChainEvaluation(
                chain, of: policy?.judgesServers == false ? .client : .server, serverName: policy?.hostName, anchors: [],
                trustsSystemRoots: true))
    }

    func change(_ body: (inout ChainEvaluation) -> Void) {
        evaluation.withLock { body(&$0) }
        lastVerdict.withLock { $0 = nil }
    }

    /// Evaluates the chain. The first evaluation that uses the system's roots loads them.
    func evaluate() -> PeerTrust.Verdict {
        let verdict: PeerTrust.Verdict
        do throws(TLSError) {
            verdict = try evaluation.withLock { $0 }.verdict()
        } catch {
            verdict = .untrusted(reason: error.message, code: 0, depth: 0)
        }
        lastVerdict.withLock { $0 = verdict }
        return verdict
    }

    /// The verdict of the last evaluation. Evaluates the chain if it was not evaluated.
    var verdict: PeerTrust.Verdict { lastVerdict.withLock { $0 } ?? evaluate() }

    var lastResult: SecTrustResultType {
        switch lastVerdict.withLock({ $0 }) {
        case nil: .invalid
        case .trusted: .unspecified
        case .untrusted: .recoverableTrustFailure
        }
    }
}

/// The rules for evaluating a trust.
public final class SecPolicy: NSObject, Sendable {
    let judgesServers: Bool
    let hostName: String?

    init(judgesServers: Bool, hostName: String?) {
        self.judgesServers = judgesServers
        self.hostName = hostName
    }
}

/// The result of an evaluation.
public enum SecTrustResultType: UInt32, Sendable {
    /// The certificate was not evaluated.
    case invalid = 0
    /// The user trusts the peer.
    case proceed = 1
    /// The user does not trust the peer.
    case deny = 3
    /// The peer is trusted.
    case unspecified = 4
    /// The peer is not trusted.
    case recoverableTrustFailure = 5
    /// The peer is not trusted, and cannot be made trusted.
    case fatalTrustFailure = 6
    /// The evaluation failed.
    case otherError = 7
}

// MARK: - Policies

/// Returns the policy for a TLS peer: a server, optionally with a host name, or a client.
public func SecPolicyCreateSSL(_ server: Bool, _ hostname: CFString?) -> SecPolicy {
    SecPolicy(judgesServers: server, hostName: hostname.map { $0 as String })
}

/// Returns the policy for a server without a host name check.
public func SecPolicyCreateBasicX509() -> SecPolicy { SecPolicy(judgesServers: true, hostName: nil) }

/// Replaces the policy of a trust. `policies` is a policy or an array that has the policy as its first item.
@discardableResult
public func SecTrustSetPolicies(_ trust: SecTrust, _ policies: CFTypeRef) -> OSStatus {
    guard let policy = SecPolicy.first(of: policies) else { return errSecParam }
    trust.change {
        $0.peer = policy.judgesServers ? .server : .client
        $0.serverName = policy.hostName
    }
    return errSecSuccess
}

extension SecPolicy {
    static func first(of policies: Any?) -> SecPolicy? {
        policies as? SecPolicy ?? (policies as? NSArray)?.firstObject as? SecPolicy
    }
}

/// Creates and stores a trust for a certificate, or for an array of certificates that starts with the peer's
/// own.
@discardableResult
public func SecTrustCreateWithCertificates(
    _ certificates: CFTypeRef, _ policies: CFTypeRef?, _ trust: UnsafeMutablePointer<SecTrust?>
) -> OSStatus {
    let list = SecCertificate.certificate(certificates).map { [$0] } ?? SecCertificate.certificates(certificates)
    guard let list, !list.isEmpty else { return errSecParam }
    trust.pointee = SecTrust(list, SecPolicy.first(of: policies))
    return errSecSuccess
}

// MARK: - Anchors

/// Trusts these certificates instead of the system's roots. Each certificate is trusted as a root, even if it
/// is a server's own certificate.
@discardableResult
public func SecTrustSetAnchorCertificates(_ trust: SecTrust, _ anchorCertificates: CFArray?) -> OSStatus {
    guard let anchorCertificates else {
        trust.change { ($0.anchors, $0.trustsSystemRoots) = ([], true) }
        return errSecSuccess
    }
    guard let anchors = SecCertificate.certificates(anchorCertificates) else { return errSecParam }
    trust.change { ($0.anchors, $0.trustsSystemRoots) = (anchors, false) }
    return errSecSuccess
}

/// Sets whether only the anchors are trusted, or also the system's roots.
@discardableResult
public func SecTrustSetAnchorCertificatesOnly(_ trust: SecTrust, _ anchorCertificatesOnly: Bool) -> OSStatus {
    trust.change { $0.trustsSystemRoots = !anchorCertificatesOnly }
    return errSecSuccess
}

// MARK: - Evaluation

/// Returns whether the peer is trusted, and stores an error if it is not.
@discardableResult
public func SecTrustEvaluateWithError(_ trust: SecTrust, _ error: UnsafeMutablePointer<CFError?>?) -> Bool {
    let verdict = trust.evaluate()
    error?.pointee = verdict.asSecurityError
    return verdict == .trusted
}

/// Evaluates the trust on a queue, and calls `result` with the trust, whether the peer is trusted, and the
/// error.
@discardableResult
@preconcurrency
public func SecTrustEvaluateAsyncWithError(
    _ trust: SecTrust, _ queue: DispatchQueue, _ result: @escaping @Sendable (SecTrust, Bool, CFError?) -> Void
) -> OSStatus {
    queue.async {
        let verdict = trust.evaluate()
        result(trust, verdict == .trusted, verdict.asSecurityError)
    }
    return errSecSuccess
}

/// Evaluates the trust on a queue, and calls `result` with the trust and the result. An older form of
/// `SecTrustEvaluateAsyncWithError`.
@discardableResult
@preconcurrency
public func SecTrustEvaluateAsync(
    _ trust: SecTrust, _ queue: DispatchQueue?, _ result: @escaping @Sendable (SecTrust, SecTrustResultType) -> Void
) -> OSStatus {
    (queue ?? .global()).async {
        _ = trust.evaluate()
        result(trust, trust.lastResult)
    }
    return errSecSuccess
}

/// Evaluates the trust and stores the result. The peer is trusted if the result is `.unspecified` or
/// `.proceed`.
@discardableResult
public func SecTrustEvaluate(_ trust: SecTrust, _ result: UnsafeMutablePointer<SecTrustResultType>) -> OSStatus {
    _ = trust.evaluate()
    result.pointee = trust.lastResult
    return errSecSuccess
}

/// Stores the result of the last evaluation.
@discardableResult
public func SecTrustGetTrustResult(_ trust: SecTrust, _ result: UnsafeMutablePointer<SecTrustResultType>) -> OSStatus {
    result.pointee = trust.lastResult
    return errSecSuccess
}

/// The key for a certificate's display name in the items of `SecTrustCopyProperties`.
public var kSecPropertyTypeTitle: CFString { "title" }
/// The key for the reason why a certificate is not trusted in the items of `SecTrustCopyProperties`.
public var kSecPropertyTypeError: CFString { "error" }

/// Returns one dictionary for each certificate that the peer sent. Each contains the display name and, for
/// the certificate that failed the evaluation, the reason. Evaluates the trust first, if necessary.
public func SecTrustCopyProperties(_ trust: SecTrust) -> CFArray? {
    let items = trust.chain.map { certificate in
        NSMutableDictionary(object: SecCertificate(certificate).displayName, forKey: kSecPropertyTypeTitle)
    }
    if case .untrusted(let reason, _, let depth) = trust.verdict, !items.isEmpty {
        // The path may end with a root that the peer did not send.
        items[min(depth, items.count - 1)][kSecPropertyTypeError] = reason as NSString
    }
    return items as NSArray
}

extension PeerTrust.Verdict {
    /// The error for an untrusted peer, or `nil` for a trusted peer.
    fileprivate var asSecurityError: NSError? {
        guard case .untrusted(let reason, let code, _) = self else { return nil }
        return NSError(
            domain: NSOSStatusErrorDomain, code: Int(Self.status(of: code)), userInfo: [NSLocalizedDescriptionKey: reason])
    }

    /// Returns the status for an OpenSSL `X509_V_ERR_…` code.
    private static func status(of code: Int32) -> OSStatus {
        switch code {
        case 9: errSecCertificateNotValidYet
        case 10: errSecCertificateExpired
        case 23: errSecCertificateRevoked
        case 62, 64: errSecHostNameMismatch
        default: errSecNotTrusted
        }
    }
}

// MARK: - The chain

/// Returns the number of certificates that the peer sent.
public func SecTrustGetCertificateCount(_ trust: SecTrust) -> CFIndex { trust.chain.count }

/// Returns one of the peer's certificates, or `nil` if the index is out of range. Index 0 is the peer's own
/// certificate.
public func SecTrustGetCertificateAtIndex(_ trust: SecTrust, _ ix: CFIndex) -> SecCertificate? {
    trust.chain.indices.contains(ix) ? SecCertificate(trust.chain[ix]) : nil
}

/// Returns the certificates as the peer sent them, starting with the peer's own certificate.
public func SecTrustCopyCertificateChain(_ trust: SecTrust) -> CFArray? {
    trust.chain.map { SecCertificate($0) } as NSArray
}

/// Returns the public key of the peer's own certificate.
public func SecTrustCopyKey(_ trust: SecTrust) -> SecKey? {
    trust.chain.first.map { SecKey(.publicKey($0.publicKey)) }
}

/// Returns the public key of the peer's own certificate.
public func SecTrustCopyPublicKey(_ trust: SecTrust) -> SecKey? { SecTrustCopyKey(trust) }
