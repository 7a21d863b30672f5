// Article: formats
import AsyncSockets
import Foundation

/// Sends a request and returns the response. Both have a four-byte length prefix.
func ask(_ request: Data, on socket: AsyncSocket) async throws -> Data? {
    let format = LengthPrefixed<UInt32>(maxLength: 64 * 1024)
    try await socket.write(request, as: format, timeout: .seconds(10))
    return try await socket.readFrame(format, timeout: .seconds(10))
}

/// Prints zero-terminated records.
func printRecords(of socket: AsyncSocket) async throws {
    for try await record in socket.frames(Delimited(by: AsyncSocket.zero)) {
        print(String(decoding: record, as: UTF8.self))
    }
}
// Article: end

// Article: own
/// A frame of HTTP/2 (RFC 9113, section 4.1).
struct HTTP2Frame: Sendable {
    var type: UInt8
    var flags: UInt8 = 0
    var stream: UInt32 = 0
    var payload = Data()
}

/// Nine bytes and the payload: its length in three bytes, the type, the flags and the stream.
struct HTTP2Frames: Framing {
    let maximumFrameLength = 9 + 16_384

    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<HTTP2Frame> {
        guard let count = bytes.integer(UInt32.self, at: 0, width: 3),
            let type = bytes.integer(UInt8.self, at: 3),
            let flags = bytes.integer(UInt8.self, at: 4),
            let stream = bytes.integer(UInt32.self, at: 5)
        else { return .incomplete(minimumLength: 9) }
        let end = 9 + Int(count)
        guard end <= maximumFrameLength else { throw .malformedFrame("the payload has \(count) bytes") }
        guard bytes.byteCount >= end else { return .incomplete(minimumLength: end) }
        let payload = bytes.extracting(9..<end).withUnsafeBytes { Data($0) }
        return .frame(HTTP2Frame(type: type, flags: flags, stream: stream, payload: payload), length: end)
    }

    func encode(_ frame: HTTP2Frame, into bytes: inout Data) throws(AsyncSocketError) {
        try bytes.append(integer: UInt32(clamping: frame.payload.count), width: 3)
        try bytes.append(integer: frame.type)
        try bytes.append(integer: frame.flags)
        try bytes.append(integer: frame.stream)
        bytes.append(frame.payload)
    }
}
// Article: end
