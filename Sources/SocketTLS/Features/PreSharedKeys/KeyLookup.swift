internal import COpenSSL

/// Looks up a DTLS client's pre-shared key with an async function.
///
/// OpenSSL requests the key in a callback while it processes the ClientKeyExchange, and the callback cannot
/// suspend. The identity is therefore read from the unencrypted message first, and the message and all later
/// datagrams are held back until the key is known.
struct KeyLookup {
    private enum State {
        case collecting
        /// The identity, or `nil` if it is invalid.
        case found([UInt8]?)
        case asked
    }

    private let keys: TLSPreSharedKeys
    private var state = State.collecting
    /// An identity has at most 128 bytes, and a public key 133.
    private var fragments = MessageFragments(of: UInt8(SSL3_MT_CLIENT_KEY_EXCHANGE), limit: 1024)
    private(set) var held: [[UInt8]] = []
    private var heldByteCount = 0

    private static let heldLimit = 64 * 1024

    /// Returns `nil` unless the keys are looked up by an async function.
    init?(_ proof: TLSProof) {
        guard let keys = proof.preSharedKeys, keys.suspends else { return nil }
        self.keys = keys
    }

    enum Reception {
        case passed
        case held
        case dropped
    }

    /// - Parameter cipher: The chosen cipher suite, or `nil` before it is chosen.
    mutating func receive(_ datagram: UnsafeRawBufferPointer, _ cipher: OpaquePointer?) -> Reception {
        switch state {
        case .collecting:
            guard let cipher, SSL_CIPHER_get_auth_nid(cipher) == NID_auth_psk, fragments.isPart(datagram) else { return .passed }
            guard collect(datagram) else { return .dropped }
        case .found, .asked: break
        }
        guard heldByteCount + datagram.count <= Self.heldLimit else { return .dropped }
        heldByteCount += datagram.count
        held.append(Array(datagram))
        return .held
    }

    /// Returns false if the datagram contains no new bytes of the message.
    private mutating func collect(_ datagram: UnsafeRawBufferPointer) -> Bool {
        let count = fragments.datagrams.count
        if let message = fragments.add(datagram) { note(message) }
        return fragments.datagrams.count > count
    }

    /// Reads the identity of a ClientKeyExchange (RFC 4279, section 2; RFC 5489, section 2).
    private mutating func note(_ message: [UInt8]) {
        let identity = message.withUnsafeBytes { bytes in
            var reader = FieldReader(bytes.dropFirst(4))
            return reader.field(lengthOf: 2).map { Array($0) }
        }
        // No key can have any other identity, and OpenSSL rejects most such identities.
        let isUsable = identity.map { (1...TLSPreSharedKey.identityLimitOfTLS12).contains($0.count) && !$0.contains(0) } ?? false
        state = .found(isUsable ? identity : nil)
    }

    /// Whether the handshake is paused.
    var isAsked: Bool { if case .asked = state { true } else { false } }

    enum Turn {
        case none
        /// The question for the program. The handshake is paused until it is resolved.
        case asks(TLSServerQuestion)
        /// The handshake continues without a key.
        case continues
    }

    /// Returns the next step once the identity is known. Later calls return `.none`.
    mutating func takeTurn() -> Turn {
        guard case .found(let identity) = state else { return .none }
        state = .asked
        return identity.map { .asks(.key(KeyQuestion(keys: keys, identity: $0))) } ?? .continues
    }
}
