/// A key without a certificate for which a peer is accepted.
struct KeyProof: Equatable {
    let kind: Kind
    /// The public key, or the identity of a secret one.
    let value: [UInt8]

    /// A kind of such keys. Each is declared by its feature.
    struct Kind: Equatable, Sendable {
        private let number: UInt8
        /// Both sides have the key, so neither shows a certificate, and no peer is accepted without it.
        let isShared: Bool
        /// The refusal of a peer without such a key, where one is required.
        let missing: ProofFault

        init(number: UInt8, isShared: Bool, missing: ProofFault) {
            self.number = number
            self.isShared = isShared
            self.missing = missing
        }

        static func == (left: Kind, right: Kind) -> Bool { left.number == right.number }
    }
}

/// Why a peer is refused for its key, or for having none.
struct ProofFault: Equatable, Sendable {
    let error: TLSError
    /// The result of OpenSSL's verification, which decides about the alert.
    let verifyCode: Int32
}
