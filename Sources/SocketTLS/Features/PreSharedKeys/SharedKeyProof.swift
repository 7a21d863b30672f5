internal import COpenSSL

extension Facts {
    func sharedKey(on ssl: OpaquePointer) -> KeyProof? { preSharedKeys?.proof(on: ssl) }

    func noteHello(_ message: UnsafeRawBufferPointer) {
        if isServer, bio.records == nil { preSharedKeys?.binders.sawHello(message) }
    }

    /// Records a ServerHello that this side sends.
    func noteServerHello(_ message: UnsafeRawBufferPointer) {
        preSharedKeys?.binders.sawAnswer(message)
    }
}

extension KeyProof.Kind {
    static let preSharedKey = KeyProof.Kind(
        number: 2, isShared: true,
        missing: ProofFault(
            error: TLSError(.preSharedKeyMissing, "the peer did not use a pre-shared key, but the settings require one"),
            // OpenSSL maps this code to the alert handshake_failure.
            verifyCode: X509_V_ERR_APPLICATION_VERIFICATION))
}

extension TLSError.Code {
    /// The peer did not use a pre-shared key, but the settings require one.
    public static let preSharedKeyMissing = TLSError.Code("preSharedKeyMissing", fault: .peer)
    /// The two sides do not have the same pre-shared key: the server does not know the identity, or one
    /// of the keys is wrong.
    public static let preSharedKeyMismatch = TLSError.Code("preSharedKeyMismatch", fault: .peer)
}
