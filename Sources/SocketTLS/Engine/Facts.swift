internal import COpenSSL

/// The facts that OpenSSL's callbacks record about a connection, and the decisions that they return.
/// `EngineCallbacks` finds this object from an `SSL`. The `judge` decides whether the peer is accepted.
///
/// This is a separate class, so that the callbacks never access a property that the engine is using.
final class Facts {
    let bio: EngineBIO
    let isServer: Bool
    let judge: Judge
    /// `nil` if the settings have no pre-shared keys.
    private(set) var preSharedKeys: PreSharedKeyNegotiation?
    private(set) var sentAlert: TLSAlert?
    /// Whether the peer cancelled the handshake (RFC 8446, 6.1).
    private(set) var isCancelled = false
    @exclusivity(unchecked) var isEstablished = false {
        didSet { (selection, work) = (nil, .inPlace) }
    }
    /// The reason that this side rejects the ClientHello, or `nil` if it does not reject it.
    var complaintAboutHello: String?
    /// The number of ServerHello messages that a client has received. If there are two, the first
    /// was a HelloRetryRequest (RFC 8446, 4.1.4).
    var serverHelloCount = 0
    /// Whether the server has requested the client's certificate during the handshake.
    var hasCertificateRequest = false
    /// The selection of a server's settings by its client's server name. `nil` after the handshake, and if
    /// the server has no settings for names.
    var selection: ServerSelection?
    /// The digest of the client's server name (`TLSClientHello.nameDigest`) if a server's settings were
    /// selected for that name, or else 0.
    var nameDigest = 0
    /// Set on a client when the server has sent a session.
    @exclusivity(unchecked) var hasNewSession = false
    /// The key for the tickets that are being issued, or `nil` to use the context's key.
    var ticketKey: TLSTicketKey?
    /// An alert to send in place of the next session ticket: see `EngineCallbacks.installRefusal(on:)`.
    var alertInsteadOfTicket: TLSAlert?
    /// Whether a server has requested a certificate after the handshake, and the client's Finished has not
    /// arrived.
    @exclusivity(unchecked) var isAwaitingClient = false
    /// Where slow computations run.
    var work: EngineWork
    /// Limits the peer's messages. OpenSSL has no such limit: it processes thousands of messages in one call,
    /// and replies to every KeyUpdate.
    @exclusivity(unchecked) private var allowance = MessageAllowance()
    private let clock: @Sendable () -> Int

    /// - Parameter clock: A monotonic clock, in nanoseconds.
    init(bio: EngineBIO, judge: Judge, work: EngineWork, clock: @escaping @Sendable () -> Int) {
        self.bio = bio
        self.judge = judge
        self.work = work
        self.clock = clock
        isServer = judge.isServer
    }

    /// Uses the pre-shared keys of a context. Called for the engine's first context, and again if that
    /// context is replaced.
    func adopt(_ proof: TLSProof) {
        preSharedKeys = proof.preSharedKeys.map { PreSharedKeyNegotiation($0) }
    }

    var isFlooded: Bool { allowance.isSpent }

    @inline(__always)
    func takeNewSession() -> Bool {
        guard hasNewSession else { return false }
        hasNewSession = false
        return true
    }

    func sawAlert(_ alert: TLSAlert, isFatal: Bool, isOurs: Bool) {
        if isOurs {
            if isFatal, !bio.dropsOutput { sentAlert = alert }
        } else {
            if alert == .userCanceled { isCancelled = true }
            spendAllowance()
        }
    }

    func sawHandshakeMessage(_ type: UInt8, version: Int32) {
        spendAllowance()
        // OpenSSL stops reading here: see rule 3 of `TLSEngine+ClientAuthentication.swift`.
        if isAwaitingClient, type == UInt8(SSL3_MT_FINISHED) { bio.isHeld = true }
        if !isEstablished, isServer, TLSProtocolVersion(wireNumber: version) < .tls13, type == UInt8(SSL3_MT_CERTIFICATE_VERIFY),
            judge.gate.isUndecided
        {
            // This is the client's last message before its Finished. The server's own Finished is delayed
            // until the decision.
            bio.isHeld = true
        }
    }

    private func spendAllowance() {
        allowance.spend(at: clock())
        if isFlooded { bio.becomePoisoned() }
    }
}

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

extension Facts {
    // MARK: - Uses of the features

    /// Records a ClientHello that a server has received.
    func sawClientHello(_ message: UnsafeRawBufferPointer) {
        if isServer, bio.records == nil { preSharedKeys?.binders.sawHello(message) }
    }

    /// Returns the reason to reject a ClientHello that differs from the one for which a server's settings
    /// were selected.
    func complaintAboutChange(in hello: UnsafeRawBufferPointer) -> String? {
        selection?.complaint(about: hello, hasCookie: bio.records != nil)
    }

    /// Records a ServerHello that this side sends.
    func sentServerHello(_ message: UnsafeRawBufferPointer) {
        preSharedKeys?.binders.sawAnswer(message)
    }

    /// Returns the pre-shared key that both sides used in the completed handshake of `ssl`, if any.
    func sharedKey(on ssl: OpaquePointer) -> KeyProof? { preSharedKeys?.proof(on: ssl) }

    var tickets: TicketFacts {
        TicketFacts(key: ticketKey, mayAskSource: !isEstablished, name: nameDigest, evidenceEnd: judge.evidenceEnd)
    }

    /// A client can also receive a request after the handshake, which is not recorded.
    func noteCertificateRequest() {
        if !isEstablished { hasCertificateRequest = true }
    }

    /// Returns the server's request for a certificate, or `nil` on a server and on a client that has received
    /// no request during the handshake.
    func certificateRequest(on ssl: OpaquePointer) -> TLSClientCertificateRequest? {
        guard hasCertificateRequest else { return nil }
        let names = SSL_get0_peer_CA_list(ssl)
        return TLSClientCertificateRequest(
            authorities: (0..<COpenSSL_sk_X509_NAME_num(names)).map { index in
                TLSCertificate.text(of: COpenSSL_sk_X509_NAME_value(names, index))
            })
    }

    /// Whether expensive work may be done now. If false, OpenSSL must stop, and the engine requests a thread.
    func mayCompute() -> Bool {
        switch work {
        case .inPlace, .underway: return true
        case .none, .wanted, .done:
            work = .wanted
            return false
        }
    }
}
