internal import SocketBuffers
internal import SocketCore

/// Reads frames from the buffer, one per read.
final class FrameReader<Format: Framing>: @unchecked Sendable {
    // Unchecked: only one read at a time uses a reader, and the read stores the frame before its task
    // resumes.
    let maxLength: Int
    private let framing: Format
    private let resumable: (any ResumableFraming<Format.Frame>)?
    private var frame: Format.Frame?
    private var seen = 0
    private(set) lazy var goal = ReadPacket.Goal.reader(reader)
    private lazy var reader = BufferReader { [unowned self] in take(from: $0, isFirstLook: $1) }

    init(_ framing: Format) {
        self.framing = framing
        resumable = framing as? any ResumableFraming<Format.Frame>
        maxLength = framing.maximumFrameLength
    }

    private func take(from buffer: PreBuffer, isFirstLook: Bool) -> BufferReader.Step {
        if isFirstLook { seen = 0 }
        do throws(AsyncSocketError) {
            switch try decode(buffer.readableBytes.bytes) {
            case .incomplete(let minimum):
                seen = buffer.count
                return .needs(minimum)
            case .frame(let frame, let length):
                guard (0...buffer.count).contains(length) else {
                    throw .badParameter(.read, "the framing consumed \(length) bytes, but the buffer contains \(buffer.count)")
                }
                // The whole frame may have been buffered already, so the limit on reading did not apply.
                guard length <= maxLength else { throw .frameTooLong(length, maximum: maxLength) }
                self.frame = frame
                buffer.consume(length)
                return .done
            }
        } catch {
            return .failed(error)
        }
    }

    private func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Format.Frame> {
        guard let resumable else { return try framing.decode(bytes) }
        return try resumable.decode(bytes, seen: seen)
    }

    func takeFrame() -> Format.Frame? {
        defer { frame = nil }
        return frame
    }
}

extension TaskOperations {
    /// Returns the next frame, or `nil` after an orderly close.
    nonisolated(nonsending) func readFrame<Format>(
        _ reader: FrameReader<Format>, _ limit: OperationLimit
    ) async throws -> Format.Frame? {
        do {
            _ = try await read(reader.goal, reader.maxLength, limit)
            return reader.takeFrame()
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // Bytes of an incomplete frame are still unread, or were unread when the connection closed.
            if try await hasUnreadBytes(limit) { throw error }
            if connection.record.withLock({ $0.snapshot.loss?.value.hasBytes == true }) { throw error }
            return nil
        }
    }

    /// Called after an orderly close.
    private nonisolated(nonsending) func hasUnreadBytes(_ limit: OperationLimit) async throws -> Bool {
        do {
            _ = try await read(.arrival, 1, limit)
            return true
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            return false
        }
    }
}
