internal import SocketBuffers
internal import SocketTLS

/// The handshake, and the decisions it needs from the owner.
extension ByteChannel: HandshakeTransport {
    enum Layer {
        case plain
        case tls(TLSEngine)
        /// Another thread is using the engine.
        case lent(HandshakeWork)
    }

    // The rounds limit the work. Forged records close a stream.
    var acceptedRecordCount: Int { 0 }
    static var recordsPerTurn: Int { .max }

    var result: (TLSSession?, KeyExporter)? {
        if case .tls(let engine) = layer { (engine.session, engine.exporter) } else { nil }
    }

    func advance() -> TLSEngine.HandshakeAnswer {
        guard case .tls(let engine) = layer else { return .incomplete }
        let answer = engine.handshake()
        send(engine.output)
        // No bytes move until `takeBackWork()`.
        if case .awaitingWork(let work) = answer { layer = .lent(work) }
        return answer
    }

    func receiveMessages() -> HandshakeInput {
        guard case .tls(let engine) = layer else { return .nothing }
        if receiveCiphertext(for: engine) { return .received }
        return failure.map { .failed($0) } ?? .nothing
    }

    func decideTrust(_ accepted: Bool, refusal: TrustRefusal = .rejected) {
        if case .tls(let engine) = layer { engine.decideTrust(accepted, refusal: refusal) }
    }

    func choose(_ choice: TLSServerChoice) {
        if case .tls(let engine) = layer { engine.choose(choice) }
    }

    // MARK: - The engine

    /// Switches to TLS. Bytes received early are treated as ciphertext, or the handshake fails. They are
    /// never delivered as plaintext.
    func beginTLS(_ engine: TLSEngine, feeding early: PreBuffer) {
        early.moveAll(to: engine.received)
        layer = .tls(engine)
    }

    func takeBackWork() {
        if case .lent(let work) = layer { layer = .tls(work.finish()) }
    }

    /// Fails the handshake because no thread can run the work.
    func refuseWork() {
        takeBackWork()
        if case .tls(let engine) = layer { engine.refuseWork() }
    }

    // MARK: - Before the handshake

    /// Returns an error if bytes have arrived before the handshake.
    func checkForEarlyBytes(in buffer: PreBuffer) -> AsyncSocketError? {
        // Read from the kernel regardless of the last event: injected bytes may have arrived without an
        // event, and an alert may be only partially received.
        var count: Int
        repeat {
            count = buffer.count
            expectBytes()
            _ = fill(buffer, limit: ReadHalf.readAheadLimit)
        } while count < buffer.count && buffer.count < AsyncSocketError.alertLength
        return buffer.isEmpty ? nil : .early(buffer.readableBytes)
    }

    // MARK: - During and after the handshake

    /// Returns an error if the client disconnected before the trust decision. Receives nothing before the
    /// client's FIN, so that a client cannot use more memory by sending data early.
    func checkForDisconnect() -> AsyncSocketError? {
        guard hasReadHangup, case .tls(let engine) = layer else { return nil }
        while receiveCiphertext(for: engine) {}
        return engine.checkForDisconnect().map { AsyncSocketError($0, operation: .startTLS) }
    }

    /// Abandons a handshake that takes too long. The peer is notified when the channel closes.
    func abandonHandshake() {
        if case .tls(let engine) = layer { engine.abandonHandshake() }
    }

    /// Sends the engine's remaining output while no data is moving.
    func flush() {
        if case .tls(let engine) = layer { send(engine.output) }
    }

    /// Whether session tickets are being held back so that they can be sent together with the next data.
    /// Always `false` for a client.
    var hasTickets: Bool { if case .tls(let engine) = layer { engine.hasTickets } else { false } }

    func sendTickets() {
        guard case .tls(let engine) = layer, engine.hasTickets else { return }
        engine.sendTickets()
        send(engine.output)
    }
}

extension ByteChannel {
    func requestClientCertificate(
        _ request: ClientCertificateRequest
    ) throws(AsyncSocketError) -> TLSEngine.ClientTimeouts {
        guard case .tls(let engine) = layer else { throw .closed }
        guard request.hasDecider || !engine.asksAboutClients else {
            throw .badConfiguration(
                .requestClientCertificate,
                "the settings require a trust decision, but no callback is set: pass trust or set a delegate")
        }
        defer { send(engine.output) }
        do throws(TLSError) {
            return try engine.requestClientCertificate(isRequired: request.isRequired, asks: request.waiterDecidesTrust)
        } catch {
            throw AsyncSocketError(error, operation: .requestClientCertificate)
        }
    }

    /// Whether the client has responded to a request, and `handshake()` must be called.
    var isAuthenticatingClient: Bool {
        if case .tls(let engine) = layer { engine.isAuthenticatingClient } else { false }
    }

    /// Sends a certificate request that was delayed until a partially received message was complete.
    func sendDelayedRequest() {
        guard case .tls(let engine) = layer else { return }
        engine.sendDelayedRequest()
        send(engine.output)
    }
}

extension AsyncSocketError {
    /// Returns the same error, reported for the enclosing operation.
    func during(_ operation: AsyncSocketError.Operation) -> AsyncSocketError {
        var error = self
        error.operation = operation
        return error
    }

    /// The length of an alert as a plaintext record (RFC 8446, section 5.1).
    fileprivate static let alertLength = 7

    /// Creates the error for bytes received before the handshake. An alert is the server's TLS response; all
    /// other bytes are plaintext.
    fileprivate static func early(_ bytes: UnsafeRawBufferPointer) -> AsyncSocketError {
        if bytes.count >= alertLength, bytes.prefix(2).elementsEqual([21, 3]), bytes[3...5].elementsEqual([0, 2, 2]) {
            return AsyncSocketError(
                TLSError(TLSAlert(rawValue: bytes[6]), during: "the TLS handshake", operation: "startTLS"), operation: .startTLS)
        }
        return earlyPlaintext(bytes.count)
    }

    private static func earlyPlaintext(_ count: Int) -> AsyncSocketError {
        AsyncSocketError(
            .earlyPlaintext, fault: .peer, operation: .startTLS,
            message:
                "\(count) bytes of plaintext arrived before the handshake: an injection attack, or a message not read before startTLS"
        )
    }
}
