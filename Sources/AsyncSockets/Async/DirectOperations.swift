internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Reads and writes of tasks. What can be served at once is, without a suspension: then nothing waits, and
// nothing is allocated for it.
extension StreamConnection {
    enum DirectRead {
        case served(Data)
        case failed(any Error)
        case waits(ReadWaiter)
    }

    /// Serves a read now, or queues it for a task.
    ///
    /// - Parameter scoped: The waiter of the task, if the connection belongs to it.
    func beginRead(
        _ goal: ReadPacket.Goal, maxLength: Int, _ limit: OperationLimit, scoped: ReadWaiter? = nil
    ) -> DirectRead {
        if turn.enterIfFree() {
            let answer = serveOrQueue(goal, maxLength, limit, scoped)
            leaveTurn()
            if let answer { return answer }
        }
        let waiter = waiter(limit, scoped)
        post(.read(ReadPacket(goal: goal, maxLength: maxLength, timeout: -1, completion: .waiter(waiter))))
        return .waits(waiter)
    }

    /// Inside the turn: nil when the pump is needed.
    private func serveOrQueue(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ limit: OperationLimit, _ scoped: ReadWaiter?
    ) -> DirectRead? {
        guard case .connected(let channel) = phase, ending.intent == nil else { return nil }
        let hasBytes = !reads.preBuffer.isEmpty || channel.mayHaveBytes
        guard hasBytes || reads.wantsNothing(goal) || channel.hasNews || ending.mayDecide || clock != nil else {
            // The usual case: nothing is there, and the read only has to be queued.
            let waiter = waiter(limit, scoped)
            reads.append(ReadPacket(goal: goal, maxLength: maxLength, timeout: -1, completion: .waiter(waiter)))
            ending.note(.readAsked)
            publishProgress()
            return .waits(waiter)
        }
        var packet = ReadPacket(goal: goal, maxLength: maxLength, timeout: -1, completion: .answered)
        return readAtOnce(&packet, channel)
    }

    private func waiter(_ limit: OperationLimit, _ scoped: ReadWaiter?) -> ReadWaiter {
        guard let scoped else { return ReadWaiter(limit, isScoped: false) }
        scoped.restart(limit)
        return scoped
    }

    /// Leaves the turn. What is left to do is seldom more than to arm a deadline.
    private func leaveTurn() {
        if needsPump || !outlet.isEmpty {
            finishTurn(on: .caller)
        } else {
            armDeadline()
        }
        turn.leaveOrDrain(self)
    }

    /// Nil when the read has to wait.
    private func readAtOnce(_ packet: inout ReadPacket, _ channel: ByteChannel) -> DirectRead? {
        guard reads.isEmpty else { return nil }
        for _ in 0..<ByteChannel.roundsPerTurn {
            if let answer = reads.serveAtOnce(&packet) {
                // Room is free again, and what was unread may have held up the end.
                if channel.mayHaveBytes || ending.mayDecide { needsPump = true }
                switch answer {
                case .complete(let data, _): return .served(data)
                case .failed(let error, _):
                    // What is too much ends the connection, which the pump sees to.
                    return (error as? AsyncSocketError)?.code == .readMaxedOut ? nil : .failed(error)
                case .incomplete, .maxedOut: return nil
                }
            }
            guard channel.mayHaveBytes, upgrade.isOpenForData, reads.wantsBytes,
                case .bytes = fill(from: channel)
            else { return nil }
        }
        return nil
    }

    /// Calls `body` with the bytes that are there, and takes them; nil when there are none, or when someone
    /// else is inside the turn.
    func takeBytes<Result>(_ body: (RawSpan) throws -> Result) rethrows -> Result? {
        guard turn.enterIfFree() else { return nil }
        defer { leaveTurn() }
        guard case .connected(let channel) = phase, ending.intent == nil, reads.isEmpty else { return nil }
        if reads.preBuffer.isEmpty, channel.mayHaveBytes { _ = fill(from: channel) }
        guard !reads.preBuffer.isEmpty else { return nil }
        defer {
            reads.preBuffer.reset()
            if channel.mayHaveBytes || ending.mayDecide { needsPump = true }
        }
        return try body(reads.preBuffer.readableBytes.bytes)
    }

    enum DirectWrite {
        case done
        /// Done, and the task has used up the time of its loop.
        case doneLate
        case waits(DoneWaiter)

        var mustSuspend: Bool { if case .done = self { false } else { true } }
    }

    /// Writes as much as possible now, and queues the rest for a task.
    ///
    /// - Parameter makeData: The bytes from an offset on, for the queue.
    func beginWrite(
        _ bytes: UnsafeRawBufferPointer, _ limit: OperationLimit, makeData: (Int) -> Data
    ) -> DirectWrite {
        guard !bytes.isEmpty else { return .done }
        if turn.enterIfFree() {
            let answer = writeAtOnce(bytes, limit, makeData)
            leaveTurn()
            if case .done = answer { return JobBudget.isUsedUp(by: self) ? .doneLate : .done }
            if let answer { return answer }
        }
        let waiter = DoneWaiter(.write, limit)
        post(.write(WritePacket(data: makeData(0), timeout: -1, completion: .waiter(waiter))))
        return .waits(waiter)
    }

    /// Nil when the write has to be queued as a whole.
    private func writeAtOnce(
        _ bytes: UnsafeRawBufferPointer, _ limit: OperationLimit, _ makeData: (Int) -> Data
    ) -> DirectWrite? {
        guard case .connected(let channel) = phase, upgrade.isOpenForData, ending.intent == nil, writes.isEmpty,
            !writes.isClosing, !channel.hasUnsentBytes
        else { return nil }
        let count = write(bytes, to: channel)
        if count == bytes.count, !channel.hasUnsentBytes { return .done }
        // A write that fails, or fills the kernel's buffer: the pump goes on with what is left.
        needsPump = true
        guard count > 0 else { return nil }
        let isBelowMark = bytes.count - count < configuration.value.writeHighWaterMark ?? 0
        let waiter = isBelowMark ? nil : DoneWaiter(.write, limit)
        let completion: Completion<Void> = waiter.map { .waiter($0) } ?? .answered
        if count == bytes.count {
            writes.appendHandedOn(completion)
        } else {
            writes.append(WritePacket(data: makeData(count), timeout: -1, completion: completion, isBegun: true))
        }
        return waiter.map { .waits($0) } ?? .done
    }
}
