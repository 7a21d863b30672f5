// Article: formats
import AsyncSockets
import Foundation

/// Sends a request, and returns the answer: each with its length before it, in four bytes.
func ask(_ request: Data, on socket: AsyncSocket) async throws -> Data? {
    let format = LengthPrefixed<UInt32>(maxLength: 64 * 1024)
    try await socket.write(request, as: format, timeout: .seconds(10))
    return try await socket.readFrame(format, timeout: .seconds(10))
}

/// Prints records that end with a zero byte.
func printRecords(of socket: AsyncSocket) async throws {
    for try await record in socket.frames(Delimited(by: AsyncSocket.zero)) {
        print(String(decoding: record, as: UTF8.self))
    }
}
// Article: end

// Article: own
/// Bulk strings of RESP: `$5\r\nhello\r\n`.
struct BulkStrings: Framing {
    let maximumFrameLength = 1 << 20

    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> {
        var position = 1
        var count = 0
        while position < bytes.byteCount, let digit = digit(bytes.byte(at: position)), count < maximumFrameLength {
            count = count * 10 + digit
            position += 1
        }
        guard bytes.byteCount > position else { return .incomplete(minimumLength: position + 1) }
        guard bytes.byte(at: 0) == UInt8(ascii: "$"), position > 1, bytes.byte(at: position) == UInt8(ascii: "\r") else {
            throw .malformedFrame("this is no bulk string")
        }
        let start = position + 2
        let end = start + count
        guard bytes.byteCount >= end + 2 else { return .incomplete(minimumLength: end + 2) }
        return .frame(bytes.extracting(start..<end).withUnsafeBytes { Data($0) }, length: end + 2)
    }

    func encode(_ frame: Data, into bytes: inout Data) throws(AsyncSocketError) {
        bytes.append(contentsOf: Array("$\(frame.count)\r\n".utf8))
        bytes.append(frame)
        bytes.append(AsyncSocket.crlf)
    }

    private func digit(_ byte: UInt8) -> Int? {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) ? Int(byte - UInt8(ascii: "0")) : nil
    }
}

extension RawSpan {
    /// The bounds are checked. "unsafe" is about the type, and every byte is a `UInt8`.
    fileprivate func byte(at position: Int) -> UInt8 { unsafeLoad(fromByteOffset: position, as: UInt8.self) }
}
// Article: end
