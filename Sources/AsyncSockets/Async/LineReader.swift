internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// Reads lines of text out of the buffer, one after the other.
final class LineReader: @unchecked Sendable {
    // Unchecked: a reader belongs to one read at a time, which writes the text before its task goes on.
    let maxLength: Int
    private(set) var text = ""
    private(set) lazy var goal = ReadPacket.Goal.reader(reader)
    private lazy var reader = BufferReader { [unowned self] buffer, _ in take(from: buffer) }

    init(maxLength: Int) {
        self.maxLength = maxLength
    }

    private func take(from buffer: PreBuffer) -> BufferReader.Step {
        // A line that is too long is never complete: the read finds more bytes than it may have.
        guard let count = buffer.endOfLine(), count <= maxLength else { return .needs(buffer.count + 1) }
        var bytes = UnsafeRawBufferPointer(rebasing: buffer.readableBytes.prefix(count - 1))
        if bytes.last == 0x0D { bytes = UnsafeRawBufferPointer(rebasing: bytes.dropLast()) }
        text = String(decoding: bytes, as: UTF8.self)
        buffer.consume(count)
        return .done
    }
}

extension TaskOperations {
    /// The next line; nil after an orderly end.
    nonisolated(nonsending) func readLine(_ line: LineReader, _ limit: OperationLimit) async throws -> String? {
        do {
            _ = try await read(line.goal, line.maxLength, limit)
            return line.text
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // The last bytes before the end are a line too, even without a line feed.
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
