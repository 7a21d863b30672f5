internal import Dispatch
internal import FoundationEssentials
internal import SocketCore
internal import Synchronization

/// Receives a file: one piece is read from the connection, then written, and so on. So memory holds one
/// piece, and a slow disk slows the peer down.
final class FileReception: Sendable {
    /// Where the file ends.
    enum Length: Sendable {
        case exactly(Int)
        /// With the stream, after at most so many bytes.
        case toEnd(maxLength: Int)

        var total: Int? {
            if case .exactly(let count) = self { count } else { nil }
        }
    }

    /// The most bytes of a piece.
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

    /// The bytes that are in the file.
    private var byteCount: Int { written.load(ordering: .relaxed) }

    /// Returns the number of bytes when the file is there under its name.
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

    /// Nil when the file is whole.
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

    /// Does something with the file where it may block.
    private func onQueue<Value: Sendable>(
        _ body: @escaping @Sendable () throws(SystemError) -> Value
    ) async throws -> Value {
        let result = await queue.run { () -> Result<Value, SystemError> in
            do throws(SystemError) { return .success(try body()) } catch { return .failure(error) }
        }
        return try result.mapError { AsyncSocketError(file: $0, path: path, operation: "readToFile") }.get()
    }
}

/// A queue for calls that wait for a disk. There are few: a disk that hangs takes no more threads.
struct FileQueue: Sendable {
    private static let all = (0..<4).map { DispatchQueue(label: "AsyncSockets.files.\($0)") }
    private static let count = Atomic(0)

    private let queue: DispatchQueue

    /// The next one, in turn.
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
