// Rules of the channel:
//  1. Only the channel uses the connection's descriptor and its engine. Only the channel checks whether the
//     connection is secure: every method has the same meaning with and without TLS.
//  2. The descriptor is considered ready until a call shows otherwise, because events are edge-triggered and
//     each event is reported once.
//  3. The engine's output is sent after every call to the engine, even after a failed call, because it may
//     contain an alert.
//  4. The end of input and the failure of output are final. With TLS, the engine decides what an end of file
//     means.
//  5. Each method is limited to a few rounds. `.more` requests another turn, so that other connections on
//     the loop can run.

internal import Glibc
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The channel for a connection's bytes: the descriptor, its known readiness, and TLS once it has started.
///
/// Confined to the turn of the connection that owns it.
final class ByteChannel {
    /// Also used by the connection's record, through which callers set options.
    let descriptor: SocketDescriptor
    @exclusivity(unchecked) var layer = Layer.plain
    @exclusivity(unchecked) private var input = InputReadiness.ready
    @exclusivity(unchecked) private var output = OutputReadiness.ready
    @exclusivity(unchecked) private var pace: ChannelPace?
    /// Whether a short recv means that the kernel's buffer is empty, so that later bytes trigger a new event
    /// (epoll(7)).
    ///
    /// This is no longer true once the FIN has been signaled, because it is signaled only once and the
    /// zero-length read is still outstanding. It is also not true where Linux stops a recv early: before
    /// urgent data (tcp(7)), and on a Unix-domain socket after bytes that carried descriptors (unix(7)).
    @exclusivity(unchecked) private var trustsShortReads: Bool
    /// Whether the kernel has reported that the connection is broken in both directions.
    @exclusivity(unchecked) private var hasHangup = false
    /// Whether the kernel has reported the peer's FIN. Unread bytes may still precede it.
    @exclusivity(unchecked) private(set) var hasReadHangup = false
    /// Whether the engine accepts no data because a message from the peer is incomplete. Reading may
    /// complete it.
    @exclusivity(unchecked) private(set) var isHeldUp = false

    /// The maximum number of receive or send rounds in one turn, so that other connections on the loop can
    /// run.
    static let roundsPerTurn = 4
    /// The maximum number of bytes per call to the kernel, which copies that many in about fifty
    /// microseconds.
    private static let sendLimit = 256 * 1024
    /// The maximum number of bytes of a file per call. sendfile(2) moves no more than this at a time.
    private static let fileLimit = 64 * 1024

    init(_ descriptor: SocketDescriptor, of family: SocketEndpoint.Family?) {
        self.descriptor = descriptor
        trustsShortReads = family != .unix
    }

    func note(_ events: LoopEvents) {
        if events.contains(.readable), case .quiet = input { input = .ready }
        if events.contains(.writable), case .full = output { output = .ready }
        guard events.isUnusual else { return }
        if events.contains(.readHangup) || events.contains(.urgent) { trustsShortReads = false }
        if events.contains(.readHangup) { hasReadHangup = true }
        if events.contains(.hangup) { hasHangup = true }
    }

    /// Makes the next read check the kernel for bytes, regardless of the last event and the limit on the
    /// rate.
    func expectBytes() {
        pace?.mayReceiveOnce = true
        if input.mayBecomeReady { input = .ready }
    }

    /// When to try again after the kernel was out of memory for sending, or a rate reached its limit.
    var retry: Deadline? { .earlier(input.retry, output.retry) }

    func retryIfDue(at now: Deadline) {
        if let retry = input.retry, retry <= now { input = .ready }
        if let retry = output.retry, retry <= now { output = .ready }
    }

    /// Limits the rate of the bytes that the kernel passes, with TLS the encrypted ones.
    func setRates(read: ByteRate?, write: ByteRate?) {
        guard pace != nil || read != nil || write != nil else { return }
        pace = ChannelPace(read: read, write: write, after: pace)
        if input.isPaused { input = .ready }
        if output.retry != nil { output = .ready }
    }

    /// Returns how many bytes may be sent now, at most `limit`. At zero, the output pauses.
    private func sendable(_ limit: Int) -> Int { min(limit, pace?.maySend(&output) ?? limit) }

    /// Returns the error that a hangup announced.
    func takeError() -> AsyncSocketError? {
        descriptor.takeError(of: "send").map { AsyncSocketError($0, operation: .write) }
    }

    // MARK: - End of input and output

    /// Whether the end of input, a failure or a hangup has been detected.
    var hasNews: Bool { input.isEnded || output.isFailed || hasHangup }

    /// Reports any end of stream, write failure or hangup detected so far. Repeated calls have no further
    /// effect.
    func report(to ending: inout StreamEnding) {
        switch (input, layer) {
        case (.endOfFile, .plain), (.closed, _): ending.note(.readEnded(.orderly))
        case (.truncated(let error), _): ending.note(.readEnded(.truncated(error)))
        case (.failed(let error), _): ending.note(.readEnded(.failed(error)))
        case (.endOfFile, .tls), (.endOfFile, .lent), (.judged, _), (.quiet, _), (.ready, _), (.paused, _): break
        }
        if case .failed(let failure) = output { ending.note(.writeFailed(failure)) }
        if hasHangup { ending.note(.hangup) }
    }

    /// The reason why a handshake or a proxy negotiation cannot continue.
    var failure: AsyncSocketError? { input.error ?? output.error }

    /// Whether the connection has failed, as opposed to having been closed by the peer.
    var hasFailed: Bool { input.isFailed || output.isFailed }

    // MARK: - Receiving

    enum FillAnswer {
        case bytes
        /// No bytes until the next event, or ever.
        case nothing
        /// Much ciphertext was received, but no data for the reader. Continue in another turn.
        case more
    }

    /// Whether the limit on the rate keeps bytes in the kernel.
    var isInputPaused: Bool { input.isPaused }

    /// Whether the kernel may have bytes.
    var mayReceive: Bool { if case .ready = input { true } else { input.isPaused } }

    /// Whether `fill` may return something other than `.nothing`.
    var mayHaveBytes: Bool {
        if case .ready = input { return true }
        if case .tls(let engine) = layer { return engine.mayHaveAnswer }
        return false
    }

    /// Appends at most `limit` bytes of data to `buffer`.
    func fill(_ buffer: PreBuffer, limit: Int) -> FillAnswer {
        switch layer {
        case .plain: receive(into: buffer, limit: limit)
        case .tls(let engine): decrypt(with: engine, into: buffer, limit: limit)
        case .lent: .nothing
        }
    }

    private func receive(into buffer: PreBuffer, limit: Int) -> FillAnswer {
        guard case .ready = input else { return .nothing }
        let limit = min(limit, pace?.mayReceive(&input) ?? limit)
        guard limit > 0 else { return .nothing }
        let room = buffer.writableBytes(minimum: min(limit, BufferPool.blockSize / 4))
        let size = min(room.count, limit)
        switch descriptor.receive(into: UnsafeMutableRawBufferPointer(start: room.baseAddress, count: size)) {
        case .bytes(let count):
            buffer.commit(count)
            pace?.noteReceived(count)
            if count < size, trustsShortReads { input = .quiet }
            return .bytes
        case .wouldBlock:
            buffer.commit(0)
            input = .quiet
            return .nothing
        case .endOfFile:
            buffer.commit(0)
            // The kernel reports a reset only once. After a send has returned it, a recv returns an end of
            // file.
            if case .failed(let failure) = output, failure.error.errno == ECONNRESET {
                input = .failed(failure.error)
            } else {
                input = .endOfFile
            }
            return .nothing
        case .failed(let errno):
            buffer.commit(0)
            input = .failed(AsyncSocketError(SocketDescriptor.ReceiveAnswer.error(errno), operation: .read))
            return .nothing
        }
    }

    private func decrypt(with engine: TLSEngine, into buffer: PreBuffer, limit: Int) -> FillAnswer {
        for _ in 0..<Self.roundsPerTurn {
            let answer = engine.read(into: buffer, limit: limit)
            send(engine.output)
            switch answer {
            case .bytes: return .bytes
            case .closed:
                input = .closed
                return .nothing
            case .truncated(let error):
                input = .truncated(AsyncSocketError(error, operation: .read))
                return .nothing
            case .failed(let error):
                input = .failed(AsyncSocketError(error, operation: .read))
                return .nothing
            case .incomplete:
                guard receiveCiphertext(for: engine) else { return .nothing }
            }
        }
        // A peer that sends much ciphertext without data (KeyUpdates, empty records) must not block other
        // connections.
        return .more
    }

    /// Receives once into `sslPreBuffer`, unless the buffer is still full. An end of file is passed to the
    /// engine. Returns `true` if the engine has new input, including an end of file.
    func receiveCiphertext(for engine: TLSEngine) -> Bool {
        guard engine.received.count < BufferPool.blockSize else { return false }
        if case .bytes = receive(into: engine.received, limit: BufferPool.blockSize) { return true }
        guard case .endOfFile = input else { return false }
        input = .judged
        engine.receiveEndOfFile()
        return true
    }

    // MARK: - Sending

    enum SubmitAnswer {
        case all
        /// Part of the data was accepted. Continue.
        case more
        /// No more can be sent until the next event, or ever.
        case blocked
    }

    /// Whether submitted data is still buffered in encrypted form, or was lost in a failed send.
    var hasUnsentBytes: Bool {
        if case .tls(let engine) = layer { engine.hasOutput || output.isFailed } else { false }
    }

    /// Whether the kernel may have room and no data is buffered in the channel.
    var maySend: Bool {
        guard case .ready = output else { return false }
        return !hasUnsentBytes
    }

    /// Passes the next part of the queued writes to the kernel, with TLS through the engine.
    func submit(_ writes: WriteHalf) -> SubmitAnswer {
        switch layer {
        case .plain: submitPlain(writes)
        case .tls(let engine): encrypt(writes, with: engine)
        case .lent: .blocked
        }
    }

    private func submitPlain(_ writes: WriteHalf) -> SubmitAnswer {
        guard case .ready = output else { return .blocked }
        guard writes.waitingByteCount > 0 else { return .all }
        let limit = sendable(Self.sendLimit)
        guard limit > 0 else { return .blocked }
        var answer = SocketDescriptor.SendAnswer.bytes(0)
        if let file = writes.nextFile {
            // In a larger send, an error after the first part would be masked by the bytes already sent.
            answer = descriptor.send(file.region, at: file.position, count: min(file.remaining, limit, Self.fileLimit))
        } else if !writes.withNextParts(limit: limit, { answer = descriptor.send($0) }) {
            return .all
        }
        guard let count = note(answer) else { return .blocked }
        writes.handOn(count)
        return writes.waitingByteCount > 0 ? .more : .all
    }

    /// Returns the number of bytes that the kernel accepted, or records why it accepted no bytes and returns
    /// `nil`.
    func note(_ answer: SocketDescriptor.SendAnswer) -> Int? {
        switch answer {
        case .bytes(let count):
            pace?.noteSent(count)
            return count
        case .wouldBlock: output = .full
        case .exhausted: output = .exhausted(until: Deadline(after: SocketDescriptor.shortageSeconds))
        case .failed(let call, let errno):
            // The end of input may be preceded by bytes that no event has announced yet.
            expectBytes()
            trustsShortReads = false
            let isFileBroken = call == .pread || errno == ENODATA || errno == EIO
            output = .failed(
                StreamEnding.WriteFailure(AsyncSocketError(call.error(errno), operation: .write), isFileBroken: isFileBroken))
        }
        return nil
    }

    /// Sends bytes that are not queued. Returns the number that the kernel accepted.
    func send(_ bytes: UnsafeRawBufferPointer) -> Int {
        guard case .ready = output else { return 0 }
        let count = sendable(bytes.count)
        return count > 0 ? note(descriptor.send(UnsafeRawBufferPointer(rebasing: bytes.prefix(count)))) ?? 0 : 0
    }

    private func encrypt(_ writes: WriteHalf, with engine: TLSEngine) -> SubmitAnswer {
        isHeldUp = false
        send(engine.output)
        guard case .ready = output, !engine.hasOutput, writes.waitingByteCount > 0 else {
            return engine.hasOutput ? .blocked : .all
        }
        let answer = engine.encrypt(writes)
        let hasProduced = engine.hasOutput
        send(answer, of: engine)
        guard hasProduced, !engine.hasOutput, !output.isFailed else { return .blocked }
        return writes.waitingByteCount > 0 ? .more : .all
    }

    /// Writes as many bytes that are not queued as possible now. Returns the number that the kernel or the
    /// engine accepted.
    func write(_ bytes: UnsafeRawBufferPointer) -> Int {
        switch layer {
        case .plain: return send(UnsafeRawBufferPointer(rebasing: bytes.prefix(Self.sendLimit)))
        case .tls(let engine):
            guard case .ready = output, !engine.hasOutput else { return 0 }
            var count = 0
            send(engine.encrypt(bytes, &count), of: engine)
            return count
        case .lent: return 0
        }
    }

    /// Sends the engine's output after an encryption. If the encryption failed, the alert is sent if
    /// possible.
    private func send(_ answer: TLSEngine.EncryptAnswer, of engine: TLSEngine) {
        send(engine.output)
        switch answer {
        case .incomplete: isHeldUp = true
        case .produced: break
        case .failed(let failure):
            output = .failed(failure)
            engine.output.reset()
        }
    }

    func send(_ bytes: PreBuffer) {
        while !bytes.isEmpty, case .ready = output {
            bytes.consume(send(bytes.readableBytes))
        }
        // The peer cannot receive the output. The engine also stops reading while its output is too large,
        // so the end of input would never be found.
        if case .failed = output { bytes.reset() }
    }

    // MARK: - Closing

    /// Sends our FIN, with TLS after a close_notify. Returns `false` if the kernel has no room yet.
    func finishWriting() -> Bool {
        if case .tls(let engine) = layer {
            // After the close_notify, tickets can no longer be sent.
            engine.sendTickets()
            engine.shutdown()
            send(engine.output)
            guard !engine.hasOutput else { return false }
        }
        if case .lent = layer { return false }
        descriptor.shutdownWriting()
        return true
    }

    /// Closes the descriptor, immediately or with a lingering close.
    ///
    /// - Parameters:
    ///   - cutsWrites: Whether queued bytes are dropped. A close_notify would then falsely signal that the
    ///     data is complete (RFC 8446, 6.1).
    ///   - rest: Plaintext that a lingering close sends.
    func close(
        _ parting: StreamEnding.Parting, cutsWrites: Bool = false, _ rest: ArraySlice<UInt8> = [], on loop: SocketEventLoop
    ) {
        let engine: TLSEngine? = if case .tls(let engine) = layer { engine } else { nil }
        if case .lent(let work) = layer { work.cancel() }
        if parting != .reset, let engine, !cutsWrites || engine.owesCloseNotify {
            engine.sendTickets()
            engine.shutdown()
            send(engine.output)
        }
        loop.unwatch(descriptor)
        // Closing with unread bytes resets the connection. A reset overtakes the last bytes sent, which may
        // be an alert or the end of the data.
        switch parting {
        case .reset:
            // The peer must not mistake a FIN for the end of the announced data.
            try? descriptor.set(.linger, to: .zero)
            descriptor.close()
        case .atOnce where engine?.hasOutput != true: descriptor.close()
        case .lingering, .atOnce:
            rest.withUnsafeBytes { LingeringClose.begin(with: descriptor, sending: engine?.output.readableBytes ?? $0, on: loop) }
        }
        input = .closed
        output = .full
    }
}
