/// A key that authenticates a peer without a certificate.
struct KeyProof: Equatable {
    let kind: Kind
    /// The public key, or the identity of a shared secret key.
    let value: [UInt8]

    /// A kind of key. Each kind is declared by the feature that uses it.
    struct Kind: Equatable, Sendable {
        private let number: UInt8
        /// Whether both sides hold the key. If so, neither side sends a certificate, and a peer without the
        /// key is rejected.
        let isShared: Bool
        /// The fault of a peer without a key of this kind, if the settings require a key.
        let missing: ProofFault

        init(number: UInt8, isShared: Bool, missing: ProofFault) {
            self.number = number
            self.isShared = isShared
            self.missing = missing
        }

        static func == (left: Kind, right: Kind) -> Bool { left.number == right.number }
    }
}

/// Whether a peer must have one of the keys in the settings, or may use certificates instead.
package enum KeyUse: Sendable, Hashable {
    case required
    case preferred
}

extension KeyUse: Digestible {
    func append(to fields: inout DigestFields) {
        switch self {
        case .required: fields.append(1)
        case .preferred: fields.append(2)
        }
    }
}

/// The reason that a peer is rejected: its key is not accepted, or it has no key although a key is required.
struct ProofFault: Equatable, Sendable {
    let error: TLSError
    /// The result of OpenSSL's verification, which determines the alert.
    let verifyCode: Int32
}
