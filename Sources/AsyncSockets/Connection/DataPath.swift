// Rules of the data path:
//  1. The bytes of a connection move here and nowhere else: in by `reads`, out by `writes`, both through the
//     channel.
//  2. A step that ends the connection says so (`Fate`); one that needs another turn notes that (`takeWish`).
//  3. Every packet that is accepted is answered once: served, refused, cancelled, or dropped at the end.
//  4. Each change that may let bytes move sets `needsPump`: what is queued together is served together.
//  5. `isWriting` is set whenever there may be something to write, and cleared by a pump that finds nothing.
//  6. `isCollecting`: writes wait for more, by the rules of `WriteCollector`, and so does receiving. A pump
//     follows.

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// The way of a connection's bytes: what waits to be read and to be written, the channel, how the bytes end,
/// and how many there were.
///
/// Confined to the turn of the connection that owns it.
final class DataPath {
    /// The connection goes on, or it ends: with an error or, with nil, in good order.
    enum Fate {
        case goesOn
        case ends(AsyncSocketError?)
    }

    let reads = ReadHalf()
    let writes = WriteHalf()
    let events: EventOutbox<DelegateEvent>
    /// Nil before the transport is connected, and after the end.
    @exclusivity(unchecked) private(set) var channel: ByteChannel?
    @exclusivity(unchecked) var configuration = SocketConfiguration.initial
    @exclusivity(unchecked) private(set) var carried = CarriedBytes()
    @exclusivity(unchecked) private(set) var ending = StreamEnding()
    /// Something has changed that may let bytes move. Here, since the two fit behind `ending`.
    @exclusivity(unchecked) var needsPump = false
    @exclusivity(unchecked) private var wantsTurn = false
    @exclusivity(unchecked) var isCollecting = false
    /// False, as most reads find it: nothing is to be written, and our side does not end.
    @exclusivity(unchecked) var isWriting = false

    init(_ events: EventOutbox<DelegateEvent>) { self.events = events }

    /// The channel without a counted reference, for code that does not close it.
    var openChannel: Unmanaged<ByteChannel>? { channel.map(Unmanaged.passUnretained) }

    /// The transport is connected.
    func open(_ channel: ByteChannel) {
        self.channel = channel
        needsPump = true
    }

    /// Notes what the event loop says of the descriptor, if there is one.
    func note(_ events: LoopEvents) {
        guard let openChannel else { return }
        openChannel._withUnsafeGuaranteedRef { $0.note(events) }
        needsPump = true
    }

    /// Requests another turn, because there is more work than one turn should do.
    func wishForTurn() { wantsTurn = true }

    /// True, once, when another turn is wanted.
    func takeWish() -> Bool {
        defer { wantsTurn = false }
        return wantsTurn
    }

    /// The caller wants an end.
    func close(_ intent: CloseIntent) {
        ending.note(.wanted(intent))
        needsPump = true
    }

    /// The caller wants to write nothing after what is queued.
    func closeWriting() {
        writes.close()
        (isWriting, needsPump) = (true, true)
    }

    /// Nothing new is accepted.
    var isClosing: Bool { ending.intent != nil }
    @inline(__always)
    var progress: ProgressBoard.Snapshot {
        guard isWriting else { return .init(read: reads.progress) }
        return .init(read: reads.progress, write: writes.progress, waitingByteCount: writes.waitingByteCount)
    }

    // MARK: - Exchanging

    /// Moves bytes in both directions for as long as there is something to move, within the bounds of a turn,
    /// and looks at what follows.
    func pump() -> Fate {
        guard let openChannel else { return .goesOn }
        return openChannel._withUnsafeGuaranteedRef { channel in
            var fate = Fate.goesOn
            if !isWriting || !collects(&fate) { fate = exchange(channel) }
            if case .goesOn = fate { return settle(channel) }
            return fate
        }
    }

    /// The same while TLS begins: first the bytes, and later what follows.
    func exchange() -> Fate { channel.map { exchange($0) } ?? .goesOn }
    func settle() -> Fate { channel.map { settle($0) } ?? .goesOn }

    private func exchange(_ channel: ByteChannel) -> Fate {
        pumpWrites(channel)
        let fate = pumpReads(channel)
        // A half-received message of the peer holds up writes; reading may have completed it.
        if case .goesOn = fate, channel.isHeldUp { pumpWrites(channel) }
        return fate
    }

    func pumpWrites(_ channel: ByteChannel) {
        guard isWriting || channel.hasUnsentBytes else { return }
        if isCollecting { endCollecting() }
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

    /// Serves reads and fetches what they lack, round by round.
    private func pumpReads(_ channel: ByteChannel) -> Fate {
        guard channel.mayHaveBytes || reads.mayServe else { return .goesOn }
        for _ in 0..<ByteChannel.roundsPerTurn {
            let fate = reads.mayServe ? serveReads() : .goesOn
            guard case .goesOn = fate, channel.mayHaveBytes, reads.wantsBytes else { return fate }
            switch fill(from: channel) {
            case .bytes: break
            case .nothing: return .goesOn
            case .more:
                wantsTurn = true
                return .goesOn
            }
        }
        let fate = serveReads()
        if case .goesOn = fate, reads.wantsBytes { wantsTurn = true }
        return fate
    }

    /// Fetches what the reads lack.
    @inline(__always)
    func fill(from channel: ByteChannel) -> ByteChannel.FillAnswer {
        let before = reads.preBuffer.count
        let answer = channel.fill(reads.preBuffer, limit: reads.room)
        carried.received &+= reads.preBuffer.count - before
        return answer
    }

    /// Writes bytes that are in no queue; returns how many the channel took.
    func write(_ bytes: UnsafeRawBufferPointer, to channel: ByteChannel) -> Int {
        let count = channel.write(bytes)
        carried.sent &+= count
        return count
    }

    /// After an exchange: says whether the connection ends, and starts the clocks of the current operations.
    @inline(__always)
    private func settle(_ channel: ByteChannel) -> Fate {
        if isWriting, writes.isClosing, writes.isEmpty, !ending.isWritingFinished, channel.finishWriting() {
            ending.note(.finishedWriting)
        }
        if channel.hasNews { channel.report(to: &ending) }
        if ending.mayDecide, case .ends(let error) = decide(channel) { return .ends(error) }
        reads.packets.startClock()
        if isWriting { writes.packets.startClock() }
        return .goesOn
    }

    /// Does what `StreamEnding` decides, until it has no more to decide.
    private func decide(_ channel: ByteChannel) -> Fate {
        while let action = ending.decide(situation(channel)) {
            switch action {
            case .completeReadToEnd:
                if let (data, completion) = reads.finishReadToEnd() { answer(completion, with: data) }
            case .abandonRead(let error):
                abandonRead(error)
                // The bytes that it leaves may be enough for the next.
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
            mayReceive: ending.readEnd == nil && reads.wantsBytes && channel.mayReceive,
            hasWrites: !writes.isEmpty,
            allowsHalfClose: !configuration.value.autoDisconnectOnClosedReadStream,
            gracePeriod: configuration.value.failedWriteGrace)
    }

    // MARK: - Reads

    // Inlined, so that the packet of a call is not copied.
    @inline(__always)
    func enqueue(_ packet: consuming ReadPacket) {
        guard ending.intent == nil else { return packet.completion.refuse(AsyncSocketError.closing("read")) }
        let hasLimit = packet.timeout >= 0
        queue(consume packet)
        // Mostly nothing is there, and the read only has to wait.
        if !needsPump, hasLimit || isCollecting || !isQuiet { needsPump = true }
    }

    /// The same, for the packet of a message, which the inlined function would copy.
    @inline(never)
    func accept(_ packet: consuming ReadPacket) { enqueue(consume packet) }

    /// False when the reads that are queued could be served or fail now, or have the connection go on to its
    /// end.
    var isQuiet: Bool {
        guard let openChannel, !reads.mayServe, !ending.mayDecide else { return false }
        return openChannel._withUnsafeGuaranteedRef { !$0.mayHaveBytes && !$0.hasNews }
    }

    /// Queues a read; the pump is for the caller.
    @inline(__always)
    func queue(_ packet: consuming ReadPacket) {
        reads.packets.append(consume packet)
        ending.note(.readAsked)
    }

    /// Gives the reads at the front what is in `preBuffer`, until one has to wait.
    func serveReads() -> Fate {
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
                // Too much is the end of the connection, also when the reader has found it out.
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

    /// The delegate borrows the block that the bytes lie in, if it is called here and soon.
    private func lend(_ tag: Int) {
        events.append(.didReadBytes(LentBytes(from: reads.preBuffer, inBlock: events.isInline && events.isEmpty), tag: tag))
    }

    /// Ends the oldest read without completing it. A waiter gets no bytes with its error: they stay.
    func abandonRead(_ error: AsyncSocketError) {
        let progress = reads.progress
        if let completion = reads.withdrawWaiters() { return completion.refuse(error.after(progress)) }
        guard let (bytesSoFar, completion) = reads.abandon() else { return }
        if case .delegate(let tag) = completion { events.append(.didNotRead(bytesSoFar, tag: tag, error)) }
    }

    // MARK: - Writes

    /// The most bytes that may wait, when `packet` would be too much; nil: it is not.
    func limit(passedBy packet: borrowing WritePacket) -> Int? {
        // Nearly always nothing waits.
        guard writes.waitingMemoryByteCount > 0, packet.count > 0, !packet.isFile, packet.completion.isDelegates,
            !isClosing, !writes.isClosing
        else { return nil }
        let limit = max(configuration.value.maximumPendingWriteBytes.count, 0)
        return writes.wouldExceed(limit, with: packet.count) ? limit : nil
    }

    /// Accepts or refuses a write; returns its completion when more bytes would wait than an `Int` counts.
    func enqueue(_ packet: consuming WritePacket) -> Completion<Void>? {
        guard !isClosing, !writes.isClosing else {
            packet.completion.refuse(AsyncSocketError.closing("write"))
            return nil
        }
        guard packet.count > 0 else {
            // A write without bytes is complete; a delegate gets no callback, as in the original.
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

    /// Nothing that was handed on waits here any more: those packets are complete.
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

    /// Reports the high-water mark, and lets the tasks below it go on.
    func watchMark() {
        guard let mark = configuration.value.writeHighWaterMark else { return }
        if writes.waitingByteCount > 0, let count = writes.takeHighWater(mark) { events.append(.highWater(count)) }
        while let waiter = writes.takeWaiter(below: mark) { waiter.complete(.success(())) }
    }

    // MARK: - TLS

    /// Operations that were queued so far come before TLS, and the rest after it.
    func appendStartTLS() {
        reads.packets.appendStartTLS()
        writes.appendStartTLS()
        (isWriting, needsPump) = (true, true)
    }

    /// TLS has begun: the last bytes that came, so many, belong to the handshake and not to the reader.
    func secure(earlyByteCount: Int) {
        carried.received = max(carried.received - earlyByteCount, 0)
        ending.note(.secured)
    }

    // MARK: - Time

    /// False on most connections most of the time.
    var hasDeadline: Bool {
        reads.packets.hasDeadline || (isWriting && writes.packets.hasDeadline) || channel?.retry != nil || ending.wakeTime != nil
    }

    var deadline: Deadline? {
        .earlier(.earlier(reads.packets.deadline, writes.packets.deadline), .earlier(channel?.retry, ending.wakeTime))
    }

    // MARK: - The end

    /// Closes the channel, if there is one.
    func closeChannel(_ error: AsyncSocketError?, isEstablished: Bool, isAbandoned: Bool, on loop: EventLoop) {
        guard let channel = channel.take() else { return }
        guard isEstablished else { return channel.close(.atOnce, on: loop) }
        if channel.hasNews { channel.report(to: &ending) }
        channel.close(ending.parting(with: error), cutsWrites: isAbandoned && writes.waitingByteCount > 0, on: loop)
    }

    /// Gives up everything that waits: each waiter is refused.
    ///
    /// - Returns: nil when nothing is lost.
    func drop(_ error: AsyncSocketError?) -> ConnectionLoss? {
        needsPump = false
        // A connection on which nothing waited frees nothing worth a note.
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
