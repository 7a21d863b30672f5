internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// Reads a dot-terminated body piece by piece. If a read fails after the first piece, the connection is
/// closed, because the rest of the body would be read as commands or replies.
final class DotBodyReader: @unchecked Sendable {
    // Unchecked: only one read at a time uses a reader, and the read stores the piece before its task
    // resumes.
    private let operations: TaskOperations
    private let maxLength: Int
    private let limit: OperationLimit
    private var body = DotUnstuffing()
    private var piece = Data()
    private var byteCount = 0
    private var hasBegun = false
    private lazy var reader = BufferReader { [unowned self] buffer, _ in take(from: buffer) }

    init(_ operations: TaskOperations, maxLength: Int, _ limit: OperationLimit) {
        (self.operations, self.maxLength, self.limit) = (operations, maxLength, limit)
    }

    private func take(from buffer: PreBuffer) -> BufferReader.Step {
        let count = body.take(UnsafeRawBufferPointer(buffer.readableBytes), into: &piece)
        guard count > 0 else { return .needs(buffer.count + 1) }
        hasBegun = true
        buffer.consume(count)
        return .done
    }

    /// Returns the next piece, which may be empty, or `nil` at the end of the body.
    func next() async throws -> Data? {
        if body.isComplete { return nil }
        do {
            _ = try await operations.read(.reader(reader), .max, limit)
        } catch {
            abandon(error)
            throw error
        }
        defer { piece = Data() }
        byteCount += piece.count
        guard byteCount <= maxLength else {
            let error = AsyncSocketError.readMaxedOut(maxLength)
            abandon(error)
            throw error
        }
        return piece
    }

    /// Closes the connection if part of the body has been consumed.
    func abandon(_ error: any Error) {
        guard hasBegun else { return }
        operations.connection.post(.fail(error as? AsyncSocketError ?? .closed))
    }

    func all() async throws -> Data {
        var all = Data()
        while let piece = try await next() { all.append(piece) }
        return all
    }
}

/// Writes a dot-terminated body. If it is interrupted, the connection is closed, because the peer would read
/// what is sent next as the rest of the body.
struct DotBodyWriter {
    private static let pieceLimit = 128 * 1024

    let operations: TaskOperations
    let limit: OperationLimit

    nonisolated(nonsending) func write(_ data: Data) async throws {
        var stuffing = DotStuffing()
        var encoded = data.withUnsafeBytes { stuffing.encode($0) }
        encoded.append(stuffing.end)
        try await send(encoded)
    }

    nonisolated(nonsending) func write(_ file: FileRegion, _ path: String, _ report: ((TransferProgress) -> Void)?) async throws {
        let queue = FileQueue.next()
        var meter = TransferMeter(total: file.length)
        try await meter.reporting(to: report, count: { file.handedOnCount }) {
            var stuffing = DotStuffing()
            while file.handedOnCount < file.length {
                let position = file.handedOnCount
                let piece = await queue.run { Self.read(file, at: position) }
                do {
                    let bytes = try piece.mapError { AsyncSocketError(file: $0, path: path, operation: .write) }.get()
                    try await send(bytes.withUnsafeBytes { stuffing.encode($0) })
                    file.noteHandedOn(bytes.count)
                } catch {
                    operations.connection.post(.fail(error as? AsyncSocketError ?? .closed))
                    guard let error = error as? AsyncSocketError else { throw error }
                    throw error.after(position, of: file.length, path)
                }
            }
            try await send(stuffing.end)
        }
    }

    private static func read(_ file: FileRegion, at position: Int) -> Result<Data, SystemError> {
        var piece = Data(count: min(file.length - position, pieceLimit))
        let result = piece.withUnsafeMutableBytes { room -> Result<Int, SystemError> in
            do throws(SystemError) { return .success(try file.read(at: position, into: room)) } catch { return .failure(error) }
        }
        return result.map { piece.prefix($0) }
    }

    private nonisolated(nonsending) func send(_ data: Data) async throws {
        do {
            try limit.check(.write)
            let answer = data.withUnsafeBytes { bytes in
                operations.beginWrite(bytes, limit) { $0 == 0 ? data : data.dropFirst($0) }
            }
            if answer.mustSuspend { try await operations.finish(answer) }
        } catch {
            operations.connection.post(.fail(error as? AsyncSocketError ?? .closed))
            throw error
        }
    }
}
