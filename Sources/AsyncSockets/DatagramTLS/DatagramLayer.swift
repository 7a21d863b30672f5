internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// DTLS between a UDP socket and its peer: the engine, and the state of its connection. Confined to the turn.
///
/// `DatagramInput` passes received datagrams to the layer and takes messages from it. `DatagramOutput` uses
/// the layer to encrypt. Neither calls the engine directly.
final class DatagramLayer {
    let engine: DTLSEngine
    private let plaintext = PreBuffer()
    /// Why the connection has closed or failed, or `nil` while it is usable.
    @exclusivity(unchecked) private(set) var end: AsyncSocketError?
    /// The arrival of the last datagram. During a handshake, the datagram may already contain messages.
    @exclusivity(unchecked) private(set) var lastArrival: (sender: InternetAddress, arrival: DatagramArrival)?
    private let channel: DatagramChannel
    private let peer: InternetAddress
    private let isSizeGiven: Bool
    /// When to free OpenSSL's buffers.
    @exclusivity(unchecked) private var bufferRest: BufferRest
    private let counts: DatagramCounts

    init(
        _ engine: DTLSEngine, over channel: DatagramChannel, with peer: InternetAddress, isSizeGiven: Bool,
        _ counts: DatagramCounts, keeping shared: KeptBuffers = .shared
    ) {
        bufferRest = BufferRest(shared)
        self.engine = engine
        self.counts = counts
        self.channel = channel
        self.peer = peer
        self.isSizeGiven = isSizeGiven
    }

    deinit { bufferRest.end() }

    static var leastDatagramSize: Int { DTLSEngine.leastSize }

    /// The number of records passed to OpenSSL. Each costs time, even if it is not authentic.
    var acceptedRecordCount: Int { engine.acceptedRecordCount }

    /// Whether the connection is usable and the engine has no datagrams to send.
    var isQuiet: Bool { end == nil && !engine.hasOutput }

    // MARK: - Receiving

    /// Receives a datagram from the peer. Its messages are returned by `next()`.
    func receive(_ datagram: ReceivedDatagram) {
        lastArrival = (datagram.sender, datagram.arrival)
        engine.receive(datagram.bytes)
    }

    /// Returns the peer's next message, or `nil` if no complete message is available.
    func next() -> Data? {
        guard end == nil, engine.isEstablished else { return nil }
        switch engine.read(into: plaintext) {
        case .bytes(let count):
            defer { plaintext.reset() }
            guard let start = plaintext.readableBytes.baseAddress else { return nil }
            return Data(bytes: start, count: count)
        case .incomplete: return nil
        case .closed:
            // The reply to close_notify is close_notify (RFC 5246, section 7.2.1).
            engine.shutdown()
            end = .closedByPeer
        case .truncated(let error), .failed(let error): end = AsyncSocketError(error, operation: .receive)
        }
        return nil
    }

    // MARK: - Sending

    /// Returns an error if DTLS cannot carry a message of this size, or the connection is no longer usable.
    func refusal(of count: Int) -> AsyncSocketError? {
        if let end { return end }
        if count == 0 {
            return .badParameter(.send, "DTLS cannot carry an empty datagram: OpenSSL does not send empty records")
        }
        let limit = engine.maximumMessageSize
        return count > limit ? .tooLarge(count, limit) : nil
    }

    /// Encrypts a message. Returns false if the connection has failed.
    func seal(_ message: UnsafeRawBufferPointer) -> Bool {
        switch engine.write(message) {
        case .accepted: return true
        case .incomplete: return false
        case .failed(let error):
            end = end ?? AsyncSocketError(error, operation: .send)
            return false
        }
    }

    /// Sends the engine's own datagrams: handshake messages and alerts. Returns false if the kernel has no
    /// room for some of them.
    @discardableResult
    func flush() -> Bool {
        guard engine.hasOutput else { return true }
        guard channel.mayHaveRoom else { return false }
        _ = send()
        return !engine.hasOutput
    }

    func send() -> DatagramSendReport {
        var report = DatagramSendReport()
        if let only = engine.onlyOutput {
            report = channel.send(OutgoingDatagram(only, to: nil))
            if report.handledCount == 1 { engine.dropOutput() }
        } else {
            report = sendSeveral()
        }
        if !report.failures.isEmpty, report.failures.contains(where: { $0.error.isTooLarge }) { measurePath() }
        return report
    }

    private func sendSeveral() -> DatagramSendReport {
        var report = DatagramSendReport()
        engine.sendOutput { datagrams in
            let outgoing = datagrams.map { OutgoingDatagram($0, to: nil) }
            report = outgoing.withUnsafeBufferPointer { channel.send($0) }
            return report.handledCount
        }
        return report
    }

    /// Called when the layer is idle. Frees memory, unless it may be needed again soon.
    func rest() {
        guard engine.hasBuffers, !engine.hasOutput else { return }
        if !bufferRest.keep() { engine.releaseBuffers() }
    }

    /// When to check again whether memory can be freed.
    var restDeadline: Deadline { bufferRest.deadline }

    func expire(at now: Deadline) {
        if bufferRest.expire(at: now) { engine.releaseBuffers() }
    }

    /// Discards encrypted datagrams that the kernel had no room for. Their messages are encrypted again
    /// later.
    func dropOutput() {
        engine.dropOutput()
    }

    /// Updates the datagram size from the kernel's current knowledge of the path.
    func measurePath() {
        guard !isSizeGiven, let size = channel.pathSize else { return }
        engine.setPathSize(size)
        noteLimit()
    }

    func noteLimit() {
        guard engine.isEstablished else { return }
        counts.secureSendLimit.store(engine.maximumMessageSize, ordering: .relaxed)
    }
}

extension DatagramLayer: HandshakeTransport {
    static var roundsPerTurn: Int { 64 }
    /// A datagram may contain thousands of records, and each record costs time, even if it is not authentic.
    static var recordsPerTurn: Int { 256 }

    var result: (TLSSession?, KeyExporter)? { (engine.session, engine.exporter) }

    func advance() -> TLSEngine.HandshakeAnswer {
        let answer = engine.handshake()
        flush()
        return answer
    }

    func receiveMessages() -> HandshakeInput {
        guard let received = channel.next() else { return .nothing }
        if received.sender == peer { receive(received) }
        return .received
    }

    func decideTrust(_ accepted: Bool, refusal: TrustRefusal) { engine.decideTrust(accepted, refusal: refusal) }

    func choose(_ choice: TLSServerChoice) { engine.choose(choice) }

    func takeBackWork() { engine.takeBackWork() }

    func refuseWork() { engine.refuseWork() }
}

extension AsyncSocketError {
    fileprivate static func tooLarge(_ count: Int, _ limit: Int) -> AsyncSocketError {
        AsyncSocketError(
            datagram: SystemError(
                "send", errno: SystemError.tooLarge,
                detail:
                    "the datagram has \(count) bytes, but DTLS allows at most \(limit) bytes on this path (maximumSendSize)"),
            .send)
    }
}
