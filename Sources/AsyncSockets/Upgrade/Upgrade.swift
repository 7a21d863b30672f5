// Rules of performing an upgrade:
//  1. `TLSUpgrade` decides; this does it: with a clock, for those who wait, and towards the delegate and the
//     observer.
//  2. It is the same for streams (`Upgrade+Streams`) and for datagrams (`DatagramUpgrade`), which differ in
//     what comes before the handshake and in how its messages move.
//  3. An error that ends the socket is returned, and the socket closes.
//  4. One waiter waits at a time: a socket is upgraded once, and a request is refused while another one is
//     outstanding.
//  5. Functions of a server's program, and what takes long, run elsewhere. Their answer is a message.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The engine of an upgrade, with what moves its messages.
protocol UpgradeTransport: AnyObject {
    func decideTrust(_ accepted: Bool, refusal: TrustRefusal)
    /// A step of the handshake, done by another thread, is complete.
    func takeBack(_ work: HandshakeWork)
    /// No thread does this step: the handshake is over.
    func refuse(_ work: HandshakeWork)
}

/// The socket that is upgraded, as its upgrade sees it: inside its turn.
protocol UpgradeOwner {
    /// The way to the observer; nil when there is none.
    var observation: ConnectionObservation? { get }
    /// Sends news to the upgrade, from any thread. It does not keep the socket alive.
    var newsSender: @Sendable (UpgradeNews) -> Void { get }
    /// Logs what happened.
    func note(_ message: String, _ details: @autoclosure () -> [String: String])
    /// Makes the result of a handshake visible to callers.
    func publish(_ session: CopyOnWrite<TLSSession>?, _ exporter: KeyExporter)
    /// The delegate learns that the socket is secure.
    func deliverSecured()
    /// The delegate decides about the peer's certificate.
    func deliver(_ trust: PeerTrust, _ decide: @escaping @Sendable (Bool) -> Void)
}

/// The upgrade of a connection or of a UDP socket, from the call on: how far it is, its clock, the task that
/// waits for it, and the questions that it asks.
///
/// Confined to the turn of its socket. One in plaintext has none, and pays for a look at a reference.
final class Upgrade {
    @exclusivity(unchecked) var state: TLSUpgrade
    @exclusivity(unchecked) var clock: PhaseClock?
    @exclusivity(unchecked) var waiters = UpgradeWaiters()
    /// The task that runs a closure of the server's program, if one is running.
    @exclusivity(unchecked) private var responder: Task<Void, Never>?

    init(_ request: TLSRequest) {
        state = .queuedTLS(request, drained: [])
        waiters.add(request.waiter, decidesTrust: request.waiterDecidesTrust)
    }

    // MARK: - Steps

    /// The handshake has begun.
    func beginHandshake(_ settings: TLSSettingValues, _ owner: some UpgradeOwner) {
        owner.observation?.beginHandshake(as: settings.role)
        clock = PhaseClock(
            .handshake(thenTrust: settings.trustTimeout.inSeconds), seconds: settings.handshakeTimeout.inSeconds)
        owner.note("TLS handshake begins", ["as": settings.role == .server ? "server" : "client"])
    }

    /// The handshake is complete, and the markers have left the queues.
    func secure(_ session: TLSSession?, _ exporter: KeyExporter, _ owner: some UpgradeOwner) {
        clock = nil
        let shared = session.map(LatestSession.share)
        owner.publish(shared, exporter)
        owner.note(
            "TLS established",
            ["version": session?.protocolVersion.description ?? "", "cipherSuite": session?.cipherSuite ?? ""])
        if let session { owner.observation?.succeed(session) }
        if !waiters.answer(.secured(shared)) { owner.deliverSecured() }
    }

    /// Has work of the handshake done by another thread. The error ends the socket.
    func perform(_ work: HandshakeWork, _ transport: some UpgradeTransport, _ owner: some UpgradeOwner) -> AsyncSocketError? {
        let send = owner.newsSender
        let isAccepted = HandshakeWorkers.shared.perform(work.key, isCancelled: { work.isCancelled }) {
            work.perform()
            send(.worked(work))
        }
        if isAccepted { return nil }
        transport.refuse(work)
        return .tooManyHandshakes
    }

    // MARK: - Questions

    /// Asks who decides about the peer's certificate.
    func ask(_ trust: PeerTrust, _ number: TrustQuestionNumber, _ owner: some UpgradeOwner) {
        clock = clock?.pauseForTrust()
        owner.observation?.beginDecision()
        if waiters.answer(.asksTrust(trust, number)) { return }
        owner.deliver(trust) { [send = owner.newsSender] in send(.verdict($0, of: number)) }
    }

    /// A verdict. A second one, or one that comes too late, finds its question answered.
    private func decide(
        _ accepted: Bool, of question: TrustQuestionNumber, refusal: TrustRefusal = .rejected,
        _ transport: some UpgradeTransport, _ owner: some UpgradeOwner
    ) {
        guard state.question == question else { return }
        transport.decideTrust(accepted, refusal: refusal)
        state.resume()
        clock = clock?.resumeHandshake()
        owner.observation?.endDecision()
    }

    /// Asks a function of the server's program, off the loop: for settings, or about early data.
    func ask(_ question: TLSServerQuestion, _ owner: some UpgradeOwner) {
        responder = Task.detached { [send = owner.newsSender] in
            let choice = await question.answer()
            send(.chosen(choice))
        }
    }

    /// News from elsewhere.
    func receive(_ news: UpgradeNews, over transport: (some UpgradeTransport)?, _ owner: some UpgradeOwner) {
        switch news {
        case .verdict(let accepted, let question): if let transport { decide(accepted, of: question, transport, owner) }
        case .awaited(let waiter): waiters.add(waiter, decidesTrust: true)
        case .worked(let work): transport?.takeBack(work)
        case .chosen: responder = nil
        case .sendTickets: break
        }
    }

    // MARK: - Waiters

    /// Fails all waiters. If a closure of the program is still running, it is cancelled and its result is
    /// ignored.
    func refuseAll(_ error: any Error) {
        responder.take()?.cancel()
        waiters.refuseAll(error)
    }

    /// Takes one out, to be answered with an error; nil when it does not wait here.
    func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? { waiters.remove(waiter) }

    // MARK: - Time

    var hasDeadline: Bool { clock != nil || !waiters.isEmpty }

    var deadline: Deadline? { waiters.deadline(with: clock) }

    /// A waiter whose time has come, and its answer.
    func lateWaiter(at now: Deadline) -> (waiter: AnyObject, error: any Error)? { waiters.late(at: now) }

    /// What the end of a clock means.
    enum Expiry {
        case nothing
        /// What the upgrade waits for has taken so long.
        case beforeHandshake(PhaseClock)
        case handshake(AsyncSocketError)
    }

    func expire(
        at now: Deadline, in operation: String, _ transport: (some UpgradeTransport)?, _ owner: some UpgradeOwner
    ) -> Expiry {
        guard let clock, let deadline = clock.deadline, deadline <= now else { return .nothing }
        switch clock.limit {
        case .earlierWrites, .earlierDatagrams: return .beforeHandshake(clock)
        case .handshake: return .handshake(.timeout(.handshakeTimeout, operation, seconds: clock.seconds))
        case .trust:
            // No verdict came in time: that is a no.
            if let question = state.question, let transport {
                decide(false, of: question, refusal: .timedOut, transport, owner)
            } else {
                self.clock = nil
            }
        }
        return .nothing
    }
}
