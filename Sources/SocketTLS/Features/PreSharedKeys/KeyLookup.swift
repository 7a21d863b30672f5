internal import COpenSSL

/// Looks up a DTLS client's pre-shared key with a function that may suspend.
///
/// OpenSSL calls back for the key while it processes the ClientKeyExchange, and cannot pause there. The
/// message is not encrypted, so its datagrams are held back, together with all later ones, until the function
/// has returned the key for the identity in the message.
struct KeyLookup {
    private enum State {
        case collecting
        case found([UInt8])
        case asked
        case done
    }

    private let keys: TLSPreSharedKeys
    private var state = State.collecting
    /// An identity has at most 128 bytes, and a public key 133.
    private var fragments = MessageFragments(of: UInt8(SSL3_MT_CLIENT_KEY_EXCHANGE), limit: 1024)
    private var held: [[UInt8]] = []
    private var heldByteCount = 0

    private static let heldLimit = 64 * 1024

    /// Returns `nil` unless the keys are looked up by a function that may suspend.
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
        case .done: return .passed
        case .collecting:
            guard let cipher, SSL_CIPHER_get_auth_nid(cipher) == NID_auth_psk, fragments.isPart(datagram) else { return .passed }
            if let message = fragments.add(datagram) {
                let identity = message.withUnsafeBytes { bytes in
                    var reader = FieldReader(bytes.dropFirst(4))
                    return reader.field(lengthOf: 2).map { Array($0) }
                }
                // Without an identity, OpenSSL rejects the message.
                state = identity.map { .found($0) } ?? .done
                if identity == nil { return .passed }
            }
        case .found, .asked: break
        }
        guard heldByteCount + datagram.count <= Self.heldLimit else { return .dropped }
        heldByteCount += datagram.count
        held.append(Array(datagram))
        return .held
    }

    /// Whether the handshake is paused.
    var isAsked: Bool { if case .asked = state { true } else { false } }

    /// Returns the question for the program, once.
    mutating func takeQuestion() -> TLSServerQuestion? {
        guard case .found(let identity) = state else { return nil }
        state = .asked
        return .key(KeyQuestion(keys: keys, identity: identity))
    }

    /// Ends the pause. Returns the datagrams that were held back.
    mutating func finish() -> [[UInt8]] {
        state = .done
        defer { held = [] }
        return held
    }
}

/// The question for the key of an identity.
package struct KeyQuestion: Sendable {
    let keys: TLSPreSharedKeys
    let identity: [UInt8]

    func answer() async -> KeyAnswer { await keys.lookUp(identity) }
}

package enum KeyAnswer: Sendable {
    /// The pre-shared key, or `nil` if the identity is unknown.
    case found(TLSPreSharedKey?)
    /// The function threw an error, with this description.
    case failed(String)
}

extension DTLSEngine {
    /// Resolves `.awaitingSettings` for a pre-shared key. Call `handshake()` afterwards.
    package func choose(_ key: KeyAnswer) {
        guard keyLookup?.isAsked == true, let held = keyLookup?.finish() else { return }
        switch key {
        case .found(let key):
            engine.facts.preSharedKeys?.lookedUp = key
            for datagram in held { datagram.withUnsafeBytes { receive($0) } }
        case .failed(let reason):
            engine.course.fail(
                TLSError(.invalidSettings, "the pre-shared key cannot be looked up: \(reason)", operation: "TLSPreSharedKeys"))
        }
    }
}
