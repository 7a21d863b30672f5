internal import FoundationEssentials
internal import Glibc
internal import SocketBuffers
internal import SocketCore

extension TaskOperations {
    private static let lineFeed = Data([0x0A])

    /// Reads the next line. Returns `nil` after an orderly close. Call it if `takeLine` returns `nil`.
    nonisolated(nonsending) func readLine(_ maxLength: Int, _ limit: OperationLimit) async throws -> String? {
        do {
            let line = try await read(.delimiter(Self.lineFeed), maxLength, limit)
            return line.withUnsafeBytes { String(line: $0) }
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            // The last bytes before the close also form a line, even without a line feed.
            return try await readRest(maxLength, limit)
        }
    }

    private nonisolated(nonsending) func readRest(_ maxLength: Int, _ limit: OperationLimit) async throws -> String? {
        do {
            return String(decoding: try await read(.anyBytes, maxLength, limit), as: UTF8.self)
        } catch let error as AsyncSocketError where error.isOrderlyEnd {
            return nil
        }
    }

    /// Returns the next line if it has arrived completely and can be read without waiting. Returns `nil` in
    /// every other case, including errors, without consuming anything.
    func takeLine(_ maxLength: Int, _ limit: OperationLimit) -> String? {
        guard limit.isOpen, connection.turn.enterIfFree() else { return nil }
        defer { connection.leaveTurn(nil) }
        guard connection.phase.isEstablished else { return nil }
        return connection.data.takeLine(maxLength) { String(line: $0) }
    }
}

extension String {
    /// Decodes a line that ends with a line feed, which is removed together with a preceding carriage return.
    fileprivate init(line bytes: UnsafeRawBufferPointer) {
        let end = bytes.count >= 2 && bytes[bytes.count - 2] == 0x0D ? bytes.count - 2 : bytes.count - 1
        self.init(decoding: UnsafeRawBufferPointer(rebasing: bytes[..<end]), as: UTF8.self)
    }
}

extension UnsafeRawBufferPointer {
    /// Whether the bytes contain a carriage return or a line feed.
    var hasLineBreak: Bool {
        guard let baseAddress else { return false }
        return memchr(baseAddress, 0x0A, count) != nil || memchr(baseAddress, 0x0D, count) != nil
    }
}
