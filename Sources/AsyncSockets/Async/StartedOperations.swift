// Most operations of tasks complete immediately: the bytes are buffered, or the write is combined with later
// writes. The public methods are therefore inlinable. They start the operation in an ordinary function, and
// call an asynchronous function, which allocates memory for its frame, only if the operation must wait.

public import FoundationEssentials
internal import Glibc
internal import SocketCore

// Operations are started by static functions. An initializer consumes its arguments, so the caller would have
// to retain the socket.

/// A read that has been started.
@usableFromInline
enum StartedRead {
    case completed(Data)
    case pending(PendingRead)

    @usableFromInline
    static func start(on socket: AsyncSocket, maxLength: Int, _ timeout: Duration?) throws -> StartedRead {
        try AsyncSocketError.checkMaxLength(maxLength)
        return try start(on: socket, .anyBytes, maxLength, timeout)
    }

    @usableFromInline
    static func start(on socket: AsyncSocket, exactly count: Int, _ timeout: Duration?) throws -> StartedRead {
        guard count >= 0 else { throw AsyncSocketError.badParameter(.read, "count must be at least 0, but is \(count)") }
        return try start(on: socket, .length(count), count, timeout)
    }

    @usableFromInline
    static func start(
        on socket: AsyncSocket, until delimiter: Data, maxLength: Int, _ timeout: Duration?
    ) throws -> StartedRead {
        guard !delimiter.isEmpty, delimiter.count <= maxLength else {
            throw AsyncSocketError.badParameter(
                .read,
                "the delimiter must be 1 to \(maxLength) bytes long (maxLength), but is \(delimiter.count)"
            )
        }
        return try start(on: socket, .delimiter(delimiter), maxLength, timeout)
    }

    private static func start(
        on socket: AsyncSocket, _ goal: ReadPacket.Goal, _ maxLength: Int, _ timeout: Duration?
    ) throws -> StartedRead {
        let limit = OperationLimit(timeout)
        guard let operations = socket.operations else { throw AsyncSocket.notInUse(.read) }
        let read = operations.beginRead(goal, maxLength: maxLength, limit)
        if case .served(let data) = read { return .completed(data) }
        return .pending(PendingRead(operations: operations, read: read))
    }
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

    @usableFromInline
    static func start(on socket: AsyncSocket, maxLength: Int, _ timeout: Duration?) throws -> StartedLine {
        try AsyncSocketError.checkMaxLength(maxLength)
        guard let operations = socket.operations else { throw AsyncSocket.notInUse(.read) }
        return operations.startLine(maxLength, OperationLimit(timeout))
    }
}

@usableFromInline
struct PendingLine {
    private static let lineFeed = Data([0x0A])

    let operations: TaskOperations
    let maxLength: Int
    let limit: OperationLimit
    /// The line, if it has been read and the task has used up its time budget on the loop.
    let late: String?

    /// Returns `nil` after an orderly close.
    @usableFromInline
    nonisolated(nonsending) func value() async throws -> String? {
        if let late {
            await JobBudget.renew()
            return late
        }
        do {
            let line = try await operations.read(.delimiter(Self.lineFeed), maxLength, limit)
            return line.withUnsafeBytes { String(line: $0) }
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // The last bytes before the close also form a line, even without a line feed.
            return try await rest()
        }
    }

    private nonisolated(nonsending) func rest() async throws -> String? {
        do {
            return String(decoding: try await operations.read(.anyBytes, maxLength, limit), as: UTF8.self)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            return nil
        }
    }
}

/// A write that has been started and must wait. The functions return `nil` if the write is complete.
@usableFromInline
struct PendingWrite {
    fileprivate let operations: TaskOperations
    fileprivate let write: TaskOperations.DirectWrite

    @usableFromInline
    static func start(on socket: AsyncSocket, _ data: Data, _ timeout: Duration?) throws -> PendingWrite? {
        let (operations, limit) = try socket.prepareWrite(timeout)
        let write = data.withUnsafeBytes { bytes in
            operations.beginWrite(bytes, limit) { $0 == 0 ? data : data.dropFirst($0) }
        }
        return operations.pending(write)
    }

    @usableFromInline
    static func start(
        on socket: AsyncSocket, copying bytes: UnsafeRawBufferPointer, _ timeout: Duration?
    ) throws -> PendingWrite? {
        let (operations, limit) = try socket.prepareWrite(timeout)
        return operations.pending(operations.beginWrite(copying: bytes, limit))
    }

    @usableFromInline
    static func start(on socket: AsyncSocket, _ text: String, _ timeout: Duration?) throws -> PendingWrite? {
        let (operations, limit) = try socket.prepareWrite(timeout)
        var text = text
        return text.withUTF8 { operations.pending(operations.beginWrite(copying: UnsafeRawBufferPointer($0), limit)) }
    }

    @usableFromInline
    static func start(
        on socket: AsyncSocket, line: String, endingWith end: String, _ timeout: Duration?
    ) throws -> PendingWrite? {
        var (line, end) = (line, end)
        return try line.withUTF8 { line in
            let line = UnsafeRawBufferPointer(line)
            guard !line.hasLineBreak else {
                throw AsyncSocketError.badParameter(.write, "the line contains a carriage return or a line feed")
            }
            let (operations, limit) = try socket.prepareWrite(timeout)
            return end.withUTF8 { operations.pending(operations.beginWrite(copying: line, UnsafeRawBufferPointer($0), limit)) }
        }
    }

    @usableFromInline
    nonisolated(nonsending) func finish() async throws { try await operations.finish(write) }
}

extension TaskOperations {
    func startLine(_ maxLength: Int, _ limit: OperationLimit) -> StartedLine {
        let line = takeLine(maxLength, limit)
        if let line, !JobBudget.isUsedUp(by: connection) { return .completed(line) }
        return .pending(PendingLine(operations: self, maxLength: maxLength, limit: limit, late: line))
    }

    fileprivate func pending(_ write: DirectWrite) -> PendingWrite? {
        write.mustSuspend ? PendingWrite(operations: self, write: write) : nil
    }
}

extension String {
    /// Decodes a line that includes its line feed. Removes it and a carriage return that precedes it.
    init(line bytes: UnsafeRawBufferPointer) {
        let end = bytes.count >= 2 && bytes[bytes.count - 2] == 0x0D ? bytes.count - 2 : bytes.count - 1
        self.init(decoding: UnsafeRawBufferPointer(rebasing: bytes[..<end]), as: UTF8.self)
    }
}

extension UnsafeRawBufferPointer {
    /// Whether the bytes contain a carriage return or a line feed.
    fileprivate var hasLineBreak: Bool {
        guard let baseAddress else { return false }
        return memchr(baseAddress, 0x0A, count) != nil || memchr(baseAddress, 0x0D, count) != nil
    }
}
