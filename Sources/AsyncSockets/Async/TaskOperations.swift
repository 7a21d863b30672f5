internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// Reads and writes that tasks perform on a connection.
///
/// An operation that can be served immediately neither suspends the task nor allocates memory for a waiter.
struct TaskOperations {
    let connection: StreamConnection

    // MARK: - Reads

    nonisolated(nonsending) func read(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ limit: OperationLimit
    ) async throws -> Data {
        let read = beginRead(goal, maxLength: maxLength, limit)
        if case .served(let data) = read { return data }
        return try await finish(read)
    }

    // The code that suspends and the code before it are separate functions, because a suspended task keeps
    // memory for each function on its call stack.

    /// Waits for a read to complete.
    ///
    /// - Parameter isOver: Whether this is the last step of the operation. If `false`, the time budget is
    ///   not checked after waiting.
    @inline(never)
    nonisolated(nonsending) func finish(_ read: DirectRead, isOver: Bool = true) async throws -> Data {
        let data: Data
        switch read {
        case .served(let data): return data
        case .servedLate(let data):
            await JobBudget.renew()
            return data
        case .failed(let error): throw error
        case .waits(let waiter) where waiter.isScoped:
            // The scope's cancellation handler may have run before the read was queued.
            if waiter.isCancelled { connection.giveUp(waiter) }
            data = try await withUnsafeThrowingContinuation { waiter.wait(with: $0) }
        case .waits(let waiter): data = try await waiter.value(from: connection)
        }
        if isOver, JobBudget.isUsedUp(by: connection) { await JobBudget.renew() }
        return data
    }

    enum DirectRead {
        case served(Data)
        /// Complete, but the task has used up its time budget on the loop.
        case servedLate(Data)
        case failed(any Error)
        case waits(ReadWaiter)
    }

    @inline(never)
    func beginRead(_ goal: ReadPacket.Goal, maxLength: Int, _ limit: OperationLimit) -> DirectRead {
        // The reusable waiter of the current task, if the task owns the connection.
        let scoped = connection.scope.reader
        if let failure = failure(of: limit, scoped) { return failure }
        if connection.turn.enterIfFree() {
            let answer = serveOrQueue(goal, maxLength, limit, scoped)
            connection.leaveTurn(limit)
            if case .served(let data) = answer, JobBudget.isUsedUp(by: connection) { return .servedLate(data) }
            if let answer { return answer }
        }
        return post(goal, maxLength, limit, scoped)
    }

    /// Returns the next line if it has arrived completely and can be read without waiting. Returns `nil` in
    /// every other case, including errors, without consuming anything.
    func takeLine(_ maxLength: Int, _ limit: OperationLimit) -> String? {
        guard limit.isOpen, connection.turn.enterIfFree() else { return nil }
        defer { connection.leaveTurn(nil) }
        guard connection.phase.isEstablished else { return nil }
        return connection.data.takeLine(maxLength) { String(line: $0) }
    }

    private func failure(of limit: OperationLimit, _ scoped: ReadWaiter?) -> DirectRead? {
        do {
            try limit.check(.read, isCancelled: scoped?.isCancelled ?? Task.isCancelled)
            return nil
        } catch {
            return .failed(error)
        }
    }

    private func post(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ limit: OperationLimit, _ scoped: ReadWaiter?
    ) -> DirectRead {
        let waiter = waiter(limit, scoped)
        connection.post(.read(ReadPacket.make(goal, maxLength: maxLength, timeout: -1, completion: .waiter(waiter))))
        return .waits(waiter)
    }

    /// If bytes are available, calls `body` with them, consumes them and returns `nil`. Otherwise queues a
    /// read.
    ///
    /// - Parameter earlier: The previous wait of the same operation. The limit has already been checked for
    ///   it.
    @inline(never)
    func takeOrQueue(_ limit: OperationLimit, _ body: (RawSpan) -> Void, after earlier: DirectRead? = nil) -> DirectRead? {
        let scoped: ReadWaiter?
        if case .waits(let waiter) = earlier {
            scoped = waiter.isScoped ? waiter : nil
        } else {
            scoped = connection.scope.reader
            if let failure = failure(of: limit, scoped) { return failure }
        }
        guard connection.turn.enterIfFree() else { return post(.arrival, .max, limit, scoped) }
        let isTaken = connection.phase.isEstablished && connection.data.takeBytes(body)
        let answer = isTaken ? nil : serveOrQueue(.arrival, .max, limit, scoped)
        connection.leaveTurn(isTaken ? nil : limit)
        return isTaken ? nil : answer ?? post(.arrival, .max, limit, scoped)
    }

    /// Called inside the turn. Returns `nil` if the pump is needed.
    private func serveOrQueue(
        _ goal: ReadPacket.Goal, _ maxLength: Int, _ limit: OperationLimit, _ scoped: ReadWaiter?
    ) -> DirectRead? {
        guard connection.phase.isEstablished, !connection.data.isClosing else { return nil }
        if connection.data.isQuiet(for: goal), connection.upgrade?.state.isSettled != false {
            // The common case: no bytes are available, and the read only has to be queued.
            let waiter = waiter(limit, scoped)
            connection.data.queue(
                ReadPacket.make(goal, maxLength: maxLength, timeout: -1, completion: .waiter(waiter)))
            connection.publishProgress()
            return .waits(waiter)
        }
        var packet = ReadPacket.make(goal, maxLength: maxLength, timeout: -1, completion: .answered)
        switch connection.data.readAtOnce(&packet, isOpen: connection.isOpenForData) {
        case .complete(let data, _): return .served(data)
        case .failed(let error, _):
            // If too many bytes have arrived, the pump closes the connection.
            return (error as? AsyncSocketError)?.code == .readMaxedOut ? nil : .failed(error)
        case .incomplete, .maxedOut, nil: return nil
        }
    }

    private func waiter(_ limit: OperationLimit, _ scoped: ReadWaiter?) -> ReadWaiter {
        guard let scoped else { return ReadWaiter(limit, isScoped: false) }
        scoped.restart(limit)
        return scoped
    }

    // MARK: - Writes

    enum DirectWrite {
        case done
        /// Complete, but the task has used up its time budget on the loop.
        case doneLate
        case waits(DoneWaiter)

        var mustSuspend: Bool { if case .done = self { false } else { true } }
    }

    /// Writes as much as possible now on behalf of a task, and queues the rest.
    ///
    /// - Parameters:
    ///   - mayCollect: Whether the write may be combined with later writes.
    ///   - makeData: Returns the bytes starting at an offset, for the queue.
    func beginWrite(
        _ bytes: UnsafeRawBufferPointer, _ limit: OperationLimit, mayCollect: Bool = true, makeData: (Int) -> Data
    ) -> DirectWrite {
        guard !bytes.isEmpty else { return .done }
        if connection.turn.enterIfFree() {
            let answer = writeAtOnce(bytes, limit, mayCollect, makeData)
            connection.leaveTurn(limit)
            if case .done = answer { return JobBudget.isUsedUp(by: connection) ? .doneLate : .done }
            if let answer { return answer }
        }
        let waiter = DoneWaiter(.write, limit)
        connection.post(.write(WritePacket(data: makeData(0), timeout: -1, completion: .waiter(waiter))))
        return .waits(waiter)
    }

    /// Writes two parts as one write.
    func beginWrite(
        copying first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, _ limit: OperationLimit
    ) -> DirectWrite {
        var mayCollect = true
        if connection.turn.enterIfFree() {
            mayCollect = connection.phase.isEstablished && connection.isOpenForData && collect(first, second, limit)
            connection.leaveTurn(limit)
            if mayCollect { return JobBudget.isUsedUp(by: connection) ? .doneLate : .done }
        }
        return (Array(first) + second).withUnsafeBytes { beginWrite(copying: $0, limit, mayCollect: mayCollect) }
    }

    /// Copies only the bytes that must be queued.
    func beginWrite(
        copying bytes: UnsafeRawBufferPointer, _ limit: OperationLimit, mayCollect: Bool = true
    ) -> DirectWrite {
        beginWrite(bytes, limit, mayCollect: mayCollect) { Data(bytes.dropFirst($0)) }
    }

    /// Holds a write back so that it can be combined with later writes. It is sent when the task's job
    /// returns, or when no more bytes may be held back. Returns `false` if the write must be sent on its own.
    ///
    /// While received bytes are unread, more writes are likely. Otherwise, a write is held back only if it is
    /// small and not the job's first. A small write after which no more are likely is sent immediately,
    /// together with those held back before it.
    private func collect(
        _ bytes: UnsafeRawBufferPointer, _ more: UnsafeRawBufferPointer?, _ limit: OperationLimit
    ) -> Bool {
        guard let job = connection.loop.currentJob, connection.upgrade?.state.isSettled != false else { return false }
        let data = connection.data
        let count = bytes.count + (more?.count ?? 0)
        let isLast = !data.expectsMoreWrites(in: job, after: count)
        if isLast, !data.isCollecting || count >= WritePacket.smallLimit { return false }
        if !data.mayCollect(count) {
            guard data.isCollecting else { return false }
            data.flush()
            guard !isLast, data.mayCollect(count) else { return false }
        }
        data.collect(bytes, more, timeout: limit.secondsLeft)
        if isLast {
            data.flush()
        } else if connection.outlet.collector.code == nil {
            connection.outlet.collector.open(for: .job)
            connection.loop.whenCodeReturns(connection)
        }
        return true
    }

    /// Returns `nil` if the whole write must be queued.
    private func writeAtOnce(
        _ bytes: UnsafeRawBufferPointer, _ limit: OperationLimit, _ mayCollect: Bool, _ makeData: (Int) -> Data
    ) -> DirectWrite? {
        guard connection.phase.isEstablished, connection.isOpenForData else { return nil }
        if mayCollect, collect(bytes, nil, limit) { return .done }
        guard let (count, isComplete) = connection.data.writeAtOnce(bytes) else { return nil }
        if isComplete { return .done }
        guard count > 0 else { return nil }
        let isBelowMark = bytes.count - count < connection.configuration.value.writeHighWaterMark ?? 0
        let waiter = isBelowMark ? nil : DoneWaiter(.write, limit)
        let completion: Completion<Void> = waiter.map { .waiter($0) } ?? .answered
        connection.data.queueRest(count == bytes.count ? nil : makeData(count), completion)
        return waiter.map { .waits($0) } ?? .done
    }

    func write(_ packet: consuming WritePacket) { connection.write(packet) }

    /// Also called after a completed write, to yield to other work on the loop when the time budget is used
    /// up.
    nonisolated(nonsending) func finish(_ write: DirectWrite) async throws {
        if case .waits(let waiter) = write { try await waiter.value(from: connection) }
        if JobBudget.isUsedUp(by: connection) { await JobBudget.renew() }
    }

    // MARK: - Idle timeout

    /// Closes the connection if no byte moves for `timeout`, except during a handshake, which has a separate
    /// limit.
    ///
    /// - Parameter position: Turns the counters of this connection into the position that has to change.
    @discardableResult
    func endWhenIdle(
        _ timeout: Duration, position: @escaping @Sendable (CarriedBytes) -> CarriedBytes = { $0 }
    ) -> IdleWaiter {
        let waiter = IdleWaiter(timeout, error: .idle(for: timeout)) { [unowned connection] in
            connection.isOpenForData ? position(connection.data.carried) : nil
        }
        connection.post(.awaitEnd(waiter))
        return waiter
    }
}
