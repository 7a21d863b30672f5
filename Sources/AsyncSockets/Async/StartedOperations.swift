// The operations of a task usually complete at once: the bytes are buffered, or the write is combined with
// later writes. The public methods are therefore inlinable. They start the operation in an ordinary function,
// and call an asynchronous function, which needs memory for its frame, only if the operation must wait.

public import FoundationEssentials
internal import SocketCore

/// A read that has been started.
@usableFromInline
enum StartedRead {
    case completed(Data)
    case pending(PendingRead)
}

@usableFromInline
struct PendingRead {
    let operations: TaskOperations
    let read: TaskOperations.DirectRead

    @usableFromInline
    nonisolated(nonsending) func value() async throws -> Data { try await operations.finish(read) }

    /// Returns `nil` after an orderly close.
    @usableFromInline
    nonisolated(nonsending) func valueBeforeEnd() async throws -> Data? {
        do {
            return try await operations.finish(read)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            return nil
        }
    }
}

/// A read of a line that has been started.
@usableFromInline
enum StartedLine {
    case completed(String)
    case pending(PendingLine)
}

@usableFromInline
struct PendingLine {
    let operations: TaskOperations
    let maxLength: Int
    let limit: OperationLimit
    /// The line, if it has been read and the task has used up its time budget on the loop.
    let late: String?

    /// Returns `nil` after an orderly close.
    @usableFromInline
    nonisolated(nonsending) func value() async throws -> String? {
        guard let late else { return try await operations.readLine(maxLength, limit) }
        await JobBudget.renew()
        return late
    }
}

/// A write that has been started and must wait.
@usableFromInline
struct PendingWrite {
    let operations: TaskOperations
    let write: TaskOperations.DirectWrite

    @usableFromInline
    nonisolated(nonsending) func finish() async throws { try await operations.finish(write) }
}

extension TaskOperations {
    func pending(_ write: DirectWrite) -> PendingWrite? {
        write.mustSuspend ? PendingWrite(operations: self, write: write) : nil
    }

    func startRead(_ goal: ReadPacket.Goal, _ maxLength: Int, _ limit: OperationLimit) -> StartedRead {
        let read = beginRead(goal, maxLength: maxLength, limit)
        if case .served(let data) = read { return .completed(data) }
        return .pending(PendingRead(operations: self, read: read))
    }

    func startLine(_ maxLength: Int, _ limit: OperationLimit) -> StartedLine {
        var late: String?
        if let line = takeLine(maxLength, limit) {
            if !JobBudget.isUsedUp(by: connection) { return .completed(line) }
            late = line
        }
        return .pending(PendingLine(operations: self, maxLength: maxLength, limit: limit, late: late))
    }
}

extension AsyncSocket {
    func startRead(_ goal: ReadPacket.Goal, _ maxLength: Int, _ timeout: Duration?) throws -> StartedRead {
        let limit = OperationLimit(timeout)
        guard let operations else { throw Self.notInUse(.read) }
        return operations.startRead(goal, maxLength, limit)
    }

    @usableFromInline
    func startRead(maxLength: Int, _ timeout: Duration?) throws -> StartedRead {
        try AsyncSocketError.checkMaxLength(maxLength)
        return try startRead(.anyBytes, maxLength, timeout)
    }

    @usableFromInline
    func startRead(exactly count: Int, _ timeout: Duration?) throws -> StartedRead {
        guard count >= 0 else { throw AsyncSocketError.badParameter(.read, "count must be at least 0, but is \(count)") }
        return try startRead(.length(count), count, timeout)
    }

    @usableFromInline
    func startRead(until delimiter: Data, maxLength: Int, _ timeout: Duration?) throws -> StartedRead {
        guard !delimiter.isEmpty, delimiter.count <= maxLength else {
            throw AsyncSocketError.badParameter(
                .read,
                "the delimiter must be 1 to \(maxLength) bytes long (maxLength), but is \(delimiter.count)"
            )
        }
        return try startRead(.delimiter(delimiter), maxLength, timeout)
    }

    @usableFromInline
    func startLine(maxLength: Int, _ timeout: Duration?) throws -> StartedLine {
        try AsyncSocketError.checkMaxLength(maxLength)
        guard let operations else { throw Self.notInUse(.read) }
        return operations.startLine(maxLength, OperationLimit(timeout))
    }

    @usableFromInline
    func startWrite(_ data: Data, _ timeout: Duration?) throws -> PendingWrite? {
        let (operations, limit) = try prepareWrite(timeout)
        return operations.pending(
            data.withUnsafeBytes { bytes in
                operations.beginWrite(bytes, limit) { $0 == 0 ? data : data.dropFirst($0) }
            })
    }

    @usableFromInline
    func startWrite(copying bytes: UnsafeRawBufferPointer, _ timeout: Duration?) throws -> PendingWrite? {
        let (operations, limit) = try prepareWrite(timeout)
        return operations.pending(operations.beginWrite(copying: bytes, limit))
    }

    @usableFromInline
    func startWrite(_ text: consuming String, _ timeout: Duration?) throws -> PendingWrite? {
        try text.withUTF8 { try startWrite(copying: UnsafeRawBufferPointer($0), timeout) }
    }

    @usableFromInline
    func startWrite(line: consuming String, _ end: consuming String, _ timeout: Duration?) throws -> PendingWrite? {
        try line.withUTF8 { line in
            let line = UnsafeRawBufferPointer(line)
            guard !line.hasLineBreak else {
                throw AsyncSocketError.badParameter(.write, "the line contains a carriage return or a line feed")
            }
            let (operations, limit) = try prepareWrite(timeout)
            return end.withUTF8 { end in
                operations.pending(operations.beginWrite(copying: line, UnsafeRawBufferPointer(end), limit))
            }
        }
    }
}
