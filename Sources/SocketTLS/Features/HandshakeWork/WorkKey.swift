internal import SocketBuffers
internal import Synchronization

/// The steps of handshakes that wait for the same thing take turns with the others.
package enum WorkKey: Hashable, Sendable {
    /// They need this private key, which is slow. The number is a digest of its public key.
    case signing(Int)
    /// They verify chains for this context, which has no slow key.
    case verifying(Int)

    private static let lastContext = Atomic(0)

    /// - Parameter slow: The certificate of a slow key; equal for certificates with the same public key.
    init(_ slow: Certificate?) {
        guard let slow else {
            self = .verifying(Self.lastContext.add(1, ordering: .relaxed).newValue)
            return
        }
        let digest = DigestFields.digest { $0.append(slow.publicKeySHA256) }
        self = .signing(digest.prefix(8).reduce(0) { $0 << 8 | Int($1) })
    }
}
