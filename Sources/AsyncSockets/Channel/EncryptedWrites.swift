internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

extension TLSEngine {
    enum EncryptAnswer {
        /// Encrypted everything, or as much as a block of `output` can hold.
        case produced
        /// The engine accepts no data until the peer's next message is complete.
        case incomplete
        case failed(StreamEnding.WriteFailure)
    }

    /// Encrypts queued writes until the block of `output` is full or the queue is empty.
    func encrypt(_ writes: WriteHalf) -> EncryptAnswer {
        while writes.waitingByteCount > 0 {
            let records = (BufferPool.blockSize - output.count) / Self.encryptedRecordLimit
            guard records > 0 else { break }
            do throws(SystemError) {
                switch try encryptNext(of: writes, limit: records * Self.recordLimit) {
                case .accepted(let count): writes.handOn(count)
                case nil: return .produced
                case .incomplete: return .incomplete
                case .failed(let error):
                    return .failed(.init(AsyncSocketError(error, operation: .write), isFileBroken: false))
                }
            } catch {
                return .failed(.init(AsyncSocketError(error, operation: .write), isFileBroken: true))
            }
        }
        return .produced
    }

    /// Encrypts bytes that are not queued, until the block of `output` is full. Sets `count` to the number
    /// consumed.
    func encrypt(_ bytes: UnsafeRawBufferPointer, _ count: inout Int) -> EncryptAnswer {
        while count < bytes.count {
            let records = (BufferPool.blockSize - output.count) / Self.encryptedRecordLimit
            guard records > 0 else { break }
            let next = bytes[count...].prefix(records * Self.recordLimit)
            switch write(UnsafeRawBufferPointer(rebasing: next)) {
            case .accepted(let step): count += step
            case .incomplete: return .incomplete
            case .failed(let error):
                return .failed(.init(AsyncSocketError(error, operation: .write), isFileBroken: false))
            }
        }
        return .produced
    }

    /// Encrypts at most `limit` bytes of one write, or several small writes as one record. Returns `nil` if
    /// the queue is empty.
    private func encryptNext(of writes: WriteHalf, limit: Int) throws(SystemError) -> WriteAnswer? {
        guard let file = writes.nextFile else {
            var answer: WriteAnswer?
            _ = writes.withNextBytes(limit: Self.recordLimit, alone: limit) { answer = write($0) }
            return answer
        }
        let count = min(file.remaining, limit)
        let scratch = PreBuffer()
        defer { scratch.reset() }
        let room = scratch.writableBytes(minimum: count).prefix(count)
        scratch.commit(try file.region.read(at: file.position, into: UnsafeMutableRawBufferPointer(rebasing: room)))
        return write(scratch.readableBytes)
    }
}
