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

    private struct Result: Equatable {
        var code: StartTLSError.Code?
        var reply: [UInt8] = []
        var sent: [UInt8] = []
    }

    @Test(arguments: Transcript.all) func errorsDoNotDependOnSegments(_ transcript: Transcript) throws {
        for state in 0..<transcript.peerTurns.count {
            for bytes in Self.unexpected {
                let whole = try Self.result(transcript, state, [bytes])
                #expect(try Self.result(transcript, state, bytewise(bytes)) == whole, "\(bytes) in state \(state)")
                for end in 1..<bytes.count {
                    let halves = [Array(bytes[..<end]), Array(bytes[end...])]
                    #expect(try Self.result(transcript, state, halves) == whole, "\(bytes) in state \(state), split at \(end)")
                }
            }
        }
    }

    /// Receives the first turns of the peer, then the segments.
    private static func result(_ transcript: Transcript, _ state: Int, _ segments: [[UInt8]]) throws -> Result {
        var dialogue = try transcript.dialogue()
        var result = Result()
        _ = dialogue.start()
        for turn in transcript.peerTurns.prefix(state) { _ = try dialogue.receive(turn) }
        do {
            for segment in segments {
                guard case .send(let bytes) = try dialogue.receive(segment) else { return result }
                result.sent += bytes
            }
        } catch {
            result.code = error.code
            // Segments can reply before the error. The line that an error quotes may be incomplete.
            result.reply = result.sent + error.reply
            result.sent = []
        }
        return result
    }
}
