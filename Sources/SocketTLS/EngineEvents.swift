internal import COpenSSL
internal import SocketBuffers

/// What OpenSSL's callbacks told an engine, and what they answer; reached from an `SSL` by its BIO.
///
/// A class of its own, so that the callbacks never touch a property that the engine is using.
final class EngineEvents {
    let bio: EngineBIO
    let isServer: Bool
    /// The name that the peer's certificate must be for, when one is expected.
    let expectedName: String?
    var gate: TrustGate
    /// The fatal alert that was sent.
    private(set) var sentAlert: TLSAlert?
    /// From now on, handshake messages of the peer count as `messagesSinceData`.
    var isEstablished = false
    /// The next session ticket becomes this alert instead: see `EngineCallbacks.installRefusal(on:)`.
    var alertInsteadOfTicket: TLSAlert?
    private var messagesSinceData = 0

    /// Handshake messages that a peer may send after the handshake before it sends data again: KeyUpdate, and tickets.
    ///
    /// OpenSSL has no limit of its own, works through thousands in one call, and answers each KeyUpdate.
    static let messageLimit = 32

    init(bio: EngineBIO, isServer: Bool, expectedName: String?, gate: TrustGate) {
        self.bio = bio
        self.isServer = isServer
        self.expectedName = expectedName
        self.gate = gate
    }

    var isFlooded: Bool { messagesSinceData > Self.messageLimit }

    func sawData() {
        messagesSinceData = 0
    }

    func sawAlert(_ alert: TLSAlert, isFatal: Bool, isOurs: Bool) {
        if isFatal, isOurs { sentAlert = alert }
    }

    func sawHandshakeMessage(_ type: UInt8, version: Int32) {
        if isEstablished {
            messagesSinceData += 1
            if isFlooded { bio.becomePoisoned() }
        } else if isServer, version == TLS1_2_VERSION, type == UInt8(SSL3_MT_CERTIFICATE_VERIFY), gate.isUndecided {
            // The client's last message before its Finished: the server's own Finished waits for the decision.
            bio.isHeld = true
        }
    }

    /// What the verify callback does with a ruling of the gate.
    func apply(_ ruling: TrustGate.Ruling, to store: OpaquePointer, on ssl: OpaquePointer) -> Int32 {
        switch ruling {
        case .accept:
            X509_STORE_CTX_set_error(store, X509_V_OK)
            return 1
        case .refuse:
            X509_STORE_CTX_set_error(store, refusalCode)
            return 0
        case .undecided:
            X509_STORE_CTX_set_error(store, X509_V_OK)
            // On a server this call would silently accept for good: there the engine holds everything back (TrustGate, rule 6).
            if !isServer, COpenSSL_setRetryVerify(ssl) <= 0 { return 0 }
            return 1
        }
    }

    /// OpenSSL's own reason, or else the one that becomes the alert bad_certificate.
    private var refusalCode: Int32 {
        switch gate.refusal {
        case .byVerification(let trust), .byDecision(let trust, _):
            if case .untrusted(_, let code, _) = trust.verdict { return code }
            return X509_V_ERR_CERT_REJECTED
        case nil: return X509_V_ERR_UNSPECIFIED
        }
    }
}
