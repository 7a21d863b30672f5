internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

final class LineReader: @unchecked Sendable {
    // Unchecked: only one read uses a reader at a time, and it writes the text before its task continues.
    let maxLength: Int
    private(set) var text = ""
    private(set) lazy var goal = ReadPacket.Goal.reader(reader)
    private lazy var reader = BufferReader { [unowned self] buffer, _ in take(from: buffer) }

    init(maxLength: Int) {
        self.maxLength = maxLength
    }

    private func take(from buffer: PreBuffer) -> BufferReader.Step {
        // A line that is too long is never complete, so the read fails when the buffer exceeds its maximum.
        guard let count = buffer.endOfLine(), count <= maxLength else { return .needs(buffer.count + 1) }
        var bytes = UnsafeRawBufferPointer(rebasing: buffer.readableBytes.prefix(count - 1))
        if bytes.last == 0x0D { bytes = UnsafeRawBufferPointer(rebasing: bytes.dropLast()) }
        text = String(decoding: bytes, as: UTF8.self)
        buffer.consume(count)
        return .done
    }
}

extension TaskOperations {
    /// Reads the next line. Returns `nil` after an orderly close.
    nonisolated(nonsending) func readLine(_ line: LineReader, _ limit: OperationLimit) async throws -> String? {
        do {
            _ = try await read(line.goal, line.maxLength, limit)
            return line.text
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // The last bytes before the close also form a line, even without a line feed.
            return try await readRest(line.maxLength, limit)
        }
    }

    private nonisolated(nonsending) func readRest(_ maxLength: Int, _ limit: OperationLimit) async throws -> String? {
        do {
            return String(decoding: try await read(.anyBytes, maxLength, limit), as: UTF8.self)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            return nil
        }
    }
}
