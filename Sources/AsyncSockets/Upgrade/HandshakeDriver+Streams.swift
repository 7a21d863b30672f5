internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The upgrade of a connection, and a server's later request for its client's certificate.
extension HandshakeDriver {
    enum Outcome {
        /// No progress is possible until another event.
        case waits
        /// Bytes may be transferred now: exchange them, and advance again.
        case moved
        /// Advance again in another turn.
        case more
        case fails(AsyncSocketError)
    }

    // MARK: - Starting

    /// Queues an upgrade after all current reads and writes.
    static func begin(_ request: TLSRequest, _ upgrade: inout HandshakeDriver?, _ data: DataPath) -> DataPath.Fate {
        guard !data.isClosing, upgrade == nil else {
            request.waiter?.complete(.failure(AsyncSocketError.closing(.startTLS)))
            return .goesOn
        }
        if request.waitsForNoTask, data.reads.hasWaiter {
            // The read would wait for bytes, and TLS would wait for the read. The connection closes, because
            // later writes must not be sent in plaintext.
            request.waiter?.complete(.failure(AsyncSocketError.readIsWaiting))
            return .ends(.readIsWaiting)
        }
        data.appendStartTLS()
        upgrade = HandshakeDriver(request)
        return .goesOn
    }

    /// Requests a certificate from a client. If this is not possible, the connection is not affected.
    ///
    /// - Parameter upgrade: `nil` if the connection is in plaintext.
    static func begin(
        _ request: ClientCertificateRequest, after upgrade: HandshakeDriver?, _ data: DataPath, _ owner: some PartOwner
    ) {
        do throws(AsyncSocketError) {
            guard !data.isClosing, !data.writes.isClosing else { throw .closing(.requestClientCertificate) }
            guard let upgrade, upgrade.state.isSecure, let channel = data.channel else {
                throw .badConfiguration(
                    .requestClientCertificate, "the connection is not secure: wait for the TLS handshake to complete")
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
                owner.events.append(.didReceiveClientCertificate(.failure(error)))
            }
        }
        data.needsPump = true
    }

    // MARK: - Advancing

    func advance(_ data: DataPath, _ owner: some PartOwner) -> Outcome {
        guard let channel = data.channel else { return .waits }
        let dialogue = state.dialogue
        switch state.advance(over: channel, data.reads, data.writes) {
        case .waiting: return .waits
        case .waitsForWrites(let seconds):
            clock = clock ?? PhaseClock(.earlierWrites(data.writes.position), seconds: seconds)
            return .waits
        case .more: return .more
        case .failed(let error): return .fails(error)
        case .beganDialogue(let dialogue):
            clock = dialogue.clock
            owner.note("STARTTLS dialogue started", ["protocol": dialogue.name])
        case .began(let settings, let earlyByteCount):
            data.secure(earlyByteCount: earlyByteCount, after: dialogue?.transferred ?? CarriedBytes())
            beginHandshake(settings, owner)
        case .asksSettings(let question):
            ask(question, owner)
            return .waits
        case .asksWork(let work): return perform(work, data, owner).map { .fails($0) } ?? .waits
        case .asks(let trust, let number): ask(trust, number, owner)
        case .secured(let session, let exporter):
            data.holdsTickets = channel.hasTickets
            secure(session, exporter, owner)
        case .authenticated(let session): didAuthenticate(session, owner)
        case .unanswered(let error): return giveUpRequest(error, channel, owner)
        }
        return .moved
    }

    /// The replies of a failed dialogue that must be sent before the connection closes.
    var lastReplies: ArraySlice<UInt8>? { state.dialogue?.lastReplies }

    func receive(_ news: UpgradeNews, _ data: DataPath, _ owner: some PartOwner) {
        receive(news, over: data, owner)
        switch news {
        case .chosen(let choice):
            data.channel?.choose(choice)
            data.needsPump = true
        case .verdict, .awaited, .worked: break
        }
    }

    private func didAuthenticate(_ session: TLSSession, _ owner: some PartOwner) {
        clock = nil
        let shared = LatestSession.share(session)
        owner.record.withLock { $0.snapshot.session = shared }
        owner.note("client certificate received", ["certificates": "\(session.peerCertificates.count)"])
        if !waiters.answer(.secured(shared)) { owner.events.append(.didReceiveClientCertificate(.success(session))) }
    }

    /// Abandons a request to which the client can no longer respond.
    ///
    /// If the client failed to prove its identity, the connection closes immediately, and bytes received
    /// before the failure are discarded. If only the client's direction is closed, this side may continue to
    /// write.
    private func giveUpRequest(_ error: AsyncSocketError, _ channel: ByteChannel, _ owner: some PartOwner) -> Outcome {
        clock = nil
        state.succeed()
        let isAnswered = !waiters.isEmpty
        waiters.refuseAll(error)
        if channel.hasFailed { return .fails(error) }
        if !isAnswered { owner.events.append(.didReceiveClientCertificate(.failure(error))) }
        return .waits
    }

    func expire(at now: Deadline, _ data: DataPath, _ owner: some PartOwner) -> DataPath.Fate {
        switch expire(at: now, in: state.operation, data, owner) {
        case .nothing: return .goesOn
        case .handshake(let error):
            data.channel?.abandonHandshake()
            return .ends(error)
        case .beforeHandshake(let late):
            let position = data.writes.position
            // All earlier writes have been sent, so only a read still delays the handshake.
            if data.writes.packets.isAtStartTLS {
                clock = nil
            } else if case .earlierWrites(position) = late.limit {
                return .ends(.stuckBeforeTLS(seconds: late.seconds))
            } else {
                clock = PhaseClock(.earlierWrites(position), seconds: late.seconds)
            }
            return .goesOn
        }
    }
}

extension DataPath: HandshakeTransport {
    func decideTrust(_ accepted: Bool, refusal: TrustRefusal) {
        channel?.decideTrust(accepted, refusal: refusal)
        needsPump = true
    }

    func takeBack(_ work: HandshakeWork) {
        channel?.takeBack(work)
        needsPump = true
    }

    func refuse(_ work: HandshakeWork) {
        channel?.refuse(work)
    }
}

extension AsyncSocketError {
    fileprivate static var readIsWaiting: AsyncSocketError {
        .badConfiguration(
            .startTLS, "another task has a pending read: let it complete, or cancel it, before calling startTLS")
    }
}
