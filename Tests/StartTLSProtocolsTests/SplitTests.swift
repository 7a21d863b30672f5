import StartTLSProtocols
import Testing

/// The same bytes give the same result, however they are divided into segments.
@Suite struct SplitTests {
    /// Bytes that no protocol expects in most of its states.
    private static let unexpected: [[UInt8]] = [
        [21, 3, 3, 0, 2, 2, 40], [22, 3, 1, 0, 5, 1, 0, 0, 1, 9], [22, 65, 66, 13, 10], [21, 0, 0, 0, 0, 0, 0, 0, 10],
        Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8), Array("E\0\0\0\u{0B}SFATAL\0".utf8), Array("EFATAL: no\n\0".utf8),
        Array("<html>no</html>\r\n".utf8), Array("554 5.7.0 no\r\n".utf8), Array("* BYE no\r\n".utf8), Array("-ERR no\r\n".utf8),
        [0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2], [0x30, 12, 2, 1, 1, 0x78, 7, 10, 1, 51, 4, 0, 4, 0],
        [19, 0, 0, 0, 0xFF, 0x10, 4]
            + Array("Too many clients".utf8), [UInt8](repeating: 0xFF, count: 12), [UInt8](repeating: 0, count: 12),
    ]

    @Test(arguments: Transcript.all) func errorsDoNotDependOnSegments(_ transcript: Transcript) throws {
        for state in 0..<transcript.peerTurns.count {
            for bytes in Self.unexpected {
                let whole = try Self.result(transcript, state, [bytes])
                for segments in splits(of: bytes) {
                    let result = try Self.result(transcript, state, segments)
                    #expect(result == whole, "\(bytes) in state \(state), in pieces of \(segments.map(\.count)) bytes")
                }
            }
        }
    }

    /// Receives the first turns of the peer, then the segments.
    private static func result(_ transcript: Transcript, _ state: Int, _ segments: [[UInt8]]) throws -> SplitResult {
        var dialogue = try transcript.dialogue()
        _ = dialogue.start()
        for turn in transcript.peerTurns.prefix(state) { _ = try dialogue.receive(turn) }
        return dialogue.result(of: segments)
    }
}

/// The result of a message, which must not depend on how the message is divided into segments.
struct SplitResult: Equatable {
    var code: StartTLSError.Code?
    /// Everything that is sent before the error, and the error's reply. The line that an error quotes is not
    /// compared, because it may be incomplete.
    var sent: [UInt8] = []
    var startsTLS = false
}

extension StartTLSDialogue {
    /// Receives segments until the dialogue fails or starts TLS.
    mutating func result(of segments: [[UInt8]]) -> SplitResult {
        var result = SplitResult()
        do {
            for segment in segments {
                switch try receive(segment) {
                case .send(let bytes): result.sent += bytes
                case .startTLS(let bytes, _):
                    result.sent += bytes
                    result.startsTLS = true
                    return result
                }
            }
        } catch {
            result.code = error.code
            result.sent += error.reply
        }
        return result
    }
}

/// Returns the bytes as one segment, as segments of one byte, and in two segments, divided at each position.
/// Long messages are divided at a few positions, and into segments of 1,000 bytes.
func splits(of bytes: [UInt8]) -> [[[UInt8]]] {
    let isShort = bytes.count <= 300
    let size = isShort ? 1 : 1_000
    let segments = stride(from: 0, to: bytes.count, by: size).map { Array(bytes.dropFirst($0).prefix(size)) }
    let ends = isShort ? Array(bytes.indices.dropFirst()) : [1, 2, 4, 5, bytes.count / 2, bytes.count - 1]
    return [[bytes], segments] + ends.map { [Array(bytes[..<$0]), Array(bytes[$0...])] }
}
