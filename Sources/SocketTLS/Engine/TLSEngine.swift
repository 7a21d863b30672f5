// A TLS connection without a socket. The owner moves ciphertext; the engine encrypts and decrypts it. Rules
// for the owner:
//  1. Call the engine from one thread at a time: it has no lock, except around what its `exporter` uses too.
//     Any thread will do, because nothing is kept per thread between calls.
//  2. Append ciphertext from the transport to `received`. When the transport ends, call `receiveEndOfFile()`.
//  3. After EVERY call, whatever it returns, send what is in `output` and consume what was sent: a failed
//     call leaves an alert there, and a read may leave the answer to a KeyUpdate.
//  4. Call `handshake()` once before anything arrives, then after every arrival, until it returns `.complete`
//     or `.failed`.
//  5. After `.complete` call `read` at once: `received` may hold data that no socket event will announce.
//     Then read until `.incomplete` after every arrival, and again after sending when `output` had reached
//     `outputLimitForReading`: reading stops when the peer does not take our answers.
//  6. After `.awaitingTrust`, get a decision, call `decideTrust` once, then `handshake()`. Until then every
//     call returns `.incomplete` and changes nothing. Arrivals may be appended, but the engine does not read
//     them, so stop reading the transport when there are many.
//  7. `write` takes at most 64 KiB a call, and nothing while `output` is at its limit: send, then write the
//     same bytes again. It also returns `.incomplete` when only half of a message has arrived from the peer:
//     write again after the next arrival.
//  8. `.failed` is final for both directions. `.closed` and `.truncated` end only reading; writing may go on
//     (half-close).
//  9. To close in order, call `shutdown()`, send `output`, then close the transport's writing side. Nothing
//     can be written after that.
//
// Rules inside the engine:
// 10. OpenSSL is called only through `OpenSSLCall`. Its callbacks reach `bio` and `facts`, never the engine
//     itself.
// 11. The engine checks the room in `output` before `SSL_write`, so the BIO never tells that call to try
//     again.
// 12. The engine does not ask OpenSSL to read when there is nothing to read: OpenSSL would allocate and free
//     a buffer of 16 KiB to find that out.
// 13. No byte of data passes before the phase is `.established`, and only the trust gate leads to that phase.

internal import COpenSSL
package import SocketBuffers

/// One TLS connection: two buffers for ciphertext, and calls for plaintext. Not Sendable: its owner confines
/// it.
package final class TLSEngine {
    /// Ciphertext that has arrived: the `sslPreBuffer`. The owner only appends to it.
    package let received: PreBuffer
    /// Ciphertext to be sent. The owner only sends and consumes it.
    package let output: PreBuffer
    /// Whether `output` holds anything.
    package var hasOutput: Bool { !output.isEmpty }
    /// The result of the handshake; nil before `.complete`. Built again for each call: keeping it would take
    /// 0.1 KiB on each connection.
    package var session: TLSSession? {
        facts.isEstablished ? TLSSession(of: ssl, judge, earlyFacts) : nil
    }

    /// Answers once the handshake is complete, on any thread.
    package let exporter = KeyExporter()

    private(set) var context: TLSContext
    let bio: EngineBIO
    let facts: Facts
    let judge: Judge
    @exclusivity(unchecked) private(set) var ssl: OpaquePointer
    // Unchecked: the engine has one user at a time, and the value calls nothing. Each record reads it.
    @exclusivity(unchecked) var course: Handshake
    @exclusivity(unchecked) private(set) var hasReceivedClose = false
    /// The transport has ended without close_notify, and everything before the end was read.
    @exclusivity(unchecked) private var isTruncated = false
    @exclusivity(unchecked) var hasSentClose = false
    /// Tickets that leave with the next data.
    @exclusivity(unchecked) var ticketsToSend: UInt8 = 0
    /// Until it is sent or delivered; nil: nothing is.
    @exclusivity(unchecked) var early: EarlyData?
    var earlyFacts = EarlyDataFacts()
    /// Nil on a client, and on a server that asks no client after the handshake.
    let clientAuthentication: ClientAuthentication?
    /// OpenSSL could not send an answer to the peer: the next read must call OpenSSL even if nothing has
    /// arrived.
    @exclusivity(unchecked) private var hasUnsentAnswer = false

    var phase: Handshake.Phase { course.phase }

    /// `write` returns `.incomplete` while `output` holds this many bytes or more.
    package static let outputLimit = 128 * 1024
    /// `read` returns `.incomplete` while `output` holds this many bytes or more. It is higher than
    /// `outputLimit`, so that two sides that both write before they read do not wait for each other.
    package static let outputLimitForReading = 256 * 1024
    /// The most data that one record holds.
    package static let recordLimit = 16 * 1024
    /// The most room that a record takes in `output`. No cipher of TLS 1.2 or 1.3 adds more than 85 bytes.
    package static let encryptedRecordLimit = recordLimit + 128
    /// The most that one `write` takes: four records for one call.
    package static let writeLimit = 4 * recordLimit

    /// A new connection. `context` must be made from the same `settings`. `endpoint` is the host and port of
    /// a client's connection: without it nothing is taken from a session store. `clock` returns nanoseconds
    /// that never go back; limits to a rate use it. `defersWork`: see `HandshakeWork`.
    package init(
        context: TLSContext, settings: TLSSettingValues, endpoint: String? = nil, defersWork: Bool = false,
        clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds
    ) throws(TLSError) {
        let serverName: ServerName?
        switch settings.role {
        case .client(let name): serverName = try TLSSettingValues.name(name)
        case .server: serverName = nil
        }
        clientAuthentication = ClientAuthentication(settings)
        let isServer = settings.role == .server
        let bio = EngineBIO(over: context.transport)
        self.bio = bio
        (received, output) = (bio.received, bio.output)
        self.context = context
        let resumption: ClientResumption? =
            if let scope = context.resumptionScope, let serverName {
                try ClientResumption(settings, in: scope, serverName: serverName.text, endpoint: endpoint)
            } else {
                nil
            }
        judge = Judge(
            isServer: isServer, expectedName: serverName?.text, gate: TrustGate(settings), domain: context.domain,
            resumption: resumption)
        facts = Facts(bio: bio, judge: judge, work: defersWork ? .none : .inPlace, clock: clock)
        facts.adopt(context.domain.proof)
        facts.choosesByHello = settings.serverNames != nil
        course = Handshake(isServer: isServer, selection: settings.serverNames.map { ServerSelection(names: $0) })
        ssl = try OpenSSLCall.require("SSL_new", or: .internalError, "OpenSSL cannot make a TLS connection.") {
            SSL_new(context.handle.context)
        }
        try attach()
        try serverName?.expect(on: ssl, verifies: settings.verifiesHostName)
        if isServer { SSL_set_accept_state(ssl) } else { SSL_set_connect_state(ssl) }
        try resumption?.offer(on: ssl)
        if settings.earlyData != nil || context.acceptsEarlyData { try prepareEarlyData(settings, serverName) }
        if settings.allowsPostHandshakeAuthentication { SSL_set_post_handshake_auth(ssl, 1) }
    }

    deinit {
        exporter.withdraw()
        // Otherwise the session of a connection that ends without our close_notify could not be resumed. TLS
        // has allowed that since version 1.1 (RFC 5246, 7.2.1), but not after a failure (7.2.2).
        if case .failed = phase {} else { SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN) }
        detach()
    }

    /// Has a server go on with another context, before OpenSSL has seen anything.
    func replaceContext(_ new: TLSContext) throws(TLSError) {
        let replacement = try OpenSSLCall.require("SSL_new", or: .internalError, "OpenSSL cannot make a TLS connection.") {
            SSL_new(new.handle.context)
        }
        detach()
        (context, ssl) = (new, replacement)
        judge.adopt(new.domain)
        facts.adopt(new.domain.proof)
        try attach()
        SSL_set_accept_state(ssl)
        acceptEarlyData()
    }

    private func detach() {
        EngineCallbacks.setFacts(nil, of: ssl)
        EngineBIO.detach(SSL_get_rbio(ssl))
        SSL_free(ssl)
    }

    private func attach() throws(TLSError) {
        let handle = try OpenSSLCall.require("BIO_new", or: .internalError, "OpenSSL has no memory for a BIO.") { bio.makeBIO() }
        SSL_set_bio(ssl, handle, handle)
        EngineCallbacks.setFacts(facts, of: ssl)
    }

    /// The transport has ended: nothing more will be appended to `received`.
    package func receiveEndOfFile() {
        bio.hasReachedEndOfFile = true
    }
}

// MARK: - Handshake and trust

extension TLSEngine {
    package enum HandshakeAnswer {
        /// Send `output`; call again when bytes have arrived.
        case incomplete
        /// Get a decision, call `decideTrust`, then call again.
        case awaitingTrust(PeerTrust)
        /// Get an answer about settings or early data, call `choose`, then call again.
        case awaitingSettings(TLSServerQuestion)
        /// Leave the engine alone until the work is done: see `HandshakeWork`.
        case awaitingWork(HandshakeWork)
        /// Data may be read and written, and `session` is available.
        case complete
        case failed(TLSError)
    }

    /// Continues the handshake as far as it can.
    package func handshake() -> HandshakeAnswer {
        switch course.move(in: situation) {
        case .wait: return .incomplete
        case .choose:
            // The next call of OpenSSL reads what the choice has read.
            return select() ?? handshake()
        case .step: return step()
        case .refuse: return .failed(refusePeer())
        case .settleClient: return settleClient()
        case .finish: return .complete
        case .fail(let error): return .failed(error)
        }
    }

    private var situation: Handshake.Situation {
        var isDecidedAgainst = false
        if case .byDecision = judge.gate.refusal { isDecidedAgainst = judge.isServer || isResumed }
        return Handshake.Situation(
            isAsking: isAwaitingTrust || (early != nil && isAwaitingEarlyAnswer), isDecidedAgainst: isDecidedAgainst,
            hasInput: !bio.received.isEmpty || bio.hasReachedEndOfFile)
    }

    private func step() -> HandshakeAnswer {
        bio.limitsOutput = true
        defer { bio.limitsOutput = false }
        let outcome = (mayStepElsewhere ? stepElsewhere() : nil) ?? stepHere()
        switch course.ended(outcome, isHeld: bio.isHeld) {
        case .judge:
            judge.judgeEvidence(of: ssl, sharedKey: facts.sharedKey(on: ssl))
            return question ?? establish()
        case .ask: return question ?? .incomplete
        case .askHeld:
            bio.isHeld = judge.stays(atServerHelloOf: ssl)
            return bio.isHeld ? question ?? .incomplete : handshake()
        case .askEarly: return early == nil ? .incomplete : earlyQuestion ?? .incomplete
        case .lend: return awaitingWork
        case .wait: return .incomplete
        case .fail(let entries): return .failed(fail("SSL_do_handshake", entries))
        }
    }

    /// One step of OpenSSL's handshake, on this thread.
    func stepHere() -> OpenSSLCall.Outcome {
        let outcome = early == nil ? OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) } : stepWithEarlyData()
        if case .wanted = facts.work { return .wantsWork }
        return outcome
    }

    /// A step was done on another thread; or a client has sent a server more than one usual certificate,
    /// whose verification takes long.
    private var mayStepElsewhere: Bool {
        if case .done = facts.work { return true }
        return judge.isServer && bio.handshakeByteCount + received.count > Self.usualCertificateBytes
            && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE
    }

    private static let usualCertificateBytes = 2048

    /// `handshake()` has returned `.awaitingTrust`, and the decision is still open.
    package var isAwaitingTrust: Bool { judge.gate.isAwaitingDecision }

    /// Decides the question of `.awaitingTrust`; call `handshake()` after it. Without an open question,
    /// nothing happens.
    package func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        guard judge.gate.decide(accepted, refusal) else { return }
        if accepted { bio.isHeld = false }
    }

    private var question: HandshakeAnswer? {
        judge.gate.takeQuestion().map { .awaitingTrust($0) }
    }
}

// MARK: - Data

extension TLSEngine {
    package enum ReadAnswer {
        /// So many bytes, at least one, were appended to the buffer.
        case bytes(Int)
        /// There is nothing to read until more bytes arrive.
        case incomplete
        /// The peer has sent close_notify, and sends nothing more.
        case closed
        /// The transport has ended without close_notify: the peer sends nothing more, and may have lost some.
        indirect case truncated(TLSError)
        indirect case failed(TLSError)
    }

    /// Appends at most `limit` bytes of plaintext to `buffer`.
    package func read(into buffer: PreBuffer, limit: Int) -> ReadAnswer {
        guard course.isEstablished else {
            if case .failed(let error) = phase { return .failed(error) }
            return .incomplete
        }
        if case .server(let data) = early { return takeEarlyData(data, into: buffer, limit: limit) }
        if hasReceivedClose { return .closed }
        if isTruncated { return .truncated(truncation("SSL_read_ex")) }
        bio.limitsOutput = true
        defer { bio.limitsOutput = false }
        var total = 0
        while total < limit, mayHaveData, hasRoomForAnswers {
            let answer = readRecord(into: buffer, limit: limit - total)
            guard case .bytes(let count) = answer else {
                // The engine remembers what ended the loop, and returns it the next time.
                return total > 0 ? .bytes(total) : answer
            }
            total += count
        }
        return total > 0 ? .bytes(total) : .incomplete
    }

    private var hasRoomForAnswers: Bool { output.count < Self.outputLimitForReading }

    /// False if `read` would return `.incomplete`, and nothing else is to be done. An end that came right
    /// behind data has not been returned yet.
    package var mayHaveAnswer: Bool {
        course.hasFailed || hasReceivedClose || isTruncated || mayHaveData || course.isAuthenticating
    }

    private var mayHaveData: Bool {
        !received.isEmpty || bio.hasReachedEndOfFile || hasUnsentAnswer || facts.isFlooded || SSL_pending(ssl) > 0
            || early != nil
    }

    /// Appends at most `limit` bytes of one record.
    func readRecord(into buffer: PreBuffer, limit: Int, leastRoom: Int = 4096) -> ReadAnswer {
        let room = buffer.writableBytes(minimum: min(limit, leastRoom))
        var count = 0
        let outcome = perform { SSL_read_ex(ssl, room.baseAddress, min(room.count, limit), &count) }
        hasUnsentAnswer = false
        if case .success = outcome {
            buffer.commit(count)
            return .bytes(count)
        }
        buffer.commit(0)
        return answer(to: outcome)
    }

    private func answer(to outcome: OpenSSLCall.Outcome) -> ReadAnswer {
        switch outcome {
        case .success, .wantsRead, .wantsTrust, .wantsWork:
            if facts.isAwaitingClient { noteClientAnswer() }
            guard hasRunDry, course.isEstablished else { return .incomplete }
            isTruncated = true
            let error = truncation("SSL_read_ex")
            // Half of the client's answer is here: nothing could be written any more.
            guard facts.isAwaitingClient, isAmidClientAnswer else { return .truncated(error) }
            course.fail(error)
            return .failed(error)
        case .wantsWrite:
            hasUnsentAnswer = true
            return .incomplete
        case .closed:
            hasReceivedClose = true
            return .closed
        case .failure(let entries): return .failed(fail("SSL_read_ex", entries))
        }
    }

    package enum WriteAnswer {
        /// The first so many bytes are encrypted and in `output`.
        case accepted(Int)
        /// No bytes were taken: see rule 7.
        case incomplete
        indirect case failed(TLSError)
    }

    /// Encrypts as many of the first `bytes` as it can take.
    package func write(_ bytes: UnsafeRawBufferPointer) -> WriteAnswer {
        guard course.isEstablished else {
            if case .failed(let error) = phase { return .failed(error) }
            return .incomplete
        }
        if hasSentClose {
            return .failed(
                TLSError(.internalError, "Data was written after close_notify was sent.", operation: "SSL_write_ex"))
        }
        guard !bytes.isEmpty else { return .accepted(0) }
        guard output.count < Self.outputLimit, !facts.isAwaitingClient || !isAmidClientAnswer else { return .incomplete }
        var count = 0
        let unread = received.count
        let addsTickets = ticketsToSend > 0
        if addsTickets { addTickets() }
        let outcome = perform { SSL_write_ex(ssl, bytes.baseAddress, min(bytes.count, Self.writeLimit), &count) }
        if addsTickets { facts.ticketKey = nil }
        switch outcome {
        case .success: return .accepted(count)
        // Half a message of the peer is here, and the other half does not come.
        case .wantsRead where hasRunDry:
            let error = truncation("SSL_write_ex")
            course.fail(error)
            return .failed(error)
        case .wantsRead, .wantsWrite, .wantsTrust, .wantsWork: return .incomplete
        case .closed: return .failed(fail("SSL_write_ex", []))
        case .failure(let entries): return .failed(fail("SSL_write_ex", entries, hasReadForWriting: received.count != unread))
        }
    }

    /// A call after the handshake.
    func perform(_ body: () -> Int32) -> OpenSSLCall.Outcome {
        let outcome = exporter.excluding { OpenSSLCall.perform(on: ssl, body) }
        // Not earlier: a store is code of the user, and no such code runs with a lock.
        if facts.takeNewSession() { judge.resumption?.storeReceived() }
        return outcome
    }
}
