// Rules of performing an upgrade:
//  1. `TLSUpgrade` decides; this does it: on the channel, with a clock, for those who wait, and towards the
//     delegate and the observer.
//  2. An error that ends the connection is returned, and the connection closes.
//  3. One waiter waits at a time: a connection is upgraded once, and a request is refused while another one
//     is outstanding.
//  4. Functions of a server's program, and what takes long, run elsewhere. Their answer is a message.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The upgrade of a connection to TLS, from the call on: how far it is, its clock, the task that waits for
/// it, and the questions that it asks.
///
/// Confined to the turn of the connection. One in plaintext has none, and pays for a look at a reference.
final class Upgrade {
    /// The outcome of a step.
    enum Outcome {
        /// Nothing can be done until something else happens.
        case waits
        /// Bytes may move now: exchange them, and go on.
        case moved
        /// Go on in another turn.
        case more
        case fails(AsyncSocketError)
    }

    @exclusivity(unchecked) private(set) var state: TLSUpgrade
    @exclusivity(unchecked) private var clock: PhaseClock?
    @exclusivity(unchecked) private var waiters = UpgradeWaiters()
    /// The task that runs a closure of the server's program, if one is running.
    @exclusivity(unchecked) private var responder: Task<Void, Never>?

    private init(_ request: TLSRequest) {
        state = .queuedTLS(request, drained: [])
        waiters.add(request.waiter, decidesTrust: request.waiterDecidesTrust)
    }

    // MARK: - Beginnings

    /// Begins an upgrade behind all that is queued now.
    static func begin(_ request: TLSRequest, _ upgrade: inout Upgrade?, _ data: DataPath) -> DataPath.Fate {
        guard !data.isClosing, upgrade == nil else {
            request.waiter?.complete(.failure(AsyncSocketError.closing("startTLS")))
            return .goesOn
        }
        if request.waitsForNoTask, data.reads.hasWaiter {
            // The read would wait for bytes, and TLS for the read. Bytes that follow must not leave in
            // plaintext.
            request.waiter?.complete(.failure(AsyncSocketError.readIsWaiting))
            return .ends(.readIsWaiting)
        }
        data.appendStartTLS()
        upgrade = Upgrade(request)
        return .goesOn
    }

    /// Asks a client for its certificate. A failure here leaves the connection as it was.
    ///
    /// - Parameter upgrade: nil: the connection is in plaintext.
    static func begin(
        _ request: ClientCertificateRequest, after upgrade: Upgrade?, _ data: DataPath, _ owner: any PartOwner
    ) {
        do throws(AsyncSocketError) {
            guard !data.isClosing, !data.writes.isClosing else { throw .closing(requestName) }
            guard let upgrade, upgrade.state.isSecure, let channel = data.channel else {
                throw .badConfiguration(requestName, "the connection is not secure: wait for the end of the handshake")
            }
            guard data.ending.readEnd == nil else { throw .closedByPeer }
            let timeouts = try channel.requestClientCertificate(request)
            upgrade.waiters.add(request.waiter, decidesTrust: request.waiterDecidesTrust)
            upgrade.state.authenticate()
            upgrade.clock = PhaseClock(.handshake(thenTrust: timeouts.trust), seconds: timeouts.handshake)
            owner.note("client certificate requested", [:])
        } catch {
            if let waiter = request.waiter {
                waiter.complete(.failure(error))
            } else {
                owner.events.append(.didRequestClientCertificate(.failure(error)))
            }
        }
        data.needsPump = true
    }

    private static var requestName: String { OperationKind.requestClientCertificate.rawValue }

    // MARK: - Going on

    /// Goes on towards TLS, or with a request.
    func advance(_ data: DataPath, _ owner: any PartOwner) -> Outcome {
        guard let channel = data.channel else { return .waits }
        switch state.advance(over: channel, data.reads, data.writes) {
        case .waiting: return .waits
        case .waitsForWrites(let seconds):
            clock = clock ?? PhaseClock(.earlierWrites(data.writes.position), seconds: seconds)
            return .waits
        case .more: return .more
        case .failed(let error): return .fails(error)
        case .began(let settings, let earlyByteCount):
            data.secure(earlyByteCount: earlyByteCount)
            didBegin(settings, owner)
        case .asksSettings(let question):
            ask(question, owner)
            return .waits
        case .asksWork(let work): return perform(work, channel, owner)
        case .asks(let trust, let number): ask(trust, number, owner)
        case .secured(let session, let exporter):
            if channel.hasTickets { owner.post(.upgrading(.sendTickets)) }
            didSecure(session, exporter, owner)
        case .authenticated(let session): didAuthenticate(session, owner)
        case .unanswered(let error): return giveUpRequest(error, channel, owner)
        }
        return .moved
    }

    /// News from elsewhere.
    func receive(_ news: UpgradeNews, _ data: DataPath, _ owner: any PartOwner) {
        switch news {
        case .verdict(let accepted, let question): decide(accepted, of: question, data, owner)
        case .awaited(let waiter): waiters.add(waiter, decidesTrust: true)
        case .chosen(let choice):
            responder = nil
            data.channel?.choose(choice)
            data.needsPump = true
        case .worked(let work):
            data.channel?.takeBack(work)
            data.needsPump = true
        case .sendTickets: data.channel?.sendTickets()
        }
    }

    private func didBegin(_ settings: TLSSettingValues, _ owner: any PartOwner) {
        owner.observation?.beginHandshake(as: settings.role)
        clock = PhaseClock(
            .handshake(thenTrust: settings.trustTimeout.inSeconds), seconds: settings.handshakeTimeout.inSeconds)
        owner.note("TLS handshake begins", ["as": settings.role == .server ? "server" : "client"])
    }

    private func didSecure(_ session: TLSSession?, _ exporter: KeyExporter, _ owner: any PartOwner) {
        let shared = session.map(LatestSession.share)
        owner.record.withLock { record in
            record.snapshot.isSecure = true
            record.snapshot.session = shared
            record.snapshot.exporter = exporter
        }
        owner.note(
            "TLS established",
            ["version": session?.protocolVersion.description ?? "", "cipherSuite": session?.cipherSuite ?? ""])
        clock = nil
        if let session { owner.observation?.succeed(session) }
        if !waiters.answer(.secured(shared)) { owner.events.append(.didSecure) }
    }

    /// The client has answered, and what it has shown is accepted.
    private func didAuthenticate(_ session: TLSSession, _ owner: any PartOwner) {
        clock = nil
        let shared = LatestSession.share(session)
        owner.record.withLock { $0.snapshot.session = shared }
        owner.note("client certificate received", ["certificates": "\(session.peerCertificates.count)"])
        if !waiters.answer(.secured(shared)) { owner.events.append(.didRequestClientCertificate(.success(session))) }
    }

    /// A request that will have no answer ends.
    ///
    /// With a client that has failed to prove who it is, the connection ends at once, and what it has sent
    /// before its answer counts for nothing. Where only the client's side has ended, ours may go on.
    private func giveUpRequest(_ error: AsyncSocketError, _ channel: ByteChannel, _ owner: any PartOwner) -> Outcome {
        clock = nil
        state.succeed()
        let isAnswered = !waiters.isEmpty
        waiters.refuseAll(error)
        if channel.hasFailed { return .fails(error) }
        if !isAnswered { owner.events.append(.didRequestClientCertificate(.failure(error))) }
        return .waits
    }

    // MARK: - Questions

    /// Asks who decides about the peer's certificate.
    private func ask(_ trust: PeerTrust, _ number: TrustQuestionNumber, _ owner: any PartOwner) {
        clock = clock?.pauseForTrust()
        owner.observation?.beginDecision()
        if waiters.answer(.asksTrust(trust, number)) { return }
        owner.events.append(
            .didReceiveTrust(trust) { [weak owner] in owner?.post(.upgrading(.verdict($0, of: number))) })
    }

    /// A verdict. A second one, or one that comes too late, finds its question answered.
    private func decide(
        _ accepted: Bool, of question: TrustQuestionNumber, refusal: TrustRefusal = .rejected, _ data: DataPath,
        _ owner: any PartOwner
    ) {
        guard state.question == question, let channel = data.channel else { return }
        channel.decideTrust(accepted, refusal: refusal)
        state.resume()
        clock = clock?.resumeHandshake()
        owner.observation?.endDecision()
        data.needsPump = true
    }

    /// Asks a function of the server's program, off the loop: for settings, or about early data.
    private func ask(_ question: TLSServerQuestion, _ owner: any PartOwner) {
        responder = Task.detached { [weak owner] in
            let choice = await question.answer()
            owner?.post(.upgrading(.chosen(choice)))
        }
    }

    private func perform(_ work: HandshakeWork, _ channel: ByteChannel, _ owner: any PartOwner) -> Outcome {
        let isAccepted = HandshakeWorkers.shared.perform(work.key, isCancelled: { work.isCancelled }) { [weak owner] in
            work.perform()
            owner?.post(.upgrading(.worked(work)))
        }
        if isAccepted { return .waits }
        channel.refuse(work)
        return .fails(.tooManyHandshakes)
    }

    // MARK: - Waiters

    /// Fails all waiters. If a closure of the program is still running, it is cancelled and its result is
    /// ignored.
    func refuseAll(_ error: any Error) {
        responder.take()?.cancel()
        waiters.refuseAll(error)
    }

    /// Takes one out, to be answered with an error; nil when it does not wait here.
    func remove(_ waiter: AnyObject) -> ((any Error) -> Void)? {
        waiters.remove(waiter)
    }

    // MARK: - Time

    var hasDeadline: Bool { clock != nil || !waiters.isEmpty }

    var deadline: Deadline? { waiters.deadline(with: clock) }

    /// A waiter whose time has come, and its answer.
    func lateWaiter(at now: Deadline) -> (waiter: AnyObject, error: any Error)? { waiters.late(at: now) }

    func expire(at now: Deadline, _ data: DataPath, _ owner: any PartOwner) -> DataPath.Fate {
        guard let clock, let deadline = clock.deadline, deadline <= now else { return .goesOn }
        switch clock.limit {
        case .earlierWrites(let position):
            let current = data.writes.position
            // It waits for a read now.
            if data.writes.packets.isAtStartTLS {
                self.clock = nil
            } else if current == position {
                return .ends(.stuckBeforeTLS(seconds: clock.seconds))
            } else {
                self.clock = PhaseClock(.earlierWrites(current), seconds: clock.seconds)
            }
        case .earlierDatagrams: break
        case .handshake:
            data.channel?.abandonHandshake()
            return .ends(.timeout(.handshakeTimeout, state.operation.rawValue, seconds: clock.seconds))
        case .trust:
            guard let question = state.question else {
                self.clock = nil
                break
            }
            // No verdict came in time: that is a no.
            decide(false, of: question, refusal: .timedOut, data, owner)
        }
        return .goesOn
    }
}

extension AsyncSocketError {
    fileprivate static var readIsWaiting: AsyncSocketError {
        .badConfiguration(
            "startTLS", "a read is waiting, and its bytes could come before or after the upgrade: let it finish first")
    }
}
