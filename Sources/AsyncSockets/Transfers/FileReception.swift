internal import Dispatch
internal import FoundationEssentials
internal import SocketCore
internal import Synchronization

/// Receives a file by alternately reading a piece from the connection and writing it to the file. Only one
/// piece is in memory at a time, and a slow disk slows down the peer.
final class FileReception: Sendable {
    enum Length: Sendable {
        case exactly(Int)
        /// Up to the end of the stream, with at most `maxLength` bytes.
        case toEnd(maxLength: Int)

        var total: Int? {
            if case .exactly(let count) = self { count } else { nil }
        }
    }

    private static let pieceLimit = 256 * 1024

    private let operations: TaskOperations
    private let path: String
    private let length: Length
    private let limit: OperationLimit
    private let queue = FileQueue.next()
    private let written = Atomic(0)

    init(_ operations: TaskOperations, _ path: String, _ length: Length, _ limit: OperationLimit) {
        self.operations = operations
        self.path = path
        self.length = length
        self.limit = limit
    }

    private var byteCount: Int { written.load(ordering: .relaxed) }

    /// Receives the file. When the complete file exists under its name, returns its number of bytes.
    nonisolated(nonsending) func run(_ report: ((TransferProgress) -> Void)?) async throws -> Int {
        try limit.check(.read)
        let path = path
        let file = try await onQueue { () throws(SystemError) in try ReceivedFile(path: path) }
        var meter = TransferMeter(total: length.total)
        return try await meter.reporting(to: report, count: { self.byteCount }) {
            do {
                try await self.receive(file)
                return self.byteCount
            } catch {
                await self.queue.run { file.discard() }
                guard let error = error as? AsyncSocketError else { throw error }
                throw error.after(self.byteCount, of: self.length.total, self.path)
            }
        }
    }

    private func receive(_ file: ReceivedFile) async throws {
        while let piece = try await nextPiece() {
            try await onQueue { () throws(SystemError) in try file.append(piece) }
            written.add(piece.count, ordering: .relaxed)
        }
        try Task.checkCancellation()
        try await onQueue { () throws(SystemError) in try file.finish() }
    }

    /// Returns `nil` when the file is complete.
    private func nextPiece() async throws -> Data? {
        switch length {
        case .exactly(let count):
            let rest = count - byteCount
            return rest == 0 ? nil : try await operations.read(.anyBytes, min(rest, Self.pieceLimit), limit)
        case .toEnd(let maxLength):
            let rest = maxLength - byteCount
            do {
                let piece = try await operations.read(.anyBytes, min(max(rest, 1), Self.pieceLimit), limit)
                guard rest == 0 else { return piece }
            } catch let error as AsyncSocketError where error.isOrderlyEnd {
                return nil
            }
            let error = AsyncSocketError.readMaxedOut(maxLength)
            operations.connection.post(.fail(error))
            throw error
        }
    }

    /// Runs file operations on a queue where they may block.
    private func onQueue<Value: Sendable>(
        _ body: @escaping @Sendable () throws(SystemError) -> Value
    ) async throws -> Value {
        let result = await queue.run { () -> Result<Value, SystemError> in
            do throws(SystemError) { return .success(try body()) } catch { return .failure(error) }
        }
        return try result.mapError { AsyncSocketError(file: $0, path: path, operation: .readToFile) }.get()
    }
}

/// A queue for calls that block on a disk. The number of queues is small, which limits the number of threads
/// that a hanging disk can block.
struct FileQueue: Sendable {
    private static let all = (0..<4).map { DispatchQueue(label: "AsyncSockets.files.\($0)") }
    private static let count = Atomic(0)

    private let queue: DispatchQueue

    static func next() -> FileQueue {
        let number = count.add(1, ordering: .relaxed).oldValue
        return FileQueue(queue: all[(number & .max) % all.count])
    }

    nonisolated(nonsending) func run<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            queue.async { continuation.resume(returning: body()) }
        }
    }
}
