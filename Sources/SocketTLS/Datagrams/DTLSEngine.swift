// A connection of DTLS 1.2 without a socket: a `TLSEngine` over records instead of bytes. The handshake, the
// judge, the facts and the ends are that engine's. Rules for the owner, beside its rules 1, 4, 6 and 8:
//  1. Pass each datagram of the peer to `receive(_:)`, and of no other sender. Then call `handshake()` or,
//     once it is complete, `read(into:)` until it returns `.incomplete`.
//  2. After EVERY call send what `sendOutput(_:)` has. The rest may be lost: the handshake sends its
//     messages again, and data was never promised to arrive.
//  3. While `secondsToTimeout` is not nil call `handleTimeout()` once they are over, also while a question is
//     open: the peer sends its messages again, and gives up without an answer.
//  4. While work is lent (`.awaitingWork`) call nothing but `receive(_:)`. It goes on with `takeBack(_:)`.
//  5. `write(_:)` takes one message of 1 to `maximumMessageSize` bytes. One `read(into:)` returns one
//     message.
//
// Rules inside:
//  6. The datagrams of a handshake are at most as large as the path carries, as far as that is known. After
//     two answers that did not come they become smaller (RFC 6347, section 4.1.1.1), unless the size was
//     given.
//  7. A record that is not of DTLS, not authentic, or a repetition counts in `droppedRecordCount`, and for
//     nothing else (RFC 6347, section 4.1.2.7).
//  8. OpenSSL keeps two buffers of 17 KB for a connection: `releaseBuffers()` frees them until the next call.

internal import COpenSSL
package import SocketBuffers

/// One connection of DTLS. Not Sendable: its owner confines it.
package final class DTLSEngine {
    @exclusivity(unchecked) private var engine: TLSEngine
    /// Datagrams that have come while work was lent.
    @exclusivity(unchecked) private var waiting: [[UInt8]]?
    @exclusivity(unchecked) private var waitingByteCount = 0
    /// Set when work is taken back, until the next call of `handshake()`.
    private var hasReceivedDuringWork = false
    let records: RecordQueues
    private var timeoutCount = 0
    /// The most bytes of a datagram, without the headers of UDP and IP.
    @exclusivity(unchecked) private var size: Int
    private let isSizeGiven: Bool
    /// The most bytes of a datagram of the handshake, after answers that did not come. They may be lost for
    /// any reason, so this says nothing about later messages.
    private var fallback: Int?
    /// OpenSSL has its buffers.
    @exclusivity(unchecked) package private(set) var hasBuffers = true
    /// OpenSSL may have messages.
    @exclusivity(unchecked) private var mayHaveMessages = true

    /// OpenSSL puts the messages of one flight together in a buffer of 4 KiB, and would cut a record in two
    /// at its end.
    private static let handshakeLimit = 4000
    /// The sizes that are tried after answers that did not come: what every path of IPv6 carries, and of
    /// IPv4.
    private static let fallbacks = [1232, 548]
    /// OpenSSL needs so many.
    package static let leastSize = 256
    /// The most bytes that wait while work is lent, with some for each datagram.
    private static let waitingLimit = 64 * 1024
    private static let costOfWaiting = 64

    /// A new connection. `context` must be made from the same `settings`, over datagrams.
    ///
    /// - Parameters:
    ///   - size: The most bytes of a datagram that leaves, without the headers of UDP and IP.
    ///   - isSizeGiven: It stays so, whatever comes or does not come.
    package init(
        context: TLSContext, settings: TLSSettingValues, endpoint: String? = nil, size: Int, isSizeGiven: Bool = false,
        defersWork: Bool = false, clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds
    ) throws(TLSError) {
        engine = try TLSEngine(context: context, settings: settings, endpoint: endpoint, defersWork: defersWork, clock: clock)
        guard let records = engine.bio.records else {
            throw TLSError(.internalError, "The context is not for datagrams.", operation: "DTLSEngine")
        }
        records.fragments = HandshakeFragments(with: settings)
        self.records = records
        self.size = max(size, Self.leastSize)
        self.isSizeGiven = isSizeGiven
        setSize()
    }

    /// The result of the handshake; nil before `.complete`.
    package var session: TLSSession? { engine.session }
    package var exporter: KeyExporter { engine.exporter }
    package var isEstablished: Bool { engine.course.isEstablished }
    /// Records of the peer, or of others, that counted for nothing.
    package var droppedRecordCount: Int { records.droppedCount }
    /// Records that cost work, also when they count for nothing in the end.
    package var acceptedRecordCount: Int { records.acceptedCount }

    // MARK: - Receiving

    /// A datagram of the peer has arrived.
    package func receive(_ datagram: UnsafeRawBufferPointer) {
        if waiting != nil {
            let cost = datagram.count + Self.costOfWaiting
            guard waitingByteCount + cost <= Self.waitingLimit else { return records.noteDropped() }
            waitingByteCount += cost
            waiting?.append(Array(datagram))
            return
        }
        if !isEstablished { records.leastLength = RecordQueues.leastLength(with: SSL_get_pending_cipher(engine.ssl)) }
        records.accept(datagram, into: engine.received, isEstablished: isEstablished)
        mayHaveMessages = true
    }

    /// Appends the next message of the peer to `buffer`.
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
            // To ask OpenSSL for the end of its messages costs a third of a message.
            mayHaveMessages = records.mayHaveMessages
        case .incomplete:
            mayHaveMessages = false
            records.noteDry()
        case .closed, .truncated, .failed: break
        }
        return answer
    }

    // MARK: - Sending

    /// The most bytes of a message.
    package var maximumMessageSize: Int {
        let room = isEstablished ? DTLS_get_data_mtu(engine.ssl) : max(size - Self.largestOverhead, 0)
        return min(room, TLSEngine.recordLimit)
    }

    /// The header of a record, an explicit nonce, and a tag (RFC 6347, 4.1; RFC 5288).
    private static let largestOverhead = RecordHeader.size + 8 + 16

    /// Encrypts one message.
    package func write(_ message: UnsafeRawBufferPointer) -> TLSEngine.WriteAnswer {
        allocateBuffers()
        return engine.write(message)
    }

    package var hasOutput: Bool { engine.hasOutput }

    /// The datagram that is to be sent, when there is one alone. `dropOutput()` removes it.
    package var onlyOutput: UnsafeRawBufferPointer? { records.output.count == 1 ? engine.output.readableBytes : nil }

    /// Passes the datagrams that are to be sent to `body`, which returns how many of the first it has dealt
    /// with.
    package func sendOutput(_ body: ([UnsafeRawBufferPointer]) -> Int) {
        guard engine.hasOutput else { return }
        var datagrams: [UnsafeRawBufferPointer] = []
        var start = 0
        for size in records.output {
            let end = start + size
            datagrams.append(UnsafeRawBufferPointer(rebasing: engine.output.readableBytes[start..<end]))
            start = end
        }
        drop(body(datagrams))
    }

    /// Gives up what is to be sent.
    package func dropOutput() {
        if records.output.isEmpty { return }
        engine.output.reset()
        records.output.removeAll(keepingCapacity: true)
    }

    private func drop(_ count: Int) {
        engine.output.consume(records.output.prefix(count).reduce(0, +))
        records.output.removeFirst(count)
    }

    // MARK: - The size of datagrams

    /// The path carries this many bytes of a datagram. It counts unless the size was given.
    package func setPathSize(_ size: Int) {
        guard !isSizeGiven, size != self.size else { return }
        self.size = max(size, Self.leastSize)
        setSize()
    }

    private func setSize() {
        // While work is lent OpenSSL is in use elsewhere: it learns the size when that comes back.
        guard waiting == nil else { return }
        let limit = isEstablished ? size : min(size, fallback ?? Self.handshakeLimit)
        _ = COpenSSL_setMTU(engine.ssl, limit)
    }

    // MARK: - Time

    /// When the first messages are sent again; a second (RFC 6347, section 4.2.4.1) unless this is called,
    /// before the handshake. Each time after that it takes twice as long, up to a minute.
    package func setFirstTimeout(seconds: Double) {
        records.firstTimeout = UInt32(max(1000, min(seconds * 1e6, 60e6)))
        DTLS_set_timer_cb(engine.ssl) { ssl, last in
            let first = EngineCallbacks.facts(of: ssl)?.bio.records?.firstTimeout ?? 1_000_000
            return last == 0 ? first : min(last &* 2, 60_000_000)
        }
    }

    /// The time until `handleTimeout()` is to be called; nil: it is not needed.
    package var secondsToTimeout: Double? {
        guard waiting == nil, engine.phase.isInHandshake else { return nil }
        let left = COpenSSL_timeLeft(engine.ssl)
        return left < 0 ? nil : Double(left) / 1e6
    }

    /// Sends the last messages again, if it is time.
    ///
    /// - Returns: An error that ends the handshake.
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

    /// OpenSSL gives up after twelve times.
    private func giveUp(_ errors: [OpenSSLError]) -> TLSError {
        let error = TLSError(
            .closedDuringHandshake, "The peer has not answered, however often it was asked.",
            operation: "DTLSv1_handle_timeout", openSSLStack: errors.map(\.text))
        engine.course.fail(error)
        return error
    }

    // MARK: - Memory

    /// Frees the buffers of OpenSSL until they are needed again. Call it when nothing is to be done.
    package func releaseBuffers() {
        guard hasBuffers, isEstablished, waiting == nil else { return }
        if SSL_free_buffers(engine.ssl) == 1 { hasBuffers = false }
    }

    private func allocateBuffers() {
        guard !hasBuffers else { return }
        hasBuffers = SSL_alloc_buffers(engine.ssl) == 1
    }
}

// MARK: - The handshake

extension DTLSEngine {
    /// Continues the handshake as far as it can.
    package func handshake() -> TLSEngine.HandshakeAnswer {
        guard waiting == nil else { return .incomplete }
        let unread = records.received.count
        var answer = engine.handshake()
        // The first call after lent work only returns the result of that work, which did not have these
        // datagrams.
        if hasReceivedDuringWork, case .incomplete = answer { answer = engine.handshake() }
        hasReceivedDuringWork = false
        if records.received.count < unread { timeoutCount = 0 }
        switch answer {
        case .awaitingWork: waiting = []
        case .complete:
            records.leastLength = RecordQueues.leastLength(with: SSL_get_current_cipher(engine.ssl))
            records.fragments = nil
            // No certificates follow: for a later message OpenSSL allocates 17 KB at most.
            COpenSSL_setMaximumChainBytesOfConnection(engine.ssl, 1)
            setSize()
        case .incomplete, .awaitingTrust, .awaitingSettings, .failed: break
        }
        return answer
    }

    package var isAwaitingTrust: Bool { waiting == nil && engine.isAwaitingTrust }

    /// Decides the question of `.awaitingTrust`; call `handshake()` after it.
    package func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        engine.decideTrust(accepted, refusal: refusal)
    }

    /// The work is done: call `handshake()` after it.
    package func takeBack(_ work: HandshakeWork) {
        engine = work.finish()
        let arrived = waiting ?? []
        (waiting, waitingByteCount) = (nil, 0)
        hasReceivedDuringWork = !arrived.isEmpty
        setSize()
        for datagram in arrived { datagram.withUnsafeBytes { receive($0) } }
    }

    /// No thread does the work: the handshake has failed.
    package func refuse(_ work: HandshakeWork) {
        takeBack(work)
        engine.refuseWork()
    }

    /// Gives up a handshake that takes too long.
    package func abandonHandshake() {
        if waiting == nil { engine.abandonHandshake() }
    }

    /// Says close_notify, if it is legal now.
    package func shutdown() {
        guard waiting == nil else { return }
        allocateBuffers()
        engine.shutdown()
    }
}

// MARK: - Cookies

extension DTLSEngine {
    /// Begins a server's handshake with a ClientHello whose cookie is right (`DTLSCookies`): the answers are
    /// numbered behind the HelloVerifyRequest that its sender has got.
    ///
    /// - Returns: False when OpenSSL does not take it.
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
