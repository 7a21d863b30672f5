internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import StartTLSProtocols

/// The upgrade of a connection, and a server's later request for its client's certificate.
extension HandshakeDriver {
    // MARK: - Starting

    /// Queues an upgrade after all current reads and writes.
    static func begin(_ request: TLSRequest, _ upgrade: inout HandshakeDriver?, _ data: DataPath) -> DataPath.Step {
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

    /// Advances the upgrade as far as possible without further events.
    func advance(_ data: DataPath, _ owner: some PartOwner) -> Step {
        guard let channel = data.channel else { return .incomplete }
        switch state {
        case .queuedTLS: return beginIfDrained(channel, data, owner)
        case .lookingUp:
            return failedLookUp.map { .fails(AsyncSocketError($0, operation: .startTLS)) } ?? .incomplete
        case .lookedUp(let request): return begin(request, channel, data, owner)
        case .inDialogue(let request, let dialogue):
            switch dialogue.advance(over: channel, data.reads.preBuffer) {
            case .complete:
                return begin(request, after: dialogue, channel, data, rejectsEarlyBytes: request.settings.role == .client, owner)
            case .incomplete: return .incomplete
            case .more: return .more
            case .failed(let error): return .fails(error)
            }
        case .handshaking, .authenticating(.answered): return shakeHands(channel, data, owner)
        case .secure: return .incomplete
        case .awaitingTrust:
            channel.flush()
            return channel.checkForDisconnect().map { .fails($0) } ?? .incomplete
        case .authenticating(.awaitingTrust):
            channel.flush()
            return .incomplete
        case .authenticating(.requested):
            channel.sendDelayedRequest()
            guard channel.isAuthenticatingClient else {
                return channel.failure.map { giveUpRequest($0, channel, owner) } ?? .incomplete
            }
            state.noteAnswer()
            return shakeHands(channel, data, owner)
        }
    }

    private func beginIfDrained(_ channel: ByteChannel, _ data: DataPath, _ owner: some PartOwner) -> Step {
        let (reads, writes) = (data.reads, data.writes)
        var drained: TLSUpgrade.DrainedQueues = []
        if case .startTLS = reads.front { drained.insert(.startingReadTLS) }
        if writes.packets.isAtStartTLS { drained.insert(.startingWriteTLS) }
        guard !drained.isEmpty, let request = state.note(drained) else {
            // A task's `startTLS` must wait for earlier writes. The time limit restarts when bytes are sent.
            if let seconds = state.taskTimeout, !writes.packets.isAtStartTLS {
                clock = clock ?? PhaseClock(.earlierWrites(writes.position), seconds: seconds)
            }
            return .incomplete
        }
        return lookUp(for: request, owner) ? .incomplete : begin(request, channel, data, owner)
    }

    /// Starts the dialogue or the handshake of a request with complete settings.
    private func begin(
        _ request: TLSRequest, _ channel: ByteChannel, _ data: DataPath, _ owner: some PartOwner
    ) -> Step {
        let policy = StartTLSPolicy(request.settings)
        guard let dialogue = request.dialogue.map({ UpgradeDialogue($0, policy) }) else {
            let isRejecting = request.settings.earlyPlaintext == .reject
            return begin(request, after: nil, channel, data, rejectsEarlyBytes: isRejecting, owner)
        }
        state.beginDialogue(request, dialogue)
        clock = dialogue.clock
        owner.note("STARTTLS dialogue started", ["protocol": dialogue.name])
        return .moved
    }

    private func begin(
        _ request: TLSRequest, after dialogue: UpgradeDialogue?, _ channel: ByteChannel, _ data: DataPath,
        rejectsEarlyBytes: Bool, _ owner: some PartOwner
    ) -> Step {
        let early = data.reads.preBuffer
        if rejectsEarlyBytes, let error = channel.checkForEarlyBytes(in: early) { return .fails(error) }
        do throws(TLSError) {
            let engine = try TLSEngine(
                context: request.context, settings: request.settings, endpoint: request.endpoint, defersWork: true)
            let earlyByteCount = early.count
            channel.beginTLS(engine, feeding: early)
            data.secure(earlyByteCount: earlyByteCount, after: dialogue?.transferred ?? CarriedBytes())
            beginHandshake(request.settings, owner)
            return .moved
        } catch {
            return .fails(AsyncSocketError(error, operation: .startTLS))
        }
    }

    private func shakeHands(_ channel: ByteChannel, _ data: DataPath, _ owner: some PartOwner) -> Step {
        shakeHands(over: channel, owner) { session, exporter in
            if state.isSecure, let session { return didAuthenticate(session, owner) }
            data.reads.packets.removeStartTLS()
            data.writes.packets.removeStartTLS()
            data.holdsTickets = channel.hasTickets
            secure(session, exporter, owner)
        }
    }

    /// The replies of a failed dialogue that must be sent before the connection closes.
    var lastReplies: ArraySlice<UInt8>? { state.dialogue?.lastReplies }

    func receive(_ news: UpgradeNews, _ data: DataPath, _ owner: some PartOwner) {
        receive(news, over: data.channel, owner)
        switch news {
        case .verdict, .chosen, .worked, .lookedUp: data.needsPump = true
        case .awaited: break
        }
    }

    private func didAuthenticate(_ session: TLSSession, _ owner: some PartOwner) {
        state.succeed()
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
    private func giveUpRequest(_ error: AsyncSocketError, _ channel: ByteChannel, _ owner: some PartOwner) -> Step {
        clock = nil
        state.succeed()
        let isAnswered = !waiters.isEmpty
        waiters.refuseAll(error)
        if channel.hasFailed { return .fails(error) }
        if !isAnswered { owner.events.append(.didReceiveClientCertificate(.failure(error))) }
        return .incomplete
    }

    func expire(at now: Deadline, _ data: DataPath, _ owner: some PartOwner) -> DataPath.Step {
        switch expire(at: now, over: data.channel, owner) {
        case .nothing:
            data.needsPump = true
            return .goesOn
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

extension AsyncSocketError {
    fileprivate static var readIsWaiting: AsyncSocketError {
        .badConfiguration(
            .startTLS, "another task has a pending read: let it complete, or cancel it, before calling startTLS")
    }
}
