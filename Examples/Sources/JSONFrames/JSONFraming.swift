import AsyncSockets
import Foundation

// Article: framing
/// A message between the client and the server.
enum Message: Codable, Sendable {
    case add([Int])
    case sum(Int)
    case ping
    case pong
}

/// JSON messages with a length prefix.
struct JSONFraming: Framing {
    private let frames = LengthPrefixed<UInt32>(maxLength: 64 << 10)

    var maximumFrameLength: Int { frames.maximumFrameLength }

    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Message> {
        switch try frames.decode(bytes) {
        case .incomplete(let minimumLength): return .incomplete(minimumLength: minimumLength)
        case .frame(let json, let length):
            do {
                return .frame(try JSONDecoder().decode(Message.self, from: json), length: length)
            } catch {
                throw .malformedFrame("not a message: \(error)")
            }
        }
    }

    func encode(_ message: Message, into bytes: inout Data) throws(AsyncSocketError) {
        let json: Data
        do {
            json = try JSONEncoder().encode(message)
        } catch {
            throw AsyncSocketError(.badParameter, fault: .caller, operation: .write, message: "not JSON: \(error)")
        }
        try frames.encode(json, into: &bytes)
    }
}
// Article: end
