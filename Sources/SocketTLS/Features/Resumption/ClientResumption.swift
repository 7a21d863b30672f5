// Rules of a client's resumption:
//  1. A session goes from one connection to another only within one scope (`ResumptionScope`): the same name,
//     trust settings, identity and protocols. From the store it also goes to the same host and port only.
//  2. Nothing is stored before the handshake is complete and the peer accepted: sessions wait for both.
//  3. A session carries the certificates, the verdict, and its date. Resumption renews none of them.
//  4. Resumption does not skip the decision: the trust gate gets the verdict that the session carries, and
//     asks whom the settings name.
//  5. A session that is offered has left the store. One of TLS 1.2 comes back when the server has resumed it
//     and sent no other; one of TLS 1.3 is used once.
//  6. A session that the server does not take costs a full handshake, and nothing else.

internal import COpenSSL
internal import FoundationEssentials
internal import SocketBuffers

/// The session that a client's connection offers to resume, and those for later connections. Used by one
/// engine, except for `latest`.
final class ClientResumption: @unchecked Sendable {
    // Unchecked: the engine confines everything but `latest`, which has a lock.

    private let scope: ResumptionScope
    /// Nil: the sessions stay with this connection.
    private let place: (store: any TLSSessionStore, key: TLSSessionKey)?
    /// The session that was offered.
    private(set) var offered: TLSResumableSession?
    private var isEstablished = false
    /// The verdict of this handshake, and its date.
    private var verdict = PeerTrust.Verdict.trusted
    private var otherFaults: [PeerTrust.Verdict] = []
    private var verified = Date()
    /// When the first proof ends that counted for the verdict.
    private var evidenceEnd: Date?
    private let newest = Locked<TLSResumableSession?>(nil)
    /// The sessions that have arrived since the handshake, and are not in the store yet.
    private var unstored: [TLSResumableSession] = []

    /// The session that a later connection can resume.
    var latest: TLSResumableSession? { newest.withLock { $0 } }

    /// Nil when the settings ask for none.
    ///
    /// - Parameter endpoint: The host and port; nil if they are not known.
    init?(_ settings: TLSSettingValues, in context: ResumptionScope, serverName: String, endpoint: String?) throws(TLSError) {
        let peer = ExpectedPeer(
            serverName: serverName.lowercased(), verifiesHostName: settings.verifiesHostName,
            trustEvaluation: settings.trustEvaluation)
        scope = peer.scope(in: context)
        switch settings.resumption {
        case .none: return nil
        case .inMemory: place = endpoint.map { [scope] in (TLSSessionMemory.shared, TLSSessionKey(scope, endpoint: $0)) }
        case .store(let store): place = endpoint.map { [scope] in (store, TLSSessionKey(scope, endpoint: $0)) }
        case .session(let session):
            place = nil
            guard session.scope == scope else {
                throw TLSError(
                    .invalidSettings,
                    "The session to resume comes from a connection with another server name or other settings.",
                    operation: "TLSSettings")
            }
            offered = session
        }
        if let place { offered = place.store.take(for: place.key) }
        // A store may be anyone's code.
        if let session = offered, session.scope != scope || !session.isUsable { offered = nil }
    }

    /// Has `ssl` offer the session.
    func offer(on ssl: OpaquePointer) throws(TLSError) {
        try offered?.handle.offer(on: ssl)
    }

    /// The server's certificates were judged.
    func judged(_ verdict: PeerTrust.Verdict, _ otherFaults: [PeerTrust.Verdict]) {
        (self.verdict, self.otherFaults) = (verdict, otherFaults)
        verified = Date()
    }

    /// A proof that counted for the verdict ends.
    func evidenceEnds(_ end: Date) {
        evidenceEnd = min(evidenceEnd ?? end, end)
    }

    /// The peer is accepted.
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

    /// The server has sent a session. Takes over the reference to it. Called by OpenSSL: the store, which may
    /// be anyone's code, gets it later.
    func received(_ session: OpaquePointer, from ssl: OpaquePointer) {
        let handle = SessionHandle(owning: session)
        guard handle.isResumable else { return }
        let new =
            if let offered, SSL_session_reused(ssl) == 1 {
                TLSResumableSession(
                    handle, offered.peerCertificates, offered.verdict, otherFaults: offered.otherFaults,
                    verified: offered.verified, evidenceEnd: offered.evidenceEnd, scope)
            } else {
                // The sessions of a connection share the certificates, which may be long.
                TLSResumableSession(
                    handle, latest?.peerCertificates ?? Certificate.certificates(ofPeerOn: ssl, isServer: false), verdict,
                    otherFaults: otherFaults, verified: verified, evidenceEnd: evidenceEnd, scope)
            }
        guard new.isUsable else { return }
        newest.withLock { $0 = new }
        if isEstablished { unstored.append(new) }
    }

    /// Puts what has arrived into the store.
    func storeReceived() {
        guard !unstored.isEmpty else { return }
        for session in unstored { put(session) }
        unstored.removeAll()
    }

    private func put(_ session: TLSResumableSession) {
        if let place { place.store.store(session, for: place.key) }
    }
}
