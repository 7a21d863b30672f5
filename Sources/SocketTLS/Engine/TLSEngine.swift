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
// 10. OpenSSL is called only through `OpenSSLCall`. Its callbacks reach `bio` and `events`, never the engine
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
    /// What both sides agreed on; nil before `.complete`. Built again for each call: keeping it would take
    /// 0.1 KiB on each connection.
    package var session: TLSSession? {
        events.isEstablished ? TLSSession(of: ssl, events) : nil
    }

    /// Answers once the handshake is complete, on any thread.
    package let exporter = KeyExporter()

    private(set) var context: TLSContext
    let bio: EngineBIO
    let events: EngineEvents
    private(set) var ssl: OpaquePointer
    var phase = Phase.handshaking
    /// The settings of a server are still to be chosen; nil: they are there.
    var selection: ServerSelection?
    private var hasReceivedClose = false
    /// The transport has ended without close_notify, and everything before the end was read.
    private var isTruncated = false
    var hasSentClose = false
    /// The handshake cannot go on before bytes arrive.
    private var waitsForBytes: Bool
    /// Tickets that leave with the next data.
    var ticketsToSend: UInt8 = 0
    /// Until it is sent or delivered; nil: nothing is.
    var early: EarlyData?
    /// Nil on a client, and on a server that asks no client after the handshake.
    let clientAuthentication: ClientAuthentication?
    /// OpenSSL could not send an answer to the peer: the next read must call OpenSSL even if nothing has
    /// arrived.
    private var hasUnsentAnswer = false

    enum Phase {
        case handshaking
        case established
        /// The client's answer to a request of `requestClientCertificate` is complete.
        case authenticating
        indirect case failed(TLSError)
    }

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
        context: TLSContext, settings: TLSSettings, endpoint: String? = nil, defersWork: Bool = false,
        clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds
    ) throws(TLSError) {
        let serverName: ServerName?
        switch settings.role {
        case .client(let name): serverName = try TLSSettings.name(name)
        case .server: serverName = nil
        }
        let gate = TrustGate(settings)
        clientAuthentication = ClientAuthentication(settings)
        let isServer = settings.role == .server
        let bio = EngineBIO()
        self.bio = bio
        (received, output) = (bio.received, bio.output)
        waitsForBytes = isServer
        self.context = context
        let resumption: ClientResumption? =
            if let scope = context.resumptionScope, let serverName {
                try ClientResumption(settings, in: scope, serverName: serverName.text, endpoint: endpoint)
            } else {
                nil
            }
        events = EngineEvents(
            bio: bio, isServer: isServer, expectedName: serverName?.text, gate: gate, resumption: resumption, context: context,
            work: defersWork ? .none : .inPlace, clock: clock)
        ssl = try OpenSSLCall.require("SSL_new", or: .internalError, "OpenSSL cannot make a TLS connection.") {
            SSL_new(context.handle.context)
        }
        selection = settings.serverNames.map { ServerSelection(names: $0) }
        events.choosesByHello = selection != nil
        try attach()
        try serverName?.expect(on: ssl, verifies: settings.verifiesHostName)
        if isServer { SSL_set_accept_state(ssl) } else { SSL_set_connect_state(ssl) }
        try resumption?.offer(on: ssl)
        try prepareEarlyData(settings, serverName)
        if settings.allowsPostHandshakeAuthentication { SSL_set_post_handshake_auth(ssl, 1) }
    }

    deinit {
        exporter.withdraw()
        // Otherwise no one could resume the session of a connection that ends without our close_notify, which
        // TLS allows since version 1.1 (RFC 5246, 7.2.1). After a failure no one may (7.2.2).
        if case .failed = phase {} else { SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN) }
        detach()
    }

    /// Has a server go on with another context, before OpenSSL has seen anything.
    func replaceContext(_ new: TLSContext) throws(TLSError) {
        let replacement = try OpenSSLCall.require("SSL_new", or: .internalError, "OpenSSL cannot make a TLS connection.") {
            SSL_new(new.handle.context)
        }
        detach()
        (context, events.context, ssl) = (new, new, replacement)
        try attach()
        SSL_set_accept_state(ssl)
        acceptEarlyData()
    }

    private func detach() {
        EngineCallbacks.setEvents(nil, of: ssl)
        EngineBIO.detach(SSL_get_rbio(ssl))
        SSL_free(ssl)
    }

    private func attach() throws(TLSError) {
        let handle = try OpenSSLCall.require("BIO_new", or: .internalError, "OpenSSL has no memory for a BIO.") { bio.makeBIO() }
        SSL_set_bio(ssl, handle, handle)
        EngineCallbacks.setEvents(events, of: ssl)
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
        switch phase {
        case .failed(let error): return .failed(error)
        case .established: return .complete
        case .authenticating: return settleClient()
        case .handshaking: break
        }
        if isAwaitingTrust || isAwaitingEarlyAnswer { return .incomplete }
        if case .byDecision = events.gate.refusal, events.isServer || isFinished { return .failed(refusePeer()) }
        if waitsForBytes, bio.received.isEmpty, !bio.hasReachedEndOfFile { return .incomplete }
        if let answer = select() { return answer }
        waitsForBytes = false
        bio.limitsOutput = true
        defer { bio.limitsOutput = false }
        switch step() {
        case .success:
            events.judgeEvidence(of: ssl)
            return question ?? establish()
        case .wantsTrust: return question ?? .incomplete
        case .wantsWork: return awaitingWork
        case .wantsRead:
            if bio.isHeld { return question ?? .incomplete }
            waitsForBytes = true
            return earlyQuestion ?? .incomplete
        case .wantsWrite: return .incomplete
        case .closed: return .failed(fail("SSL_do_handshake", []))
        case .failure(let entries): return .failed(fail("SSL_do_handshake", entries))
        }
    }

    /// `handshake()` has returned `.awaitingTrust`, and there is no decision yet.
    package var isAwaitingTrust: Bool { events.gate.isAwaitingDecision }

    /// Decides the question of `.awaitingTrust`; call `handshake()` after it. Without an open question,
    /// nothing happens.
    package func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        guard events.gate.decide(accepted, refusal) else { return }
        if accepted { bio.isHeld = false }
    }

    private var isFinished: Bool { SSL_is_init_finished(ssl) == 1 }

    private var isResumed: Bool { SSL_session_reused(ssl) == 1 }

    private var question: HandshakeAnswer? {
        events.gate.takeQuestion().map { .awaitingTrust($0) }
    }

    /// Admits only a peer that the gate has accepted, whatever the cipher suite. A server that does not
    /// require a certificate may do without one.
    private func establish() -> HandshakeAnswer {
        let requiresCertificate = SSL_get_verify_mode(ssl) & SSL_VERIFY_FAIL_IF_NO_PEER_CERT != 0
        guard events.gate.admits(isOptional: events.isServer && !requiresCertificate) else {
            _ = OpenSSLCall.perform(on: ssl) { SSL_shutdown(ssl) }
            let error = events.gate.admissionError
            phase = .failed(error)
            return .failed(error)
        }
        phase = .established
        events.isEstablished = true
        bio.withholdsEnd = true
        events.work = .inPlace
        events.resumption?.establish(ssl)
        if events.isServer { context.tickets?.establish(ssl) }
        if events.isServer, context.ticketCount > 0, events.gate.preSharedKeyIdentity == nil, SSL_version(ssl) == TLS1_3_VERSION {
            ticketsToSend = isResumed ? 1 : UInt8(clamping: context.ticketCount)
        }
        exporter.lend(ssl)
        bio.forgetFirstBytes()
        return settleEarlyData()
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
        switch phase {
        case .failed(let error): return .failed(error)
        case .handshaking, .authenticating: return .incomplete
        case .established: break
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
        if case .failed = phase { return true }
        return hasReceivedClose || isTruncated || mayHaveData || isAuthenticatingClient
    }

    private var mayHaveData: Bool {
        !received.isEmpty || bio.hasReachedEndOfFile || hasUnsentAnswer || events.isFlooded || SSL_pending(ssl) > 0
            || early != nil
    }

    private func readRecord(into buffer: PreBuffer, limit: Int) -> ReadAnswer {
        let room = buffer.writableBytes(minimum: min(limit, 4096))
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
            noteClientAnswer()
            guard hasRunDry, case .established = phase else { return .incomplete }
            isTruncated = true
            let error = truncation("SSL_read_ex")
            // Half of the client's answer is here: nothing could be written any more.
            guard isAmidClientAnswer else { return .truncated(error) }
            phase = .failed(error)
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
        switch phase {
        case .failed(let error): return .failed(error)
        case .handshaking, .authenticating: return .incomplete
        case .established: break
        }
        if hasSentClose {
            return .failed(
                TLSError(.internalError, "Data was written after close_notify was sent.", operation: "SSL_write_ex"))
        }
        guard !bytes.isEmpty else { return .accepted(0) }
        guard output.count < Self.outputLimit, !isAmidClientAnswer else { return .incomplete }
        if ticketsToSend > 0 { addTickets() }
        var count = 0
        let unread = received.count
        let outcome = perform { SSL_write_ex(ssl, bytes.baseAddress, min(bytes.count, Self.writeLimit), &count) }
        switch outcome {
        case .success: return .accepted(count)
        // Half a message of the peer is here, and the other half does not come.
        case .wantsRead where hasRunDry:
            let error = truncation("SSL_write_ex")
            phase = .failed(error)
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
        events.resumption?.storeReceived()
        return outcome
    }
}
