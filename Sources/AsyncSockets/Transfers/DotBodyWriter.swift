internal import FoundationEssentials
internal import SocketCore

/// Writes a dot-terminated body. If it is interrupted, the connection is closed, because the peer would read
/// later data as the rest of the body.
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
