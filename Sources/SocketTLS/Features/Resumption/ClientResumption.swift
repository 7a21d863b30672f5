// Rules for resumption on a client:
//  1. A session is passed from one connection to another only within one scope (`ResumptionScope`): the
//     same name, trust settings, identity and protocols. A session from the store is also used only for
//     the same host and port.
//  2. A session is not stored until the handshake is complete and the peer is accepted.
//  3. A session contains the certificates, the verdict, and the date of the verdict. Resumption does not
//     renew them.
//  4. Resumption does not skip the trust decision: the trust gate receives the verdict stored in the
//     session, and calls the trust callback if the settings require it.
//  5. A session is removed from the store before it is offered. A TLS 1.2 session is stored again if the
//     server has resumed it and sent no new session. A TLS 1.3 session is used once.
//  6. If the server does not accept a session, a full handshake is performed, with no other consequence.

internal import COpenSSL
internal import FoundationEssentials
internal import SocketBuffers

/// The session that a client's connection offers to resume, and the sessions it receives for later
/// connections. Used by one engine, except for `latest`.
final class ClientResumption: @unchecked Sendable {
    // Unchecked: the engine confines all properties except `latest`, which is protected by a lock.

    private let scope: ResumptionScope
    /// Where new sessions are stored; `nil` if they are only available as `latest`.
    private let place: (store: any TLSSessionStore, key: TLSSessionStoreKey)?
    /// The offered session; reset to `nil` if the server did not resume it.
    private(set) var offered: TLSResumableSession?
    private var isEstablished = false
    /// The verdict of this handshake, and its date.
    private var verdict = PeerTrust.Verdict.trusted
    private var otherFaults: [PeerTrust.Verdict] = []
    private var verified = Date()
    /// When the first piece of evidence for the verdict expires.
    private var evidenceEnd: Date?
    private let newest = Locked<TLSResumableSession?>(nil)
    /// The sessions that have arrived since the handshake and are not stored yet.
    private var unstored: [TLSResumableSession] = []

    /// The session that a later connection can resume.
    var latest: TLSResumableSession? { newest.withLock { $0 } }

    /// Returns `nil` if the settings disable resumption.
    ///
    /// - Parameter endpoint: The host and port; `nil` if they are unknown.
    init?(_ settings: TLSSettingValues, in context: ResumptionScope, serverName: String, endpoint: String?) throws(TLSError) {
        let peer = ExpectedPeer(
            serverName: serverName.lowercased(), verifiesHostName: settings.verifiesHostName,
            trustEvaluation: settings.trustEvaluation, serverProof: settings.proof)
        scope = peer.scope(in: context)
        switch settings.resumption {
        case .none: return nil
        case .inMemory:
            place = endpoint.map { [scope] in (TLSInMemorySessionStore.shared, TLSSessionStoreKey(scope, endpoint: $0)) }
        case .store(let store): place = endpoint.map { [scope] in (store, TLSSessionStoreKey(scope, endpoint: $0)) }
        case .session(let session):
            place = nil
            guard session.scope == scope else {
                throw TLSError(
                    .invalidSettings,
                    "the session to resume belongs to a connection with a different server name or different settings",
                    operation: "TLSSettings")
            }
            offered = session
        }
        if let place { offered = place.store.take(for: place.key) }
        // A store may be user code, so the session that it returns is checked.
        if let session = offered, session.scope != scope || !session.isUsable { offered = nil }
    }

    func offer(on ssl: OpaquePointer) throws(TLSError) {
        try offered?.handle.offer(on: ssl)
    }

    func judged(_ verdict: PeerTrust.Verdict, _ otherFaults: [PeerTrust.Verdict]) {
        (self.verdict, self.otherFaults) = (verdict, otherFaults)
        verified = Date()
    }

    func evidenceEnds(_ end: Date) {
        evidenceEnd = min(evidenceEnd ?? end, end)
    }

    func establish(_ ssl: OpaquePointer) {
        isEstablished = true
        if SSL_session_reused(ssl) == 0 { offered = nil }
        if let latest {
            put(latest)
        } else if offered?.isForOneUse == false, let session = SSL_get1_session(ssl) {
            received(session, from: ssl)
            storeReceived()
        }
    }

    /// Records a session that the server has sent, and takes ownership of the reference. Called by
    /// OpenSSL, so the session is stored later, because the store may be user code.
    func received(_ session: OpaquePointer, from ssl: OpaquePointer) {
        let handle = SessionHandle(owning: session)
        guard handle.isResumable else { return }
        let new =
            if let offered, SSL_session_reused(ssl) == 1 {
                TLSResumableSession(
                    handle, offered.peerCertificates, offered.verdict, otherFaults: offered.otherFaults,
                    verified: offered.verified, evidenceEnd: offered.evidenceEnd, scope)
            } else {
                // The sessions of a connection share the certificates, which may be large.
                TLSResumableSession(
                    handle, latest?.peerCertificates ?? TLSCertificate.certificates(ofPeerOn: ssl, isServer: false), verdict,
                    otherFaults: otherFaults, verified: verified, evidenceEnd: evidenceEnd, scope)
            }
        guard new.isUsable else { return }
        newest.withLock { $0 = new }
        if isEstablished { unstored.append(new) }
    }

    func storeReceived() {
        guard !unstored.isEmpty else { return }
        for session in unstored { put(session) }
        unstored.removeAll()
    }

    private func put(_ session: TLSResumableSession) {
        if let place { place.store.store(session, for: place.key) }
    }
}

extension TLSSettings where Side == TLSRole.Client {
    /// Which sessions the client resumes, and where it stores the sessions that servers offer. Defaults
    /// to `.inMemory`, the memory of this process.
    ///
    /// A resumed handshake is shorter and needs no certificate. The verdict on the server's certificates
    /// is stored with the session. A session is stored only after a positive verdict. It is resumed only
    /// for the same host, port, server name, trust settings, identity, versions and application
    /// protocols, and for seven days at most. If `trustEvaluation` is `.delegate` or `.manual`, the trust
    /// callback is also called for a resumed session, with the certificates from the original handshake.
    /// See `TLSSession.isResumed`.
    public var resumption: TLSResumption {
        get { values.resumption }
        set { values.resumption = newValue }
    }
}

extension TLSSettingValues {
    func requireNoSessionOfOthers() throws(TLSError) {
        switch resumption {
        case .none, .inMemory: break
        case .store, .session:
            throw Self.invalid("raw public keys and pre-shared keys do not support resumption: set it to .none")
        }
    }
}
