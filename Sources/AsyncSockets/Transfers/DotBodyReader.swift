internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// Reads a dot-terminated body piece by piece. If a read fails after the first piece, the connection is
/// closed, because the rest of the body would be read as commands or replies.
final class DotBodyReader: Sendable {
    private struct State {
        var body = DotUnstuffing()
        var piece = Data()
        var byteCount = 0
        var hasConsumed = false

        mutating func take(from buffer: PreBuffer) -> BufferReader.Step {
            let count = body.take(UnsafeRawBufferPointer(buffer.readableBytes), into: &piece)
            guard count > 0 else { return .needs(buffer.count + 1) }
            hasConsumed = true
            buffer.consume(count)
            return .done
        }
    }

    private let operations: TaskOperations
    private let maxLength: Int
    private let limit: OperationLimit
    private let state: Locked<State>
    private let reader: BufferReader

    init(_ operations: TaskOperations, maxLength: Int, _ limit: OperationLimit) {
        (self.operations, self.maxLength, self.limit) = (operations, maxLength, limit)
        let state = Locked(State())
        self.state = state
        reader = BufferReader { buffer, _ in state.withLock { $0.take(from: buffer) } }
    }

    /// Returns the next piece, which may be empty, or `nil` at the end of the body.
    func next() async throws -> Data? {
        if state.withLock({ $0.body.isComplete }) { return nil }
        do {
            _ = try await operations.read(.reader(reader), .max, limit)
        } catch {
            abandon(error)
            throw error
        }
        let (piece, byteCount) = state.withLock { state in
            defer { state.piece = Data() }
            state.byteCount += state.piece.count
            return (state.piece, state.byteCount)
        }
        guard byteCount <= maxLength else {
            let error = AsyncSocketError.readMaxedOut(maxLength)
            abandon(error)
            throw error
        }
        return piece
    }

    /// Closes the connection if part of the body has been consumed.
    func abandon(_ error: any Error) {
        guard state.withLock({ $0.hasConsumed }) else { return }
        operations.connection.post(.fail(error as? AsyncSocketError ?? .closed))
    }

    func all() async throws -> Data {
        var all = Data()
        while let piece = try await next() { all.append(piece) }
        return all
    }
}
