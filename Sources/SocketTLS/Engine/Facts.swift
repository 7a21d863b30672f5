internal import COpenSSL

/// The facts that OpenSSL's callbacks have seen of a connection, and the answers that they give;
/// `EngineCallbacks` finds it from an `SSL`. The `judge` decides who is accepted.
///
/// A separate class, so that the callbacks never touch a property that the engine is using.
final class Facts {
    let bio: EngineBIO
    let isServer: Bool
    let judge: Judge
    /// Nil without pre-shared keys.
    private(set) var preSharedKeys: PreSharedKeyNegotiation?
    /// The fatal alert that was sent.
    private(set) var sentAlert: TLSAlert?
    /// The peer has cancelled the handshake (RFC 8446, 6.1).
    private(set) var isCancelled = false
    @exclusivity(unchecked) var isEstablished = false {
        didSet { chosenHello = nil }
    }
    /// The complaint about a ClientHello that this side refuses.
    var complaintAboutHello: String?
    /// A client has seen so many messages ServerHello: the first of two asks for another ClientHello (RFC
    /// 8446, 4.1.4).
    var serverHelloCount = 0
    /// A server chooses its settings by the ClientHello.
    var choosesByHello = false
    /// The ClientHello by which a server's settings were chosen; nil if none was.
    private(set) var chosenHello: TLSClientHello?
    /// The digest of the name by which a server's settings were chosen (`TLSClientHello.nameDigest`); 0 if
    /// they were not.
    private var nameDigest = 0
    /// Set on a client when the server has sent a session.
    @exclusivity(unchecked) var hasNewSession = false
    /// The key for the tickets that are being made; nil: the context knows.
    var ticketKey: TLSTicketKey?
    /// The next session ticket becomes this alert instead: see `EngineCallbacks.installRefusal(on:)`.
    var alertInsteadOfTicket: TLSAlert?
    /// A server has asked for a certificate after the handshake, and the client's Finished has not come.
    @exclusivity(unchecked) var isAwaitingClient = false
    /// Where what takes long is computed.
    var work: EngineWork
    /// OpenSSL has no limit of its own: it processes thousands of messages in one call, and answers each
    /// KeyUpdate.
    @exclusivity(unchecked) private var allowance = MessageAllowance()
    private let clock: @Sendable () -> Int

    /// - Parameter clock: Nanoseconds that never go back.
    init(bio: EngineBIO, judge: Judge, work: EngineWork, clock: @escaping @Sendable () -> Int) {
        self.bio = bio
        self.judge = judge
        self.work = work
        self.clock = clock
        isServer = judge.isServer
    }

    /// Uses the keys of another context, or of the first one.
    func adopt(_ proof: TLSProof) {
        preSharedKeys = proof.preSharedKeys.map { PreSharedKeyNegotiation($0) }
    }

    var isFlooded: Bool { allowance.isSpent }

    /// Whether a new session has arrived since the last call.
    @inline(__always)
    func takeNewSession() -> Bool {
        guard hasNewSession else { return false }
        hasNewSession = false
        return true
    }

    /// About the tickets of the connection.
    var tickets: TicketFacts {
        TicketFacts(key: ticketKey, mayAskSource: !isEstablished, name: nameDigest, evidenceEnd: judge.evidenceEnd)
    }

    /// The settings of a server are chosen by this message.
    func choose(by hello: TLSClientHello) {
        chosenHello = hello
        nameDigest = hello.nameDigest
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
        // The engine goes on from here: see rule 3 of `TLSEngine+ClientAuthentication.swift`.
        if isAwaitingClient, type == UInt8(SSL3_MT_FINISHED) { bio.isHeld = true }
        if !isEstablished, isServer, TLSVersion(wireNumber: version) < .tls13, type == UInt8(SSL3_MT_CERTIFICATE_VERIFY),
            judge.gate.isUndecided
        {
            // This is the client's last message before its Finished. The server's own Finished waits for the
            // decision.
            bio.isHeld = true
        }
    }

    private func spendAllowance() {
        allowance.spend(at: clock())
        if isFlooded { bio.becomePoisoned() }
    }
}
