internal import SocketBuffers
internal import Synchronization

/// The state of the expensive work that an engine hands over to another thread.
enum EngineWork {
    /// The engine computes on the calling thread.
    case inPlace
    case none
    /// OpenSSL has stopped and needs a thread for the work.
    case wanted
    case underway
    /// The step is complete, with this outcome.
    case done(OpenSSLCall.Answer)
}

/// The resource that a step of a handshake needs. Steps with different keys take turns, so that steps that
/// need a slow resource do not delay all other steps.
package enum WorkKey: Hashable, Sendable {
    /// Steps that need this slow private key. The number is a digest of its public key.
    case signing(Int)
    /// Steps that verify chains for this context, which has no slow key.
    case verifying(Int)

    private static let lastContext = Atomic(0)

    /// - Parameter slow: The certificate of a slow key. Certificates with the same public key result in
    ///   the same `WorkKey`.
    init(_ slow: TLSCertificate?) {
        guard let slow else {
            self = .verifying(Self.lastContext.add(1, ordering: .relaxed).newValue)
            return
        }
        let digest = DigestFields.digest { $0.append(slow.publicKeySHA256) }
        self = .signing(digest.prefix(8).reduce(0) { $0 << 8 | Int($1) })
    }
}
