// A DTLS 1.2 connection without a socket: a `TLSEngine` that processes records instead of a byte stream.
// Handshake, judge, facts and closing are shared with `TLSEngine`. Rules for the owner, in addition to rules
// 1, 4, 6 and 8 of `TLSEngine`:
//  1. Pass each datagram from the peer, and only from the peer, to `receive(_:)`. Then call `handshake()` or,
//     once it is complete, `read(into:)` until it returns `.incomplete`.
//  2. After EVERY call, send the datagrams that `sendOutput(_:)` provides. Datagrams that cannot be sent may
//     be dropped: handshake messages are retransmitted, and data is not delivered reliably anyway.
//  3. While `secondsToTimeout` is not `nil`, call `handleTimeout()` when that time has elapsed, even while a
//     trust or settings decision is pending. The peer retransmits its messages, and gives up if it receives
//     no reply.
//  4. While work is lent out (`.awaitingWork`), call only `receive(_:)`. The handshake continues with
//     `takeBackWork()`.
//  5. `write(_:)` accepts one message of 1 to `maximumMessageSize` bytes. Each `read(into:)` returns one
//     message.
//
// Rules inside the engine:
//  6. Handshake datagrams do not exceed the path MTU, if it is known. After two timeouts, smaller datagrams
//     are used (RFC 6347, section 4.1.1.1), unless the owner specified a fixed size.
//  7. A record that is not DTLS, not authentic, or a duplicate only increments `droppedRecordCount` (RFC
//     6347, section 4.1.2.7).
//  8. OpenSSL keeps two buffers of 17 KB per connection. `releaseBuffers()` frees them until the next call.

internal import COpenSSL
package import SocketBuffers

/// One DTLS connection. It is not Sendable: its owner must not use it on several threads concurrently.
package final class DTLSEngine {
    let engine: TLSEngine
    /// The step of the handshake that another thread performs, if any.
    @exclusivity(unchecked) private var lent: LentWork?
    /// Whether datagrams arrived while work was lent out. Set when the work is taken back, and reset by the
    /// next `handshake()`.
    private var hasReceivedDuringWork = false
    /// `nil` unless a key may still be looked up.
    var keyLookup: KeyLookup?
    let records: RecordQueues
    private var timeoutCount = 0
    @exclusivity(unchecked) private var size: Int
    private let isSizeGiven: Bool
    /// The maximum size of handshake datagrams after timeouts. Datagrams may be lost for any reason, so this
    /// limit does not apply to later messages.
    private var fallback: Int?
    @exclusivity(unchecked) package private(set) var hasBuffers = true
    @exclusivity(unchecked) private var mayHaveMessages = true

    /// The maximum size of handshake datagrams. OpenSSL collects the messages of a flight in a buffer of 4
    /// KiB, and would split a record that crossed the end of this buffer.
    private static let handshakeLimit = 4000
    /// The sizes to try after timeouts: the sizes that every IPv6 path and every IPv4 path can carry.
    private static let fallbacks = [1232, 548]
    /// The smallest datagram size that OpenSSL can use.
    package static let leastSize = 256
    /// How many bytes of datagrams are kept while work is lent out, including an overhead for each datagram.
    private static let waitingLimit = 64 * 1024
    private static let costOfWaiting = 64

    private struct LentWork {
        let work: HandshakeWork
        /// The datagrams that have arrived since.
        var datagrams: [[UInt8]] = []
        var byteCount = 0
    }

    /// Creates a connection. `context` must have been made from the same `settings`, for datagrams.
    ///
    /// - Parameters:
    ///   - size: The maximum size of outgoing datagrams, without UDP and IP headers.
    ///   - isSizeGiven: Whether `size` is fixed, regardless of the path and of timeouts.
    package init(
        context: TLSContext, settings: TLSSettingValues, endpoint: String? = nil, size: Int, isSizeGiven: Bool = false,
        defersWork: Bool = false,
        clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds
    ) throws(TLSError) {
        engine = try TLSEngine(context: context, settings: settings, endpoint: endpoint, defersWork: defersWork, clock: clock)
        guard let records = engine.bio.records else {
            throw TLSError(.internalError, "the TLS context was created for streams", operation: "DTLSEngine")
        }
        records.fragments = HandshakeFragments(with: settings)
        self.records = records
        self.size = max(size, Self.leastSize)
        self.isSizeGiven = isSizeGiven
        if settings.role == .server { keyLookup = KeyLookup(context.domain.proof) }
        setSize()
    }

    /// The result of the handshake, or `nil` before `.complete`.
    package var session: TLSSession? { engine.session }
    package var exporter: KeyExporter { engine.exporter }
    package var isEstablished: Bool { engine.course.isEstablished }
    /// The number of discarded records, from the peer or from other senders.
    package var droppedRecordCount: Int { records.droppedCount }
    /// The number of records that required work, including records that were discarded later.
    package var acceptedRecordCount: Int { records.acceptedCount }

    // MARK: - Receiving

    package func receive(_ datagram: UnsafeRawBufferPointer) {
        if let waitingByteCount = lent?.byteCount {
            let cost = datagram.count + Self.costOfWaiting
            guard waitingByteCount + cost <= Self.waitingLimit else { return records.noteDropped() }
            lent?.byteCount += cost
            lent?.datagrams.append(Array(datagram))
            return
        }
        if !isEstablished, keyLookup != nil, let reception = keyLookup?.receive(datagram, SSL_get_pending_cipher(engine.ssl)) {
            switch reception {
            case .passed: break
            case .held: return
            case .dropped: return records.noteDropped()
            }
        }
        if !isEstablished { records.leastLength = RecordQueues.leastLength(with: SSL_get_pending_cipher(engine.ssl)) }
        records.accept(datagram, into: engine.received, isEstablished: isEstablished)
        mayHaveMessages = true
    }

    package func read(into buffer: PreBuffer) -> TLSEngine.ReadAnswer {
        if case .failed(let error) = engine.phase { return .failed(error) }
        if engine.hasReceivedClose { return .closed }
        guard isEstablished, mayHaveMessages else { return .incomplete }
        allocateBuffers()
        engine.bio.limitsOutput = true
        defer { engine.bio.limitsOutput = false }
        let limit = TLSEngine.recordLimit
        let answer = engine.readRecord(into: buffer, limit: limit, leastRoom: limit)
        switch answer {
        case .bytes:
            records.noteReturned()
            // Calling OpenSSL only to find out that no message is left takes a third of the time of a
            // message.
            mayHaveMessages = records.mayHaveMessages
        case .incomplete:
            mayHaveMessages = false
            records.noteDry()
        case .closed, .truncated, .failed: break
        }
        return answer
    }

    // MARK: - Sending

    package var maximumMessageSize: Int {
        let room = isEstablished ? DTLS_get_data_mtu(engine.ssl) : max(size - Self.largestOverhead, 0)
        return min(room, TLSEngine.recordLimit)
    }

    /// The record header, an explicit nonce, and a tag (RFC 6347, 4.1; RFC 5288).
    private static let largestOverhead = RecordHeader.size + 8 + 16

    package func write(_ message: UnsafeRawBufferPointer) -> TLSEngine.WriteAnswer {
        allocateBuffers()
        return engine.write(message)
    }

    /// Whether there is a datagram to send. False while work is lent out, because the other thread then
    /// writes the datagrams.
    package var hasOutput: Bool { lent == nil && engine.hasOutput }

    /// The datagram to send, if there is exactly one. `dropOutput()` removes it.
    package var onlyOutput: UnsafeRawBufferPointer? { records.output.count == 1 ? engine.output.readableBytes : nil }

    /// Passes the pending datagrams to `body`, which returns how many of them it has handled, counted from
    /// the first.
    package func sendOutput(_ body: ([UnsafeRawBufferPointer]) -> Int) {
        guard hasOutput else { return }
        var datagrams: [UnsafeRawBufferPointer] = []
        var start = 0
        for size in records.output {
            let end = start + size
            datagrams.append(UnsafeRawBufferPointer(rebasing: engine.output.readableBytes[start..<end]))
            start = end
        }
        drop(body(datagrams))
    }

    package func dropOutput() {
        if records.output.isEmpty { return }
        engine.output.reset()
        records.output.removeAll(keepingCapacity: true)
    }

    private func drop(_ count: Int) {
        engine.output.consume(records.output.prefix(count).reduce(0, +))
        records.output.removeFirst(count)
    }

    // MARK: - Datagram size

    /// Sets the datagram size that the path can carry. Ignored if the size was given.
    package func setPathSize(_ size: Int) {
        guard !isSizeGiven, size != self.size else { return }
        self.size = max(size, Self.leastSize)
        setSize()
    }

    private func setSize() {
        // While work is lent out, OpenSSL is in use on another thread. The size is set when the work is taken
        // back.
        guard lent == nil else { return }
        let limit = isEstablished ? size : min(size, fallback ?? Self.handshakeLimit)
        _ = COpenSSL_setMTU(engine.ssl, limit)
    }

    // MARK: - Timeouts

    /// Sets the first retransmission timeout; call it before the handshake. The default is one second (RFC
    /// 6347, section 4.2.4.1). The timeout doubles with each retransmission, up to one minute.
    package func setFirstTimeout(seconds: Double) {
        records.firstTimeout = UInt32(max(1000, min(seconds * 1e6, 60e6)))
        DTLS_set_timer_cb(engine.ssl) { ssl, last in
            let first = EngineCallbacks.facts(of: ssl)?.bio.records?.firstTimeout ?? 1_000_000
            return last == 0 ? first : min(last &* 2, 60_000_000)
        }
    }

    /// The time until `handleTimeout()` must be called, or `nil` if no timer is running.
    package var secondsToTimeout: Double? {
        guard lent == nil, engine.phase.isInHandshake else { return nil }
        let left = COpenSSL_timeLeft(engine.ssl)
        return left < 0 ? nil : Double(left) / 1e6
    }

    /// Retransmits the last flight if its timeout has expired.
    ///
    /// - Returns: The error that makes the handshake fail, if any.
    package func handleTimeout() -> TLSError? {
        guard secondsToTimeout == 0 else { return nil }
        timeoutCount += 1
        if timeoutCount >= 2, !isSizeGiven, let smaller = Self.fallbacks.first(where: { $0 < min(size, fallback ?? size) }) {
            timeoutCount = 0
            fallback = smaller
            setSize()
        }
        let (isDone, errors) = OpenSSLCall.attempt { COpenSSL_handleTimeout(engine.ssl) >= 0 ? true : nil }
        return isDone == true ? nil : giveUp(errors)
    }

    /// OpenSSL gives up after twelve timeouts.
    private func giveUp(_ errors: [OpenSSLError]) -> TLSError {
        let error = TLSError(
            .closedDuringHandshake, "the peer did not respond to any retransmission of the handshake",
            operation: "DTLSv1_handle_timeout", openSSLStack: errors.map(\.text))
        engine.course.fail(error)
        return error
    }

    // MARK: - Memory

    /// Frees OpenSSL's buffers until they are needed again. Call this when the connection is idle.
    package func releaseBuffers() {
        guard hasBuffers, isEstablished, lent == nil else { return }
        if SSL_free_buffers(engine.ssl) == 1 { hasBuffers = false }
    }

    private func allocateBuffers() {
        guard !hasBuffers else { return }
        hasBuffers = SSL_alloc_buffers(engine.ssl) == 1
    }
}

// MARK: - Handshake

extension DTLSEngine {
    package func handshake() -> TLSEngine.HandshakeAnswer {
        guard lent == nil, keyLookup?.isAsked != true else { return .incomplete }
        switch keyLookup?.takeTurn() {
        case .asks(let question): return .awaitingSettings(question)
        case .continues: choose(.key(.found(nil)))
        case .none?, nil: break
        }
        let unread = records.received.count
        var answer = engine.handshake()
        // The first call after lent work only returns the result of that work, which did not include these
        // datagrams.
        if hasReceivedDuringWork, case .incomplete = answer { answer = engine.handshake() }
        hasReceivedDuringWork = false
        if records.received.count < unread { timeoutCount = 0 }
        switch answer {
        case .awaitingWork(let work): lent = LentWork(work: work)
        case .complete:
            records.leastLength = RecordQueues.leastLength(with: SSL_get_current_cipher(engine.ssl))
            records.fragments = nil
            keyLookup = nil
            // No more certificates can arrive. With this limit, OpenSSL allocates at most 17 KB for a later
            // message.
            COpenSSL_setMaximumChainBytesOfConnection(engine.ssl, 1)
            setSize()
        case .incomplete, .awaitingTrust, .awaitingSettings, .failed: break
        }
        return answer
    }

    package var isAwaitingTrust: Bool { lent == nil && engine.isAwaitingTrust }

    /// Resolves `.awaitingTrust`. Call `handshake()` afterwards.
    package func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        engine.decideTrust(accepted, refusal: refusal)
    }

    /// Resolves `.awaitingSettings` for a pre-shared key. Call `handshake()` afterwards.
    package func choose(_ choice: TLSServerChoice) {
        // This releases the copies of the datagrams with the identity.
        guard case .key(let key) = choice, keyLookup?.isAsked == true, let lookup = keyLookup.take() else { return }
        switch key {
        case .found(let key):
            engine.facts.preSharedKeys?.lookedUp = key
            for datagram in lookup.held { datagram.withUnsafeBytes { receive($0) } }
        case .failed(let reason):
            engine.course.fail(
                TLSError(.invalidSettings, "the pre-shared key cannot be looked up: \(reason)", operation: "TLSPreSharedKeys"))
        }
    }

    /// Takes back completed work. Call `handshake()` afterwards.
    package func takeBackWork() {
        let arrived = lent.take()?.datagrams ?? []
        hasReceivedDuringWork = !arrived.isEmpty
        setSize()
        for datagram in arrived { datagram.withUnsafeBytes { receive($0) } }
    }

    /// Takes back work that no thread will perform, and fails the handshake.
    package func refuseWork() {
        takeBackWork()
        engine.refuseWork()
    }

    /// Cancels work before it has started, because the connection has closed.
    package func cancelWork() { lent?.work.cancel() }

    package func abandonHandshake() {
        if lent == nil { engine.abandonHandshake() }
    }

    package func shutdown() {
        guard lent == nil else { return }
        allocateBuffers()
        engine.shutdown()
    }
}

// MARK: - Cookies

extension DTLSEngine {
    /// Starts a server's handshake with a ClientHello that has a valid cookie (`DTLSCookies`). The server's
    /// records are numbered after the HelloVerifyRequest that the client received.
    ///
    /// - Returns: Whether OpenSSL accepted the ClientHello.
    package func listen(_ hello: UnsafeRawBufferPointer) -> Bool {
        receive(hello)
        if let header = RecordHeader(hello) { records.beginNumbering(at: header.sequence) }
        guard let address = BIO_ADDR_new() else { return false }
        defer { BIO_ADDR_free(address) }
        let (isTaken, _) = OpenSSLCall.attempt { DTLSv1_listen(engine.ssl, address) == 1 ? true : nil }
        engine.course.listened()
        return isTaken == true
    }
}
