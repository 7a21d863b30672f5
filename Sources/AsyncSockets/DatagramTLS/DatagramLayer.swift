internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// DTLS between a UDP socket and its peer: the engine, and its end. Confined to the turn.
///
/// The input gives it what arrives, and takes messages from it; the output has it encrypt. Neither calls the
/// engine.
final class DatagramLayer {
    let engine: DTLSEngine
    private let plaintext = PreBuffer()
    /// Why the connection has ended; nil: it goes on.
    @exclusivity(unchecked) private(set) var end: AsyncSocketError?
    /// How the last datagram has arrived. In a handshake it may have had messages already.
    @exclusivity(unchecked) private(set) var lastArrival: (sender: InternetAddress, arrival: DatagramArrival)?
    private let channel: DatagramChannel
    private let isSizeGiven: Bool
    /// Of the buffers of OpenSSL.
    @exclusivity(unchecked) private var bufferRest: BufferRest
    private let counts: DatagramCounts

    init(
        _ engine: DTLSEngine, over channel: DatagramChannel, isSizeGiven: Bool, _ counts: DatagramCounts,
        keeping shared: KeptBuffers = .shared
    ) {
        bufferRest = BufferRest(shared)
        self.engine = engine
        self.counts = counts
        self.channel = channel
        self.isSizeGiven = isSizeGiven
    }

    deinit { bufferRest.end() }

    static var leastDatagramSize: Int { DTLSEngine.leastSize }

    /// The number of authentic records.
    var acceptedRecordCount: Int { engine.acceptedRecordCount }

    /// It goes on, and has nothing of its own to send.
    var isQuiet: Bool { end == nil && !engine.hasOutput }

    // MARK: - Receiving

    /// A datagram of the peer. Its messages follow with `next()`.
    func receive(_ datagram: ReceivedDatagram) {
        lastArrival = (datagram.sender, datagram.arrival)
        engine.receive(datagram.bytes)
    }

    /// The next message of the peer, if there is one.
    func next() -> Data? {
        guard end == nil, engine.isEstablished else { return nil }
        switch engine.read(into: plaintext) {
        case .bytes(let count):
            defer { plaintext.reset() }
            guard let start = plaintext.readableBytes.baseAddress else { return nil }
            return Data(bytes: start, count: count)
        case .incomplete: return nil
        case .closed:
            // The answer to close_notify is close_notify (RFC 5246, section 7.2.1).
            engine.shutdown()
            end = .closedByPeer
        case .truncated(let error), .failed(let error): end = AsyncSocketError(error, operation: "receive")
        }
        return nil
    }

    // MARK: - Sending

    /// The error of a message that DTLS cannot carry, or cannot carry any more.
    func refusal(of count: Int) -> AsyncSocketError? {
        if let end { return end }
        if count == 0 {
            return .badParameter("send", "DTLS carries no datagram of zero bytes: OpenSSL does not send empty records")
        }
        let limit = engine.maximumMessageSize
        return count > limit ? .tooLarge(count, limit) : nil
    }

    /// Encrypts a message. False when it cannot: the connection has failed.
    func seal(_ message: UnsafeRawBufferPointer) -> Bool {
        switch engine.write(message) {
        case .accepted: return true
        case .incomplete: return false
        case .failed(let error):
            end = end ?? AsyncSocketError(error, operation: "send")
            return false
        }
    }

    /// Sends what the engine has of its own: messages of the handshake, and alerts. False while some of that
    /// waits for room.
    @discardableResult
    func flush() -> Bool {
        guard engine.hasOutput else { return true }
        guard channel.mayHaveRoom else { return false }
        _ = send()
        return !engine.hasOutput
    }

    /// Sends what the engine has.
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

    /// Nothing is to be done for now: frees memory, unless it may be needed again soon.
    func rest() {
        guard engine.hasBuffers, !engine.hasOutput else { return }
        if !bufferRest.keep() { engine.releaseBuffers() }
    }

    /// When it looks whether memory is to be freed.
    var restDeadline: Deadline { bufferRest.deadline }

    func expire(at now: Deadline) {
        if bufferRest.expire(at: now) { engine.releaseBuffers() }
    }

    /// Gives up what the kernel has no room for: it is encrypted again.
    func dropOutput() {
        engine.dropOutput()
    }

    /// Learns the size of datagrams from the kernel, which knows better than before.
    func measurePath() {
        guard !isSizeGiven, let size = channel.pathSize else { return }
        engine.setPathSize(size)
        noteLimit()
    }

    /// Tells callers how much a datagram may have.
    func noteLimit() {
        guard engine.isEstablished else { return }
        counts.secureSendLimit.store(engine.maximumMessageSize, ordering: .relaxed)
    }
}

extension DatagramLayer: UpgradeTransport {
    func decideTrust(_ accepted: Bool, refusal: TrustRefusal) { engine.decideTrust(accepted, refusal: refusal) }
    func takeBack(_ work: HandshakeWork) { engine.takeBack(work) }

    func refuse(_ work: HandshakeWork) {
        engine.refuse(work)
        flush()
    }
}

extension AsyncSocketError {
    fileprivate static func tooLarge(_ count: Int, _ limit: Int) -> AsyncSocketError {
        AsyncSocketError(
            datagram: SystemError(
                "send", errno: SystemError.tooLarge,
                detail:
                    "a datagram of DTLS has at most \(limit) bytes on this path, and this one has \(count): see maximumSendSize"),
            "send")
    }
}
