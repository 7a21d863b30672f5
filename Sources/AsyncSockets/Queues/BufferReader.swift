internal import SocketBuffers

/// Reads bytes where they lie, inside the turn: the goal of a read that no number of bytes and no delimiter
/// describes.
final class BufferReader: @unchecked Sendable {
    // Unchecked: it belongs to one read at a time, which is confined to a turn.

    /// The result of one look at the buffer.
    enum Step {
        /// It has taken what it wants, and has the result.
        case done
        /// It has taken nothing. The next look comes when the buffer has at least so many bytes.
        case needs(Int)
        /// The bytes are wrong. It has taken nothing.
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
    ///   - minimum: The bytes that must be there for the first look.
    ///   - body: Looks at the bytes and takes what it wants.
    init(minimum: Int = 1, _ body: @escaping (PreBuffer, _ isFirstLook: Bool) -> Step) {
        firstMinimum = minimum
        self.minimum = minimum
        self.body = body
    }

    /// Begins a read.
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
