internal import SocketBuffers

/// Parses bytes in place, inside the turn. It serves reads that cannot be described by a length or a
/// delimiter.
final class BufferReader: @unchecked Sendable {
    // Unchecked: a reader belongs to one read at a time, which is confined to a turn.

    enum Step {
        /// The reader has consumed its bytes and stored the result.
        case done
        /// The reader consumed no bytes. It is called again when the buffer has at least this many bytes.
        case needs(Int)
        /// The bytes are invalid. The reader consumed no bytes.
        case failed(any Error)
    }

    enum Answer {
        case done
        case incomplete
        case failed(any Error)
    }

    private let body: (PreBuffer, _ isFirstLook: Bool) -> Step
    private let firstMinimum: Int
    private var minimum: Int
    private var isFirstLook = true

    /// - Parameters:
    ///   - minimum: The number of bytes required for the first call of `body`.
    ///   - body: Parses the buffered bytes and consumes the bytes it needs.
    init(minimum: Int = 1, _ body: @escaping (PreBuffer, _ isFirstLook: Bool) -> Step) {
        firstMinimum = minimum
        self.minimum = minimum
        self.body = body
    }

    func restart() {
        minimum = firstMinimum
        isFirstLook = true
    }

    func look(at buffer: PreBuffer) -> Answer {
        guard buffer.count >= minimum else { return .incomplete }
        defer { isFirstLook = false }
        switch body(buffer, isFirstLook) {
        case .done: return .done
        case .failed(let error): return .failed(error)
        case .needs(let count):
            minimum = max(count, buffer.count + 1)
            return .incomplete
        }
    }
}
