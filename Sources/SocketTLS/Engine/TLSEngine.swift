// A TLS connection without a socket. The owner moves ciphertext, and the engine encrypts and decrypts it.
// Rules for the owner:
//  1. Call the engine from one thread at a time: the engine has no lock, except around state that its
//     `exporter` also uses. Any thread will do, because no thread-specific state is kept between calls.
//  2. Append ciphertext from the transport to `received`. When the transport reaches its end, call
//     `receiveEndOfFile()`.
//  3. After EVERY call, whatever it returns, send the contents of `output` and consume the bytes that were
//     sent: a failed call adds an alert, and a read may add the reply to a KeyUpdate.
//  4. Call `handshake()` once before any bytes arrive, then after every arrival, until it returns `.complete`
//     or `.failed`.
//  5. After `.complete`, call `read` immediately: `received` may hold data that no socket event will
//     announce. Then read until `.incomplete` after every arrival. Also read after sending if `output` had
//     reached `outputLimitForReading`, because reading stops while the peer does not accept our replies.
//  6. After `.awaitingTrust`, obtain a decision, call `decideTrust` once, then `handshake()`. Until then
//     every call returns `.incomplete` and changes no state. Arriving bytes may be appended, but the engine
//     does not read them, so stop reading from the transport when there are many.
//  7. `write` accepts at most 64 KiB per call, and no data while `output` is at its limit: send, then write
//     the same bytes again. It also returns `.incomplete` if a message from the peer is only partially
//     received: write again after the next arrival.
//  8. `.failed` is final for both directions. `.closed` and `.truncated` only mean that no more data can be
//     read; writing may continue (half-close).
//  9. For an orderly close, call `shutdown()`, send `output`, then close the transport's writing side. No
//     data can be written after that.
//
// Rules inside the engine:
// 10. OpenSSL is called only through `OpenSSLCall`. Its callbacks access `bio` and `facts`, never the engine
//     itself.
// 11. The engine checks the room in `output` before `SSL_write`, so the BIO never reports "retry" to that
//     call.
// 12. The engine does not call OpenSSL to read if no bytes are available, because OpenSSL would allocate and
//     free a buffer of 16 KiB to find that out.
// 13. No data passes before the phase is `.established`, and only the trust gate leads to that phase.

internal import COpenSSL
package import SocketBuffers

/// One TLS connection, with two buffers for ciphertext and methods that read and write plaintext. It is not
/// Sendable: its owner must not use it on several threads concurrently.
package final class TLSEngine {
    /// Received ciphertext: the `sslPreBuffer`. The owner only appends to it.
    package let received: PreBuffer
    /// Ciphertext to send. The owner only sends and consumes it.
    package let output: PreBuffer
    package var hasOutput: Bool { !output.isEmpty }
    /// The result of the handshake, or `nil` before `.complete`. The value is created at each access, because
    /// storing it would take 0.1 KiB per connection.
    package var session: TLSSession? {
        facts.isEstablished ? TLSSession(of: ssl, facts, earlyFacts) : nil
    }

    /// Available on any thread once the handshake is complete.
    package let exporter = KeyExporter()

    private(set) var context: TLSContext
    let bio: EngineBIO
    let facts: Facts
    let judge: Judge
    @exclusivity(unchecked) private(set) var ssl: OpaquePointer
    // Unchecked: the engine has one user at a time, and `Handshake` calls no other code. This property is
    // read for each record.
    @exclusivity(unchecked) var course: Handshake
    @exclusivity(unchecked) private(set) var hasReceivedClose = false
    /// Whether the transport closed without close_notify and everything before that was read.
    @exclusivity(unchecked) private var isTruncated = false
    @exclusivity(unchecked) var hasSentClose = false
    /// How many tickets to send with the next data.
    @exclusivity(unchecked) var ticketsToSend: UInt8 = 0
    /// Early data that is not yet sent or delivered, or `nil` if all of it was handled or the settings do not
    /// enable early data.
    @exclusivity(unchecked) var early: EarlyData?
    /// `nil` without early data.
    var earlyFacts: EarlyDataFacts?
    /// `nil` on a client, and on a server that requests no certificates after the handshake.
    let clientAuthentication: ClientAuthentication?
    /// Whether OpenSSL has a reply to the peer for which `output` had no room. The next read must then call
    /// OpenSSL even if no bytes have arrived.
    @exclusivity(unchecked) private var hasUnsentAnswer = false

    var phase: Handshake.Phase { course.phase }

    /// `write` returns `.incomplete` while `output` holds this many bytes or more.
    package static let outputLimit = 128 * 1024
    /// `read` returns `.incomplete` while `output` holds this many bytes or more. The limit is higher than
    /// `outputLimit`, so that two sides that both write before they read do not block each other.
    package static let outputLimitForReading = 256 * 1024
    package static let recordLimit = 16 * 1024
    /// The maximum size of a record in `output`. No TLS 1.2 or 1.3 cipher adds more than 85 bytes.
    package static let encryptedRecordLimit = recordLimit + 128
    /// The maximum amount of data per `write`: four records.
    package static let writeLimit = 4 * recordLimit

    /// Creates a connection. `context` must have been made from the same `settings`. `endpoint` is the host
    /// and port of a client's connection; without it, no session is taken from a session store. `clock` is a
    /// monotonic clock in nanoseconds, used for rate limits. For `defersWork`, see `HandshakeWork`.
    package init(
        context: TLSContext, settings: TLSSettingValues, endpoint: String? = nil, defersWork: Bool = false,
        clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds
    ) throws(TLSError) {
        let serverName: ServerName? = settings.role == .client ? try TLSSettingValues.name(settings.serverName) : nil
        clientAuthentication = settings.mayRequestClientCertificates ? ClientAuthentication(settings) : nil
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
        facts.selection = settings.serverNames.map { ServerSelection(names: $0) }
        course = Handshake(isServer: isServer, choosesSettings: facts.selection != nil)
        ssl = try OpenSSLCall.require("SSL_new", or: .internalError, "OpenSSL cannot create a TLS connection") {
            SSL_new(context.handle.context)
        }
        try attach()
        try serverName?.expect(on: ssl, verifies: settings.verifiesHostName)
        try settings.expectProof(on: ssl, judge)
        if isServer { SSL_set_accept_state(ssl) } else { SSL_set_connect_state(ssl) }
        try resumption?.offer(on: ssl)
        if settings.earlyData != nil || context.acceptsEarlyData { try prepareEarlyData(settings, serverName) }
        if settings.allowsPostHandshakeAuthentication { SSL_set_post_handshake_auth(ssl, 1) }
    }

    deinit {
        exporter.withdraw()
        // Otherwise, the session could not be resumed if the connection closed without our close_notify. TLS
        // has allowed this resumption since version 1.1 (RFC 5246, 7.2.1), except after a failure (7.2.2).
        if case .failed = phase {} else { SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN) }
        detach()
    }

    /// Switches a server to another context, before OpenSSL has read any bytes.
    func replaceContext(_ new: TLSContext) throws(TLSError) {
        let replacement = try OpenSSLCall.require("SSL_new", or: .internalError, "OpenSSL cannot create a TLS connection") {
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
        let handle = try OpenSSLCall.require("BIO_new", or: .internalError, "OpenSSL is out of memory") { bio.makeBIO() }
        SSL_set_bio(ssl, handle, handle)
        EngineCallbacks.setFacts(facts, of: ssl)
    }

    /// Notes that the transport reached its end. No more bytes may be appended to `received`.
    package func receiveEndOfFile() { bio.hasReachedEndOfFile = true }
}

// MARK: - Handshake and trust

extension TLSEngine {
    package enum HandshakeAnswer {
        /// Send `output`, and call again when bytes have arrived.
        case incomplete
        /// Obtain a decision, call `decideTrust`, then call again.
        case awaitingTrust(PeerTrust)
        /// Obtain the settings or the decision about early data, call `choose`, then call again.
        case awaitingSettings(TLSServerQuestion)
        /// Do not use the engine until the work is done: see `HandshakeWork`.
        case awaitingWork(HandshakeWork)
        /// Data may be read and written, and `session` is available.
        case complete
        case failed(TLSError)
    }

    package func handshake() -> HandshakeAnswer {
        switch course.move(in: situation) {
        case .wait: return .incomplete
        case .choose:
            // OpenSSL's next call reads the same bytes that were used for the choice.
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
            let answer = question ?? establish()
            if early != nil, case .complete = answer { return settleEarlyData() }
            return answer
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

    func stepHere() -> OpenSSLCall.Answer {
        let outcome = early == nil ? OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) } : stepWithEarlyData()
        if case .wanted = facts.work { return .wantsWork }
        return outcome
    }

    /// Whether the step was performed on another thread, or may have to be, because verification can take a
    /// long time if the client has sent more data than one ordinary certificate takes.
    private var mayStepElsewhere: Bool {
        if case .done = facts.work { return true }
        return judge.isServer && bio.handshakeByteCount + received.count > Self.usualCertificateBytes
            && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE
    }

    private static let usualCertificateBytes = 2048

    /// Whether `handshake()` has returned `.awaitingTrust` and the decision is still pending.
    package var isAwaitingTrust: Bool { judge.gate.isAwaitingDecision }

    /// Resolves `.awaitingTrust`. Call `handshake()` afterwards. Has no effect if no decision is pending.
    package func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        guard judge.gate.decide(accepted, refusal) else { return }
        if accepted { bio.isHeld = false }
    }

    /// Resolves `.awaitingSettings`. Call `handshake()` afterwards. Has no effect if no choice is pending.
    package func choose(_ choice: TLSServerChoice) {
        switch choice {
        case .settings(let settings): choose(settings)
        case .early(let answer): answerEarly(answer)
        // Only in DTLS, where the `DTLSEngine` receives it.
        case .key: break
        }
    }

    private var question: HandshakeAnswer? {
        judge.gate.takeQuestion().map { .awaitingTrust($0) }
    }
}

// MARK: - Data

extension TLSEngine {
    package enum ReadAnswer {
        /// The number of bytes appended to the buffer, at least one.
        case bytes(Int)
        /// No data is available until more bytes arrive.
        case incomplete
        /// The peer sent close_notify. No more data will arrive.
        case closed
        /// The transport closed without close_notify. No more data will arrive, and some may have been lost.
        indirect case truncated(TLSError)
        indirect case failed(TLSError)
    }

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
                // The engine remembers the reason and returns it from the next call.
                return total > 0 ? .bytes(total) : answer
            }
            total += count
        }
        return total > 0 ? .bytes(total) : .incomplete
    }

    private var hasRoomForAnswers: Bool { output.count < Self.outputLimitForReading }

    /// Whether `read` may return a result other than `.incomplete`, or other work is pending. The end of the
    /// connection may still have to be returned if it arrived right after data.
    package var mayHaveAnswer: Bool {
        course.hasFailed || hasReceivedClose || isTruncated || mayHaveData || course.isAuthenticating
    }

    private var mayHaveData: Bool {
        !received.isEmpty || bio.hasReachedEndOfFile || hasUnsentAnswer || facts.isFlooded || SSL_pending(ssl) > 0
            || early != nil
    }

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

    private func answer(to outcome: OpenSSLCall.Answer) -> ReadAnswer {
        switch outcome {
        case .success, .wantsRead, .wantsTrust, .wantsWork:
            if facts.isAwaitingClient { noteClientAnswer() }
            guard hasRunDry, course.isEstablished else { return .incomplete }
            isTruncated = true
            let error = truncation("SSL_read_ex")
            // The client's response was only partially received, so no more data could be written.
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
        /// The number of bytes, from the start, that were encrypted and added to `output`.
        case accepted(Int)
        /// No bytes were accepted: see rule 7.
        case incomplete
        indirect case failed(TLSError)
    }

    package func write(_ bytes: UnsafeRawBufferPointer) -> WriteAnswer {
        guard course.isEstablished else {
            if case .failed(let error) = phase { return .failed(error) }
            return .incomplete
        }
        if hasSentClose {
            return .failed(
                TLSError(.internalError, "data was written after close_notify was sent", operation: "SSL_write_ex"))
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
        // A message from the peer was only partially received, and the rest will never arrive.
        case .wantsRead where hasRunDry:
            let error = truncation("SSL_write_ex")
            course.fail(error)
            return .failed(error)
        case .wantsRead, .wantsWrite, .wantsTrust, .wantsWork: return .incomplete
        case .closed: return .failed(fail("SSL_write_ex", []))
        case .failure(let entries): return .failed(fail("SSL_write_ex", entries, hasReadForWriting: received.count != unread))
        }
    }

    func perform(_ body: () -> Int32) -> OpenSSLCall.Answer {
        let outcome = exporter.excluding { OpenSSLCall.perform(on: ssl, body) }
        // Not earlier, because a session store is user code, which must not run under a lock.
        if facts.takeNewSession() { judge.resumption?.storeReceived() }
        return outcome
    }
}
