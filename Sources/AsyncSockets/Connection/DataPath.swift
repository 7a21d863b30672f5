// Rules of the data path:
//  1. Only the data path moves a connection's bytes: incoming bytes through `reads`, outgoing bytes through
//     `writes`, both through the channel.
//  2. A step that requires the connection to close reports this in its result (`Step`). A step that needs
//     another turn records this (`endTurn`).
//  3. Every accepted packet is completed once: served, refused, cancelled, or dropped when the connection
//     closes.
//  4. Each change that may allow bytes to move sets `needsPump`, so that operations queued together are
//     served together.
//  5. `isWriting` is set whenever there may be something to write, and cleared by a pump that finds an empty
//     queue.
//  6. While `isCollecting` is set, writes are held back so that they can be combined with later ones (see
//     `WriteCollector`), and receiving is paused. After it is set, a pump always follows.

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// The path of a connection's bytes: the queues of reads and writes, the channel, the state of the close,
/// and the byte counters.
///
/// Confined to the turn of the connection that owns it.
final class DataPath {
    /// Whether the connection continues or must be closed. The error is `nil` for an orderly close.
    enum Step {
        case goesOn
        case ends(AsyncSocketError?)
    }

    let reads = ReadHalf()
    let writes = WriteHalf()
    let events: EventOutbox<DelegateEvent>
    /// `nil` before the transport is connected, and after the close.
    @exclusivity(unchecked) private(set) var channel: ByteChannel?
    @exclusivity(unchecked) var configuration = SocketConfiguration.initial
    @exclusivity(unchecked) private(set) var carried = CarriedBytes()
    @exclusivity(unchecked) private(set) var ending = StreamEnding()
    /// Set by changes that may allow bytes to move. The Booleans fit into the padding after `ending`.
    @exclusivity(unchecked) var needsPump = false
    @exclusivity(unchecked) var wantsTurn = false
    /// Whether session tickets are held back after a handshake: see `endTurn()`.
    @exclusivity(unchecked) var holdsTickets = false
    @exclusivity(unchecked) var isCollecting = false
    /// The job that wrote last: see `expectsMoreWrites(in:after:)`.
    @exclusivity(unchecked) var writingJob: UInt32 = 0
    /// Whether there may be bytes to write, or our side is being closed. `false` during most reads.
    @exclusivity(unchecked) var isWriting = false

    init(_ events: EventOutbox<DelegateEvent>) { self.events = events }

    /// The channel without a counted reference, for code that does not close it.
    var openChannel: Unmanaged<ByteChannel>? { channel.map(Unmanaged.passUnretained) }

    func open(_ channel: ByteChannel) {
        self.channel = channel
        channel.setRates(read: configuration.value.readRateLimit, write: configuration.value.writeRateLimit)
        needsPump = true
    }

    /// Records the events that the loop reports for the descriptor, if the channel is open.
    func note(_ events: LoopEvents) {
        guard let openChannel else { return }
        openChannel._withUnsafeGuaranteedRef { $0.note(events) }
        needsPump = true
    }

    /// Requests another turn, because there is more work than one turn should do.
    func wishForTurn() { wantsTurn = true }

    func close(_ intent: CloseIntent) {
        ending.note(.wanted(intent))
        needsPump = true
    }

    /// Closes the writing side after all queued writes.
    func closeWriting() {
        writes.close()
        (isWriting, needsPump) = (true, true)
    }

    /// Whether new operations are rejected.
    var isClosing: Bool { ending.intent != nil }
    @inline(__always)
    var progress: ProgressBoard.Snapshot {
        guard isWriting else { return .init(read: reads.progress) }
        return .init(read: reads.progress, write: writes.progress, waitingByteCount: writes.waitingByteCount)
    }

    // MARK: - Moving bytes

    /// Moves bytes in both directions within the limits of a turn, and then decides whether to close.
    func pump() -> Step {
        guard let openChannel else { return .goesOn }
        return openChannel._withUnsafeGuaranteedRef { channel in
            var step = Step.goesOn
            if !isWriting || !collects(&step) { step = exchange(channel) }
            if case .goesOn = step { return settle(channel) }
            return step
        }
    }

    /// The two parts of `pump()`, called separately during a TLS upgrade: moving bytes, and then deciding.
    func exchange() -> Step { channel.map { exchange($0) } ?? .goesOn }
    func settle() -> Step { channel.map { settle($0) } ?? .goesOn }

    private func exchange(_ channel: ByteChannel) -> Step {
        pumpWrites(channel)
        let step = pumpReads(channel)
        // A partially received message from the peer can block writes. Reading may have completed that
        // message.
        if case .goesOn = step, channel.isHeldUp { pumpWrites(channel) }
        return step
    }

    func pumpWrites(_ channel: ByteChannel) {
        guard isWriting || channel.hasUnsentBytes else { return }
        if isCollecting { endCollecting(channel) }
        defer { isWriting = !writes.isEmpty || writes.isClosing }
        for _ in 0..<ByteChannel.roundsPerTurn {
            let before = writes.waitingByteCount
            let answer = channel.submit(writes)
            carried.sent &+= before - writes.waitingByteCount
            if !channel.hasUnsentBytes { completeWrites() }
            guard case .more = answer else { return }
        }
        wantsTurn = true
    }

    /// Serves reads and receives the bytes they need, round by round.
    private func pumpReads(_ channel: ByteChannel) -> Step {
        guard channel.mayHaveBytes || reads.mayServe else { return .goesOn }
        for _ in 0..<ByteChannel.roundsPerTurn {
            let step = reads.mayServe ? serveReads() : .goesOn
            guard case .goesOn = step, channel.mayHaveBytes, reads.wantsBytes else { return step }
            switch fill(from: channel) {
            case .bytes: break
            case .nothing: return .goesOn
            case .more:
                wantsTurn = true
                return .goesOn
            }
        }
        let step = serveReads()
        if case .goesOn = step, reads.wantsBytes { wantsTurn = true }
        return step
    }

    @inline(__always)
    func fill(from channel: ByteChannel) -> ByteChannel.FillAnswer {
        let before = reads.preBuffer.count
        let answer = channel.fill(reads.preBuffer, limit: reads.room)
        carried.received &+= reads.preBuffer.count - before
        return answer
    }

    /// Writes bytes that are not queued. Returns the number that the channel accepted.
    func write(_ bytes: UnsafeRawBufferPointer, to channel: ByteChannel) -> Int {
        let count = channel.write(bytes)
        carried.sent &+= count
        return count
    }

    /// Called after an exchange. Decides whether the connection closes, and starts the timers of the current
    /// operations.
    @inline(__always)
    private func settle(_ channel: ByteChannel) -> Step {
        if isWriting, writes.isClosing, writes.isEmpty, !ending.isWritingFinished, channel.finishWriting() {
            ending.note(.finishedWriting)
        }
        if channel.hasNews { channel.report(to: &ending) }
        if ending.mayDecide, case .ends(let error) = decide(channel) { return .ends(error) }
        reads.packets.startClock()
        if isWriting { writes.packets.startClock() }
        return .goesOn
    }

    /// Performs the actions that `StreamEnding` decides, one after another.
    private func decide(_ channel: ByteChannel) -> Step {
        while let action = ending.decide(situation(channel)) {
            switch action {
            case .completeReadToEnd:
                if let (data, completion) = reads.finishReadToEnd() { answer(completion, with: data) }
            case .abandonRead(let error):
                abandonRead(error)
                // The abandoned read may leave enough bytes for the next read.
                if case .ends(let error) = serveReads() { return .ends(error) }
            case .reportClosedReadSide: events.append(.didCloseReadStream)
            case .askKernel: if let error = channel.takeError() { return .ends(ending.untoldTruncation ?? error) }
            case .close(let error): return .ends(error)
            }
        }
        return .goesOn
    }

    private func situation(_ channel: ByteChannel) -> StreamEnding.Situation {
        let waiting: StreamEnding.Situation.Reads =
            switch reads.front {
            case .read: reads.isAtReadToEnd ? .waitingForEnd : .waiting
            case .startTLS: .atStartTLS
            case .nothing: .idle
            }
        return StreamEnding.Situation(
            reads: waiting, hasUnreadBytes: reads.hasUnreadBytes, readLeavesBytes: reads.wouldLeaveBytes,
            mayReceive: ending.readEnd == nil && reads.wantsBytes && channel.mayReceive, isInputPaused: channel.isInputPaused,
            hasWrites: !writes.isEmpty,
            allowsHalfClose: !configuration.value.autoDisconnectOnClosedReadStream,
            gracePeriod: configuration.value.failedWriteGrace)
    }

    // MARK: - Reads

    // Inlined, so that the packet of a call is not copied.
    @inline(__always)
    func enqueue(_ packet: consuming ReadPacket) {
        guard ending.intent == nil else { return packet.completion.refuse(AsyncSocketError.closing(.read)) }
        let hasLimit = packet.timeout >= 0
        queue(consume packet)
        // Usually no bytes are available, and the read is only queued.
        if !needsPump, hasLimit || isCollecting || !isQuiet { needsPump = true }
    }

    /// Calls `enqueue` for the packet of a message, which the inlined function would copy.
    @inline(never)
    func accept(_ packet: consuming ReadPacket) { enqueue(consume packet) }

    /// Returns `false` if a queued read could be served or fail now, or could close the connection.
    var isQuiet: Bool {
        guard let openChannel, !reads.mayServe, !ending.mayDecide else { return false }
        return openChannel._withUnsafeGuaranteedRef { !$0.mayHaveBytes && !$0.hasNews }
    }

    /// Queues a read. The caller must run the pump.
    @inline(__always)
    func queue(_ packet: consuming ReadPacket) {
        reads.packets.append(consume packet)
        ending.note(.readAsked)
    }

    /// Serves the reads at the front of the queue from `preBuffer`, until one needs more bytes.
    func serveReads() -> Step {
        while true {
            if let tag = reads.takeLoan() {
                lend(tag)
                continue
            }
            guard let result = reads.serve() else { return .goesOn }
            switch consume result {
            case .incomplete:
                if let (count, tag) = reads.takeProgress() { events.append(.didReadPartial(count, tag: tag)) }
                return .goesOn
            case .complete(let data, let completion): answer(completion, with: consume data)
            case .maxedOut(let maxLength): return .ends(.readMaxedOut(maxLength))
            case .failed(let error, let completion):
                completion.refuse(error)
                // Exceeding the maximum length closes the connection, even if a `BufferReader` detected it.
                if let error = error as? AsyncSocketError, error.code == .readMaxedOut { return .ends(error) }
            }
        }
    }

    private func answer(_ completion: Completion<Data>, with data: consuming Data) {
        switch completion {
        case .delegate(let tag): events.append(.didRead(consume data, tag: tag))
        case .waiter(let waiter): waiter.complete(.success(data))
        case .answered: break
        }
    }

    /// Lends the bytes to the delegate. They stay in their block if the delegate is called inline and no
    /// other event is pending.
    private func lend(_ tag: Int) {
        events.append(.didReadBytes(LentBytes(from: reads.preBuffer, inBlock: events.isInline && events.isEmpty), tag: tag))
    }

    /// Abandons the oldest read. A waiter receives only the error, and the bytes collected so far stay
    /// readable.
    func abandonRead(_ error: AsyncSocketError) {
        let progress = reads.progress
        if let completion = reads.withdrawWaiters() { return completion.refuse(error.after(progress)) }
        guard let (bytesSoFar, completion) = reads.abandon() else { return }
        if case .delegate(let tag) = completion { events.append(.didNotRead(bytesSoFar, tag: tag, error)) }
    }

    // MARK: - Writes

    /// Returns the limit on queued bytes if `packet` would exceed it, and `nil` otherwise.
    func limit(passedBy packet: borrowing WritePacket) -> Int? {
        guard writes.waitingMemoryByteCount > 0, packet.count > 0, !packet.isFile, packet.completion.isDelegates,
            !isClosing, !writes.isClosing
        else { return nil }
        let limit = max(configuration.value.maximumPendingWriteBytes, 0)
        return writes.wouldExceed(limit, with: packet.count) ? limit : nil
    }

    /// Accepts or refuses a write. Returns its completion if the number of queued bytes would overflow an
    /// `Int`.
    func enqueue(_ packet: consuming WritePacket) -> Completion<Void>? {
        guard !isClosing, !writes.isClosing else {
            packet.completion.refuse(AsyncSocketError.closing(.write))
            return nil
        }
        guard packet.count > 0 else {
            // An empty write is already complete. A delegate receives no callback, as in GCDAsyncSocket.
            if case .waiter(let waiter) = packet.completion { waiter.complete(.success(())) }
            return nil
        }
        let isBelowMark = writes.isBelow(configuration.value.writeHighWaterMark, with: packet)
        let waiter = isBelowMark ? packet.takeWaiter() : nil
        let completion = packet.completion
        guard writes.append(consume packet) else {
            waiter?.complete(.failure(AsyncSocketError.writeQueueFull(.max)))
            return completion
        }
        waiter?.complete(.success(()))
        (isWriting, needsPump) = (true, true)
        return nil
    }

    /// Completes the writes that were handed on. Called only while the channel buffers no bytes.
    private func completeWrites() {
        while let completion = writes.removeHandedOn() {
            switch completion {
            case .delegate(let tag): events.append(.didWrite(tag: tag))
            case .waiter(let waiter): waiter.complete(.success(()))
            case .answered: break
            }
        }
        if let (count, tag) = writes.takeProgress() { events.append(.didWritePartial(count, tag: tag)) }
        if writes.isAboveHighWater { reportLowWater() }
    }

    func reportLowWater() {
        if let count = writes.takeLowWater(configuration.value.writeHighWaterMark) { events.append(.lowWater(count)) }
    }

    /// Reports that the high-water mark was reached, and resumes tasks when the queue is below the mark.
    func watchMark() {
        guard let mark = configuration.value.writeHighWaterMark else { return }
        if writes.waitingByteCount > 0, let count = writes.takeHighWater(mark) { events.append(.highWater(count)) }
        while let waiter = writes.takeWaiter(below: mark) { waiter.complete(.success(())) }
    }

    // MARK: - TLS

    /// Separates the operations queued so far from the operations after the upgrade.
    func appendStartTLS() {
        reads.packets.appendStartTLS()
        writes.appendStartTLS()
        (isWriting, needsPump) = (true, true)
    }

    /// Called when TLS starts. The last `earlyByteCount` bytes received belong to the handshake.
    func secure(earlyByteCount: Int, after dialogue: CarriedBytes) {
        carried += dialogue
        carried.received = max(carried.received - earlyByteCount, 0)
        ending.note(.secured)
    }

    // MARK: - Time

    /// `false` for most connections most of the time.
    var hasDeadline: Bool {
        reads.packets.hasDeadline || (isWriting && writes.packets.hasDeadline) || channel?.retry != nil || ending.wakeTime != nil
    }

    var deadline: Deadline? {
        .earlier(.earlier(reads.packets.deadline, writes.packets.deadline), .earlier(channel?.retry, ending.wakeTime))
    }

    // MARK: - Closing

    func closeChannel(_ error: AsyncSocketError?, _ intent: CloseIntent?, _ rest: ArraySlice<UInt8>?, on loop: SocketEventLoop) {
        guard let channel = channel.take() else { return }
        guard let intent else { return channel.close(.atOnce, on: loop) }
        if channel.hasNews { channel.report(to: &ending) }
        let parting = intent.contains(.reset) ? .reset : ending.parting(with: error)
        channel.close(parting, cutsWrites: intent.contains(.abandoned) && writes.waitingByteCount > 0, rest ?? [], on: loop)
    }

    /// Drops all queued operations and refuses their waiters.
    ///
    /// - Returns: `nil` if no data is lost.
    func drop(_ error: AsyncSocketError?) -> ConnectionLoss? {
        needsPump = false
        // Empty queues free too little memory to report.
        let waiting = writes.waitingMemoryByteCount + reads.preBuffer.count
        if waiting > 0 { HeapTrimmer.shared.noteFreed(waiting) }
        var loss = ConnectionLoss(hasBytes: !reads.preBuffer.isEmpty)
        reads.preBuffer.reset()
        while let completion = reads.packets.drop()?.completion { completion.refuse(error ?? .closed) }
        while let completion = writes.drop() {
            loss.add(completion, error ?? .writesLost)
            completion.refuse(error ?? .closed)
        }
        return loss.isNothing ? nil : loss
    }
}
