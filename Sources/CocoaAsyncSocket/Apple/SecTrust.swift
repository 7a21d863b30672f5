// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Rules of a trust:
//  1. It judges by the same rules as a handshake (`ChainEvaluation`).
//  2. Until the program sets a policy, a server's certificate must be for the name that the settings name, or
//     else for the host that the socket connected to. On Apple platforms only the first counts (D10).
//  3. Anchors replace the system's roots, unless the program says that both count.

internal import AsyncSockets
public import Foundation
internal import SocketBuffers
internal import SocketTLS

/// The part of TLS settings that is about the evaluation of a peer.
struct EvaluationSettings: Sendable {
    /// Nil: the system's roots.
    var anchors: [Certificate]?
    /// Whom this side judges.
    var peer = PeerTrust.Peer.server
    /// The name that a server's certificate must be for; nil: the socket connected to nothing that has one.
    var serverName: String?
}

/// The certificates of a peer, and the means to judge them.
public final class SecTrust: NSObject, Sendable {
    let chain: [Certificate]
    private let evaluation: Locked<ChainEvaluation>
    private let lastVerdict = Locked<PeerTrust.Verdict?>(nil)

    init(_ chain: [Certificate], _ settings: EvaluationSettings) {
        self.chain = chain
        evaluation = Locked(
            ChainEvaluation(
                chain, of: settings.peer, serverName: settings.serverName, anchors: settings.anchors ?? [],
                trustsSystemRoots: settings.anchors == nil))
    }

    init(_ chain: [Certificate], _ policy: SecPolicy?) {
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

    /// Judges the chain; the first evaluation with the system's roots reads them.
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

    var lastResult: SecTrustResultType {
        switch lastVerdict.withLock({ $0 }) {
        case nil: .invalid
        case .trusted: .unspecified
        case .untrusted: .recoverableTrustFailure
        }
    }
}

/// The rules by which a trust is evaluated.
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
    /// There was none.
    case invalid = 0
    /// The user trusts the peer.
    case proceed = 1
    /// The user does not trust the peer.
    case deny = 3
    /// The peer is trusted.
    case unspecified = 4
    /// The peer is not trusted.
    case recoverableTrustFailure = 5
    /// The peer is not trusted, and cannot be.
    case fatalTrustFailure = 6
    /// Something failed.
    case otherError = 7
}

// MARK: - Policies

/// The rules for a peer of TLS: a server, for a host name if one is given, or a client.
public func SecPolicyCreateSSL(_ server: Bool, _ hostname: CFString?) -> SecPolicy {
    SecPolicy(judgesServers: server, hostName: hostname.map { $0 as String })
}

/// The rules for a server without a name.
public func SecPolicyCreateBasicX509() -> SecPolicy { SecPolicy(judgesServers: true, hostName: nil) }

/// Judges by this policy from now on: one, or an array whose first one counts.
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

/// Stores a trust for certificates: one, or an array with the peer's own first.
@discardableResult
public func SecTrustCreateWithCertificates(
    _ certificates: CFTypeRef, _ policies: CFTypeRef?, _ trust: UnsafeMutablePointer<SecTrust?>
) -> OSStatus {
    let list = (certificates as? SecCertificate).map { [$0] } ?? (certificates as? NSArray).flatMap { $0 as? [SecCertificate] }
    guard let list, !list.isEmpty else { return errSecParam }
    trust.pointee = SecTrust(list.map(\.certificate), SecPolicy.first(of: policies))
    return errSecSuccess
}

// MARK: - Anchors

/// Trusts these certificates, and no longer the system's roots. Each is a root, a server's own certificate
/// too.
@discardableResult
public func SecTrustSetAnchorCertificates(_ trust: SecTrust, _ anchorCertificates: CFArray?) -> OSStatus {
    guard let anchorCertificates else {
        trust.change { ($0.anchors, $0.trustsSystemRoots) = ([], true) }
        return errSecSuccess
    }
    guard let anchors = anchorCertificates as? [SecCertificate] else { return errSecParam }
    trust.change { ($0.anchors, $0.trustsSystemRoots) = (anchors.map(\.certificate), false) }
    return errSecSuccess
}

/// Whether the anchors alone are trusted, or the system's roots beside them.
@discardableResult
public func SecTrustSetAnchorCertificatesOnly(_ trust: SecTrust, _ anchorCertificatesOnly: Bool) -> OSStatus {
    trust.change { $0.trustsSystemRoots = !anchorCertificatesOnly }
    return errSecSuccess
}

// MARK: - Evaluation

/// Whether the peer is trusted, and otherwise why not.
@discardableResult
public func SecTrustEvaluateWithError(_ trust: SecTrust, _ error: UnsafeMutablePointer<CFError?>?) -> Bool {
    let verdict = trust.evaluate()
    error?.pointee = verdict.asSecurityError
    return verdict == .trusted
}

/// The same on a queue: `result` gets the trust, the answer, and the error.
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

/// The older form: `result` gets the trust and the answer.
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

/// Stores whether the peer is trusted: `.unspecified` or `.proceed` means yes.
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

extension PeerTrust.Verdict {
    /// Nil for a trusted peer.
    fileprivate var asSecurityError: NSError? {
        guard case .untrusted(let reason, let code, _) = self else { return nil }
        return NSError(
            domain: NSOSStatusErrorDomain, code: Int(Self.status(of: code)), userInfo: [NSLocalizedDescriptionKey: reason])
    }

    /// The result for an `X509_V_ERR_…` of OpenSSL.
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

/// How many certificates the peer has sent.
public func SecTrustGetCertificateCount(_ trust: SecTrust) -> CFIndex { trust.chain.count }

/// A certificate of the peer, its own at 0; nil past the end.
public func SecTrustGetCertificateAtIndex(_ trust: SecTrust, _ ix: CFIndex) -> SecCertificate? {
    trust.chain.indices.contains(ix) ? SecCertificate(trust.chain[ix]) : nil
}

/// The certificates as the peer sent them, its own first.
public func SecTrustCopyCertificateChain(_ trust: SecTrust) -> CFArray? {
    trust.chain.map { SecCertificate($0) } as NSArray
}

/// The public key of the peer's own certificate.
public func SecTrustCopyKey(_ trust: SecTrust) -> SecKey? {
    trust.chain.first.map { SecKey(publicKeyInfo: $0.publicKey) }
}

/// The public key of the peer's own certificate.
public func SecTrustCopyPublicKey(_ trust: SecTrust) -> SecKey? { SecTrustCopyKey(trust) }
