// Most operations of tasks complete immediately: the bytes are buffered, or the write is combined with later
// writes. The public methods are therefore inlinable. They start the operation in an ordinary function, and
// call an asynchronous function, which allocates memory for its frame, only if the operation must wait.

public import FoundationEssentials
internal import Glibc
internal import SocketCore

/// A read that has been started.
@usableFromInline
enum StartedRead {
    case completed(Data)
    case pending(PendingRead)

    @usableFromInline
    init(of socket: AsyncSocket, maxLength: Int, _ timeout: Duration?) throws {
        try AsyncSocketError.checkMaxLength(maxLength)
        try self.init(of: socket, .anyBytes, maxLength, timeout)
    }

    @usableFromInline
    init(of socket: AsyncSocket, exactly count: Int, _ timeout: Duration?) throws {
        guard count >= 0 else { throw AsyncSocketError.badParameter(.read, "count must be at least 0, but is \(count)") }
        try self.init(of: socket, .length(count), count, timeout)
    }

    @usableFromInline
    init(of socket: AsyncSocket, until delimiter: Data, maxLength: Int, _ timeout: Duration?) throws {
        guard !delimiter.isEmpty, delimiter.count <= maxLength else {
            throw AsyncSocketError.badParameter(
                .read,
                "the delimiter must be 1 to \(maxLength) bytes long (maxLength), but is \(delimiter.count)"
            )
        }
        try self.init(of: socket, .delimiter(delimiter), maxLength, timeout)
    }

    private init(of socket: AsyncSocket, _ goal: ReadPacket.Goal, _ maxLength: Int, _ timeout: Duration?) throws {
        let limit = OperationLimit(timeout)
        guard let operations = socket.operations else { throw AsyncSocket.notInUse(.read) }
        let read = operations.beginRead(goal, maxLength: maxLength, limit)
        if case .served(let data) = read {
            self = .completed(data)
        } else {
            self = .pending(PendingRead(operations: operations, read: read))
        }
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
    init(of socket: AsyncSocket, maxLength: Int, _ timeout: Duration?) throws {
        try AsyncSocketError.checkMaxLength(maxLength)
        guard let operations = socket.operations else { throw AsyncSocket.notInUse(.read) }
        self.init(operations, maxLength, OperationLimit(timeout))
    }

    init(_ operations: TaskOperations, _ maxLength: Int, _ limit: OperationLimit) {
        var late: String?
        if let line = operations.takeLine(maxLength, limit) {
            if !JobBudget.isUsedUp(by: operations.connection) {
                self = .completed(line)
                return
            }
            late = line
        }
        self = .pending(PendingLine(operations: operations, maxLength: maxLength, limit: limit, late: late))
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

/// A write that has been started and must wait. The initializers return `nil` if the write is complete.
@usableFromInline
struct PendingWrite {
    private let operations: TaskOperations
    private let write: TaskOperations.DirectWrite

    private init?(_ operations: TaskOperations, _ write: TaskOperations.DirectWrite) {
        guard write.mustSuspend else { return nil }
        (self.operations, self.write) = (operations, write)
    }

    @usableFromInline
    init?(on socket: AsyncSocket, _ data: Data, _ timeout: Duration?) throws {
        let (operations, limit) = try socket.prepareWrite(timeout)
        let write = data.withUnsafeBytes { bytes in
            operations.beginWrite(bytes, limit) { $0 == 0 ? data : data.dropFirst($0) }
        }
        self.init(operations, write)
    }

    @usableFromInline
    init?(on socket: AsyncSocket, copying bytes: UnsafeRawBufferPointer, _ timeout: Duration?) throws {
        let (operations, limit) = try socket.prepareWrite(timeout)
        self.init(operations, operations.beginWrite(copying: bytes, limit))
    }

    @usableFromInline
    init?(on socket: AsyncSocket, _ text: String, _ timeout: Duration?) throws {
        let (operations, limit) = try socket.prepareWrite(timeout)
        var text = text
        let write = text.withUTF8 { operations.beginWrite(copying: UnsafeRawBufferPointer($0), limit) }
        self.init(operations, write)
    }

    @usableFromInline
    init?(on socket: AsyncSocket, line: String, endingWith end: String, _ timeout: Duration?) throws {
        var (line, end) = (line, end)
        let (operations, write) = try line.withUTF8 { line in
            let line = UnsafeRawBufferPointer(line)
            guard !line.hasLineBreak else {
                throw AsyncSocketError.badParameter(.write, "the line contains a carriage return or a line feed")
            }
            let (operations, limit) = try socket.prepareWrite(timeout)
            return (operations, end.withUTF8 { operations.beginWrite(copying: line, UnsafeRawBufferPointer($0), limit) })
        }
        self.init(operations, write)
    }

    @usableFromInline
    nonisolated(nonsending) func finish() async throws { try await operations.finish(write) }
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
