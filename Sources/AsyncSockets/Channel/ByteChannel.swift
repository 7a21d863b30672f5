// Rules of the channel:
//  1. Nothing else touches the connection's descriptor or its engine. Nothing else asks whether the
//     connection is secure: every verb does the same with and without TLS.
//  2. Readiness is remembered until the kernel denies it: events are edge-triggered, and each comes once.
//  3. After every call to the engine its output is sent, even when the call failed: an alert may be in it.
//  4. The end of the input and the failure of the output are final. With TLS the engine judges what an end of
//     file means.
//  5. A verb is bounded to a few rounds. `.more` asks for another turn, so that others on the loop get
//     theirs.

internal import Glibc
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The path of a connection's bytes: the descriptor, what is known of its readiness, and TLS once it has
/// begun.
///
/// Confined to the turn of the connection that owns it.
final class ByteChannel {
    enum Layer {
        case plain
        case tls(TLSEngine)
        /// The engine is on another thread.
        case lent(HandshakeWork)
    }

    /// For the record of the connection, through which callers set options.
    let descriptor: SocketDescriptor
    @exclusivity(unchecked) private(set) var layer = Layer.plain
    @exclusivity(unchecked) private var input = InputReadiness.ready
    @exclusivity(unchecked) private var output = OutputReadiness.ready
    /// A recv that brings less than there was room for has emptied the kernel's buffer, and whatever comes
    /// after it is a new event (epoll(7)).
    ///
    /// That does not hold once the FIN has been announced, which happens once: zero is then still to be read.
    /// Nor does it hold where Linux stops a recv early: before urgent data (tcp(7)), and on a Unix-domain
    /// socket after bytes that descriptors came with (unix(7)).
    @exclusivity(unchecked) private var trustsShortReads: Bool
    /// The kernel has reported that the connection is broken in both directions.
    @exclusivity(unchecked) private var hasHangup = false
    /// The engine takes nothing while half a message of the peer is missing: reading may complete it.
    @exclusivity(unchecked) private(set) var isHeldUp = false

    /// The most rounds of receiving or sending in one turn before others on the loop get theirs.
    static let roundsPerTurn = 4
    /// The most bytes that a call gives to the kernel, which copies that many in about fifty microseconds.
    private static let sendLimit = 256 * 1024
    /// The most bytes of a file that a call has the kernel send: no more than sendfile(2) moves at a time.
    private static let fileLimit = 64 * 1024

    /// A connected descriptor, which the loop watches.
    init(_ descriptor: SocketDescriptor, of family: SocketAddress.Family?) {
        self.descriptor = descriptor
        trustsShortReads = family != .unix
    }

    /// Notes what the event loop says of the descriptor.
    func note(_ events: LoopEvents) {
        if events.contains(.readable), case .quiet = input { input = .ready }
        if events.contains(.writable), case .full = output { output = .ready }
        guard events.isUnusual else { return }
        if events.contains(.readHangup) || events.contains(.urgent) { trustsShortReads = false }
        if events.contains(.hangup) { hasHangup = true }
    }

    /// Has the kernel asked for bytes next, whatever the last event said.
    func expectBytes() {
        if case .quiet = input { input = .ready }
    }

    /// When to try again, after the kernel had no memory to send with.
    var retry: Deadline? { output.retry }

    func retryIfDue(at now: Deadline) {
        if let retry, retry <= now { output = .ready }
    }

    /// The error that a hangup announced.
    func takeError() -> AsyncSocketError? {
        descriptor.takeError(of: "poll").map { AsyncSocketError($0, operation: "read") }
    }

    // MARK: - Ends

    /// False while no end is known.
    var hasNews: Bool { input.isEnded || output.isFailed || hasHangup }

    /// Notes every end that is known. Doing so again changes nothing.
    func report(to ending: inout StreamEnding) {
        switch (input, layer) {
        case (.endOfFile, .plain), (.closed, _): ending.note(.readEnded(.orderly))
        case (.truncated(let error), _): ending.note(.readEnded(.truncated(error)))
        case (.failed(let error), _): ending.note(.readEnded(.failed(error)))
        case (.endOfFile, .tls), (.endOfFile, .lent), (.judged, _), (.quiet, _), (.ready, _): break
        }
        if case .failed(let failure) = output { ending.note(.writeFailed(failure)) }
        if hasHangup { ending.note(.hangup) }
    }

    /// Why a handshake or a proxy negotiation cannot go on.
    var failure: AsyncSocketError? { input.error ?? output.error }

    /// Neither side can go on: it is more than an end of the peer's side.
    var hasFailed: Bool { input.isFailed || output.isFailed }

    // MARK: - Receiving

    enum FillAnswer {
        case bytes
        /// Nothing until the next event, or nothing any more.
        case nothing
        /// Much was received, and nothing for the reader: go on in another turn.
        case more
    }

    /// The kernel may have bytes.
    var mayReceive: Bool {
        if case .ready = input { true } else { false }
    }

    /// False when `fill` would answer `.nothing`.
    var mayHaveBytes: Bool {
        if case .ready = input { return true }
        if case .tls(let engine) = layer { return engine.mayHaveAnswer }
        return false
    }

    /// Appends at most `limit` bytes for the reader to `buffer`.
    func fill(_ buffer: PreBuffer, limit: Int) -> FillAnswer {
        switch layer {
        case .plain: receive(into: buffer, limit: limit)
        case .tls(let engine): decrypt(with: engine, into: buffer, limit: limit)
        case .lent: .nothing
        }
    }

    /// One `recv`.
    private func receive(into buffer: PreBuffer, limit: Int) -> FillAnswer {
        guard case .ready = input else { return .nothing }
        let room = buffer.writableBytes(minimum: min(limit, BufferPool.blockSize / 4))
        let size = min(room.count, limit)
        switch descriptor.receive(into: UnsafeMutableRawBufferPointer(start: room.baseAddress, count: size)) {
        case .bytes(let count):
            buffer.commit(count)
            if count < size, trustsShortReads { input = .quiet }
            return .bytes
        case .wouldBlock:
            buffer.commit(0)
            input = .quiet
            return .nothing
        case .endOfFile:
            buffer.commit(0)
            // The kernel reports a reset once: a recv after the send that met it returns an end of file.
            if case .failed(let failure) = output, failure.error.errno == ECONNRESET {
                input = .failed(failure.error)
            } else {
                input = .endOfFile
            }
            return .nothing
        case .failed(let errno):
            buffer.commit(0)
            input = .failed(AsyncSocketError(SocketDescriptor.ReceiveAnswer.error(errno), operation: "read"))
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
                input = .truncated(AsyncSocketError(error, operation: "read"))
                return .nothing
            case .failed(let error):
                input = .failed(AsyncSocketError(error, operation: "read"))
                return .nothing
            case .incomplete:
                guard receiveCiphertext(for: engine) else { return .nothing }
            }
        }
        // A peer that sends much ciphertext and no data (KeyUpdates, empty records) does not keep the others
        // waiting.
        return .more
    }

    /// One `recv` into `sslPreBuffer`, unless the engine has yet to take what is there. An end of file goes
    /// to the engine: true then too, so that the engine is asked again.
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
        /// Everything was taken.
        case all
        /// Some of it was taken: go on.
        case more
        /// Nothing more until the next event, or nothing any more.
        case blocked
    }

    /// Something of what was submitted waits here, encrypted, or was lost with a send that failed.
    var hasUnsentBytes: Bool {
        if case .tls(let engine) = layer { engine.hasOutput || output.isFailed } else { false }
    }

    /// The kernel may have room, and nothing waits for it here.
    var maySend: Bool {
        guard case .ready = output else { return false }
        return !hasUnsentBytes
    }

    /// Hands on the next part of the writes at the front: to the kernel or, with TLS, through the engine to
    /// the kernel.
    func submit(_ writes: WriteHalf) -> SubmitAnswer {
        switch layer {
        case .plain: submitPlain(writes)
        case .tls(let engine): encrypt(writes, with: engine)
        case .lent: .blocked
        }
    }

    private func submitPlain(_ writes: WriteHalf) -> SubmitAnswer {
        guard case .ready = output else { return .blocked }
        var answer = SocketDescriptor.SendAnswer.bytes(0)
        if let file = writes.nextFile {
            // An error after the first part would be hidden by the bytes before it.
            answer = descriptor.send(file.region, at: file.position, count: min(file.remaining, Self.fileLimit))
        } else if !writes.withNextParts(limit: Self.sendLimit, { answer = descriptor.send($0) }) {
            return .all
        }
        guard let count = note(answer) else { return .blocked }
        writes.handOn(count)
        return writes.waitingByteCount > 0 ? .more : .all
    }

    /// The number of bytes that the kernel took, if it took any; otherwise notes why it did not.
    func note(_ answer: SocketDescriptor.SendAnswer) -> Int? {
        switch answer {
        case .bytes(let count): return count
        case .wouldBlock: output = .full
        case .exhausted: output = .exhausted(until: Deadline(after: SocketDescriptor.shortageSeconds))
        case .failed(let call, let errno):
            // The end may have come with bytes before it that no event has announced yet.
            expectBytes()
            trustsShortReads = false
            let isFileBroken = call == .pread || errno == ENODATA || errno == EIO
            output = .failed(
                StreamEnding.WriteFailure(AsyncSocketError(call.error(errno), operation: "write"), isFileBroken: isFileBroken))
        }
        return nil
    }

    /// Sends bytes that are in no queue; returns the number that the kernel took.
    func send(_ bytes: UnsafeRawBufferPointer) -> Int {
        guard case .ready = output else { return 0 }
        return note(descriptor.send(bytes)) ?? 0
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

    /// Writes bytes that are in no queue, as far as possible now; returns how many the kernel or the engine
    /// took.
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

    /// Sends what the engine has made of some bytes. The alert of a failure goes out while it can.
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

    /// Sends what the engine has produced.
    func send(_ bytes: PreBuffer) {
        while !bytes.isEmpty, case .ready = output {
            if let count = note(descriptor.send(bytes.readableBytes)) { bytes.consume(count) }
        }
        // The peer cannot receive it, and an engine that has too much to send reads nothing, so that the end
        // would never be found.
        if case .failed = output { bytes.reset() }
    }

    // MARK: - TLS

    /// From here on bytes travel encrypted. Whatever the peer has sent early is ciphertext, or the handshake
    /// fails: it is never plaintext again.
    func beginTLS(_ engine: TLSEngine, feeding early: PreBuffer) {
        early.moveAll(to: engine.received)
        layer = .tls(engine)
    }

    /// The engine belongs to `work` until `takeBack(_:)`. Meanwhile nothing moves.
    func lend(to work: HandshakeWork) {
        layer = .lent(work)
    }

    /// The work is done: the engine is here again.
    func takeBack(_ work: HandshakeWork) {
        if case .lent(let lent) = layer, lent === work { layer = .tls(work.finish()) }
    }

    /// No thread does the work: the handshake is over.
    func refuse(_ work: HandshakeWork) {
        takeBack(work)
        if case .tls(let engine) = layer { engine.refuseWork() }
    }

    // MARK: - Closing

    /// Sends our FIN, and the close_notify before it; false when that has to wait for room.
    func finishWriting() -> Bool {
        if case .tls(let engine) = layer {
            engine.shutdown()
            send(engine.output)
            guard !engine.hasOutput else { return false }
        }
        if case .lent = layer { return false }
        descriptor.shutdownWriting()
        return true
    }

    /// Closes the descriptor, at once or by a lingering close.
    ///
    /// - Parameter cutsWrites: Whether queued bytes are dropped. A close_notify would say that nothing is
    ///   missing (RFC 8446, 6.1).
    func close(_ parting: StreamEnding.Parting, cutsWrites: Bool = false, on loop: EventLoop) {
        let engine: TLSEngine? = if case .tls(let engine) = layer { engine } else { nil }
        if case .lent(let work) = layer { work.cancel() }
        if parting != .reset, let engine, !cutsWrites || engine.owesCloseNotify {
            engine.shutdown()
            send(engine.output)
        }
        loop.unwatch(descriptor)
        // A close with unread bytes resets the connection, and a reset overtakes what we sent last: an alert,
        // or the end of the data.
        switch parting {
        case .reset:
            // The peer must not take a FIN for the end of what was announced.
            try? descriptor.set(.linger, to: 0)
            descriptor.close()
        case .atOnce where engine?.hasOutput != true: descriptor.close()
        case .lingering, .atOnce:
            LingeringClose.begin(with: descriptor, sending: engine?.output.readableBytes, on: loop)
        }
        input = .closed
        output = .full
    }
}
