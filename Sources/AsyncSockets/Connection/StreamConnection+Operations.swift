internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

// Reads, writes and startTLS: how they begin, and how each of them ends.
extension StreamConnection {
    // MARK: - Anywhere

    /// True once `startTLS` was called.
    var isUpgradeClaimed: Bool { record.withLock { $0.claims.isUpgradeClaimed } }

    func read(_ packet: consuming ReadPacket) {
        guard isOpenToCallback else { return post(.read(consume packet)) }
        let wasDelivering = outlet.leaveCallback()
        enqueue(packet)
        outlet.resumeCallback(wasDelivering)
    }

    func write(_ packet: consuming WritePacket) {
        guard isOpenToCallback else { return post(.write(consume packet)) }
        let wasDelivering = outlet.leaveCallback()
        enqueue(packet)
        outlet.resumeCallback(wasDelivering)
    }

    /// True when the delegate is being called here, and what it asks for can be done without a message.
    private var isOpenToCallback: Bool { turn.isOpen(within: self) && !isOver }

    /// Ends the connection when no byte has moved for so long, except in a handshake, which has a time of its
    /// own.
    @discardableResult
    func endWhenIdle(_ timeout: Duration) -> IdleWaiter<CarriedBytes> {
        let waiter = IdleWaiter(timeout) { [unowned self] in upgrade.isOpenForData ? carried : nil }
        post(.awaitEnd(waiter))
        return waiter
    }

    // MARK: - Answers

    func answer(_ completion: Completion<Data>, with data: consuming Data) {
        switch completion {
        case .delegate(let tag): outlet.append(.didRead(consume data, tag: tag))
        case .waiter(let waiter): waiter.complete(.success(data))
        case .answered: break
        }
    }

    /// The operation is dropped, or was never accepted. A delegate learns of that by the end of the
    /// connection.
    func refuse<Value>(_ completion: Completion<Value>, _ error: (any Error)? = nil) {
        if case .waiter(let waiter) = completion { waiter.complete(.failure(error ?? endError)) }
    }

    /// Answers a waiter with `error`. If it waits for a step in the life of the connection, the connection
    /// closes.
    func cancel(_ waiter: AnyObject, _ error: any Error = CancellationError()) {
        if let completion = reads.cancel(waiter).completion {
            refuse(completion, error)
        } else if let completion = writes.cancel(waiter).completion {
            refuse(completion, error)
            if writes.isAboveHighWater { reportLowWater() }
        } else if let refuse = waiters.remove(waiter) {
            close(error as? AsyncSocketError)
            // Last: a task that learns of it may connect again at once.
            return refuse(error)
        }
        needsPump = true
    }

    // MARK: - Reads

    func enqueue(_ packet: consuming ReadPacket) {
        guard ending.intent == nil else { return refuse(packet.completion, AsyncSocketError.closing("read")) }
        reads.append(consume packet)
        ending.note(.readAsked)
        needsPump = true
    }

    /// Gives the reads at the front what is in `preBuffer`, until one has to wait.
    func serveReads() {
        while let result = reads.serve() {
            switch consume result {
            case .incomplete:
                if let (count, tag) = reads.takeProgress() { outlet.append(.didReadPartial(count, tag: tag)) }
                return
            case .complete(let data, let completion): answer(completion, with: consume data)
            case .maxedOut(let maxLength): return close(.readMaxedOut(maxLength))
            case .failed(let error, let completion):
                refuse(completion, error)
                // Too much is the end of the connection, also when the reader has found it out.
                if let error = error as? AsyncSocketError, error.code == .readMaxedOut { return close(error) }
            }
        }
    }

    /// Ends the oldest read without completing it. A waiter gets no bytes with its error: they stay.
    func abandonRead(_ error: AsyncSocketError) {
        if let completion = reads.withdrawWaiters() { return refuse(completion, error) }
        guard let (bytesSoFar, completion) = reads.abandon() else { return }
        if case .delegate(let tag) = completion { outlet.append(.didNotRead(bytesSoFar, tag: tag, error)) }
    }

    // MARK: - Writes

    func enqueue(_ packet: consuming WritePacket) {
        guard ending.intent == nil, !writes.isClosing else {
            return refuse(packet.completion, AsyncSocketError.closing("write"))
        }
        guard packet.count > 0 else { return completeEmpty(packet.completion) }
        // Nearly always nothing waits.
        if writes.waitingMemoryByteCount > 0, !packet.isFile, packet.completion.isDelegates {
            let limit = max(configuration.value.maximumPendingWriteBytes.count, 0)
            if writes.wouldExceed(limit, with: packet.count) { pumpIfNeeded() }
            if isOver { return refuse(packet.completion) }
            if writes.wouldExceed(limit, with: packet.count) { return overflow(packet.completion, limit) }
        }
        let isBelowMark = writes.isBelow(configuration.value.writeHighWaterMark, with: packet)
        let waiter = isBelowMark ? packet.takeWaiter() : nil
        let completion = packet.completion
        guard writes.append(consume packet) else {
            waiter?.complete(.failure(AsyncSocketError.writeQueueFull(.max)))
            return overflow(completion, .max)
        }
        waiter?.complete(.success(()))
        needsPump = true
    }

    func closeWriting() {
        writes.close()
        needsPump = true
    }

    private func overflow(_ completion: Completion<Void>, _ limit: Int) {
        let error = AsyncSocketError.writeQueueFull(limit)
        close(error)
        refuse(completion, error)
    }

    /// A write without bytes is complete; a delegate gets no callback, as in the original.
    private func completeEmpty(_ completion: Completion<Void>) {
        if case .waiter(let waiter) = completion { waiter.complete(.success(())) }
    }

    /// Nothing that was handed on waits here any more: those packets are complete.
    func completeWrites() {
        while let completion = writes.removeHandedOn() {
            switch completion {
            case .delegate(let tag): outlet.append(.didWrite(tag: tag))
            case .waiter(let waiter): waiter.complete(.success(()))
            case .answered: break
            }
        }
        if let (count, tag) = writes.takeProgress() { outlet.append(.didWritePartial(count, tag: tag)) }
        if writes.isAboveHighWater { reportLowWater() }
    }

    private func reportLowWater() {
        if let count = writes.takeLowWater(configuration.value.writeHighWaterMark) { outlet.append(.lowWater(count)) }
    }

    // MARK: - startTLS

    func enqueue(_ request: TLSRequest) {
        guard ending.intent == nil else {
            request.waiter?.complete(.failure(AsyncSocketError.closing("startTLS")))
            return
        }
        if request.waitsForNoTask, reads.hasWaiter {
            // The read would wait for bytes, and TLS for the read. Bytes that follow must not leave in
            // plaintext.
            request.waiter?.complete(.failure(Self.readIsWaiting))
            return close(Self.readIsWaiting)
        }
        waiters.add(secured: request.waiter, decidesTrust: request.waiterDecidesTrust)
        upgrade.queue(request)
        reads.appendStartTLS()
        writes.appendStartTLS()
        needsPump = true
    }

    private static var readIsWaiting: AsyncSocketError {
        .badConfiguration(
            "startTLS", "a read is waiting on this connection, and its bytes could be of either side: let it end first")
    }

    /// Goes on towards TLS; true when that has changed what can be done.
    func advanceUpgrade(_ channel: ByteChannel) -> Bool {
        if case .secure = upgrade, clock == nil || !awaitsClient(channel) { return false }
        switch upgrade.advance(over: channel, reads, writes, to: record.withLock { $0.snapshot.endpoint?.value }) {
        case .waiting: return false
        case .waitsForWrites(let seconds): clock = clock ?? PhaseClock(.earlierWrites(writes.position), seconds: seconds)
        case .more: askForTurn()
        case .failed(let error): close(error)
        case .began(let settings, let earlyByteCount):
            observation?.beginHandshake(as: settings.role)
            carried.giveBack(earlyByteCount)
            ending.note(.secured)
            clock = PhaseClock(
                .handshake(thenTrust: settings.trustTimeout.inSeconds), seconds: settings.handshakeTimeout.inSeconds)
            note("TLS handshake begins", ["as": settings.role == .server ? "server" : "client"])
            return true
        case .asksSettings(let question): ask(question)
        case .asksWork(let work): perform(work)
        case .asks(let trust, let number):
            clock = clock?.pauseForTrust()
            observation?.beginDecision()
            if waiters.answerSecured(.asksTrust(trust, number)) { return true }
            outlet.append(.didReceiveTrust(trust) { [weak self] accepted in self?.post(.verdict(accepted, of: number)) })
            return true
        case .secured(let session, let exporter):
            if channel.hasTickets { post(.sendTickets) }
            didSecure(session, exporter)
            return true
        }
        return false
    }

    private func didSecure(_ session: TLSSession?, _ exporter: KeyExporter) {
        clock = nil
        if record.withLock({ $0.snapshot.isSecure }), let session { return didAuthenticateClient(session) }
        let shared = session.map(LatestSession.share)
        record.withLock { record in
            record.snapshot.isSecure = true
            record.snapshot.session = shared
            record.snapshot.exporter = exporter
        }
        note(
            "TLS established",
            ["version": session?.protocolVersion.description ?? "", "cipherSuite": session?.cipherSuite ?? ""])
        if let session { observation?.succeed(session) }
        if !waiters.answerSecured(.secured(session)) { outlet.append(.didSecure) }
    }

    /// Asks a function of the server's program, off the loop: for settings, or about early data.
    private func ask(_ question: TLSServerQuestion) {
        Task.detached { [weak self] in
            let choice = await question.answer()
            self?.post(.chosen(choice))
        }
    }

    func choose(_ choice: TLSServerChoice) {
        guard case .connected(let channel) = phase else { return }
        channel.choose(choice)
        needsPump = true
    }

    private func perform(_ work: HandshakeWork) {
        let isAccepted = HandshakeWorkers.shared.perform(work.key, isCancelled: { work.isCancelled }) { [weak self] in
            work.perform()
            self?.post(.worked(work))
        }
        guard !isAccepted, case .connected(let channel) = phase else { return }
        channel.refuse(work)
        close(.tooManyHandshakes)
    }

    func takeBack(_ work: HandshakeWork) {
        guard case .connected(let channel) = phase else { return }
        channel.takeBack(work)
        needsPump = true
    }

    /// A verdict. A second one, or one that comes too late, finds its question answered.
    func decideTrust(_ accepted: Bool, of question: TrustQuestionNumber, refusal: TrustRefusal = .rejected) {
        guard case .awaitingTrust(question) = upgrade, case .connected(let channel) = phase else { return }
        channel.decideTrust(accepted, refusal: refusal)
        upgrade.resumeHandshake()
        clock = clock?.resumeHandshake()
        observation?.endDecision()
        needsPump = true
    }

    // MARK: - Time

    /// Asks the loop for an event at the earliest of the deadlines.
    func armDeadline() {
        guard hasDeadline, let earliest = earliestDeadline else { return }
        // A deadline that has moved later stays armed: it comes early, finds nothing expired, and the next
        // one is armed then.
        if let armedDeadline, armedDeadline <= earliest { return }
        guard let registration else { return }
        armedDeadline = earliest
        loop.setDeadline(earliest, of: registration)
    }

    /// False on most connections most of the time.
    private var hasDeadline: Bool {
        if reads.hasDeadline || writes.hasDeadline || clock != nil || !waiters.isEmpty { return true }
        if case .connected(let channel) = phase { return channel.retry != nil || ending.wakeTime != nil }
        return true
    }

    private var earliestDeadline: Deadline? {
        var earliest = Deadline.earlier(reads.deadline, writes.deadline)
        if let clock { earliest = .earlier(earliest, clock.deadline) }
        if !waiters.isEmpty { earliest = .earlier(earliest, waiters.deadline) }
        switch phase {
        case .opening(let opening): earliest = .earlier(earliest, opening.deadline)
        case .connected(let channel): earliest = .earlier(earliest, .earlier(channel.retry, ending.wakeTime))
        case .negotiating(let channel, _): earliest = .earlier(earliest, channel.retry)
        case .idle, .closed: break
        }
        return earliest
    }

    func expire() {
        armedDeadline = nil
        let now = Deadline.now
        if let clock, let deadline = clock.deadline, deadline <= now { expire(clock) }
        switch phase {
        case .opening(let opening): follow(opening.expire(at: now), opening)
        case .connected(let channel), .negotiating(let channel, _): channel.retryIfDue(at: now)
        case .idle, .closed: break
        }
        expireRead(at: now)
        expireWrite(at: now)
        expireWaiters(at: now)
    }

    /// Each waiter has its own time, wherever its operation is in the queue.
    private func expireWaiters(at now: Deadline) {
        while let waiter = reads.lateWaiter(at: now) { cancel(waiter, waiter.lateError) }
        while let waiter = writes.lateWaiter(at: now) { cancel(waiter, waiter.lateError) }
        while let (waiter, error) = waiters.late(at: now) { cancel(waiter, error) }
    }

    private func expire(_ clock: PhaseClock) {
        switch clock.limit {
        case .connect: close(.timeout(.connectTimeout, "connect", seconds: clock.seconds))
        case .earlierWrites(let position):
            let now = writes.position
            // It waits for a read now.
            if writes.isAtStartTLS { return self.clock = nil }
            if now == position { return close(.stuckBeforeTLS(seconds: clock.seconds)) }
            self.clock = PhaseClock(.earlierWrites(now), seconds: clock.seconds)
        case .handshake:
            if case .connected(let channel) = phase { channel.abandonHandshake() }
            close(.timeout(.handshakeTimeout, handshakeOperation, seconds: clock.seconds))
        case .trust:
            // No verdict came in time: that is a no.
            guard case .awaitingTrust(let question) = upgrade else { return self.clock = nil }
            decideTrust(false, of: question, refusal: .timedOut)
        }
    }

    private func expireRead(at now: Deadline) {
        guard let late = reads.takeLate(at: now) else { return }
        let question = TimedOutOperation(late) { [weak self] in self?.post(.extendRead(operation: late.number, seconds: $0)) }
        outlet.append(.readTimedOut(question))
    }

    private func expireWrite(at now: Deadline) {
        guard let late = writes.takeLate(at: now) else { return }
        let question = TimedOutOperation(late) { [weak self] in self?.post(.extendWrite(operation: late.number, seconds: $0)) }
        outlet.append(.writeTimedOut(question))
    }

    /// The delegate's answer, which counts for the operation that was asked about and for no other.
    func extendRead(_ number: UInt32, by seconds: Double) {
        guard let timeout = reads.extend(number, by: seconds) else { return }
        let error = AsyncSocketError.timeout(.readTimeout, "read", seconds: timeout)
        guard configuration.value.keepsConnectionOnReadTimeout else { return close(error) }
        abandonRead(error)
        needsPump = true
    }

    /// The delegate's answer, which counts for the operation that was asked about and for no other.
    func extendWrite(_ number: UInt32, by seconds: Double) {
        guard let timeout = writes.extend(number, by: seconds) else { return }
        close(.timeout(.writeTimeout, "write", seconds: timeout))
    }
}
