import StartTLSProtocols
import Testing

/// A recorded dialogue, from the side of the dialogue under test.
struct Transcript: Sendable, CustomTestStringConvertible {
    enum Turn: Sendable {
        /// Bytes from the peer.
        case peer([UInt8])
        /// Bytes that the dialogue must send.
        case own([UInt8])
    }

    let name: String
    let isClient: Bool
    /// Whether the peer's TLS may follow its last message without a reply.
    var surplus: [UInt8] = []
    let dialogue: @Sendable () throws -> StartTLSDialogue
    let turns: [Turn]

    var testDescription: String { name }

    /// Messages from the peer, in order.
    var peerTurns: [[UInt8]] {
        turns.compactMap { turn in
            if case .peer(let bytes) = turn { bytes } else { nil }
        }
    }

    static func client(_ name: String, _ protocol: StartTLSClient, _ turns: Turn...) -> Self {
        Self(name: "\(name) client", isClient: true, dialogue: { try StartTLSDialogue(client: `protocol`) }, turns: turns)
    }

    static func server(_ name: String, _ protocol: StartTLSServer, surplus: [UInt8] = [], _ turns: Turn...) -> Self {
        Self(
            name: "\(name) server", isClient: false, surplus: surplus, dialogue: { try StartTLSDialogue(server: `protocol`) },
            turns: turns)
    }

    /// Returns what the dialogue sends before and after each turn of the peer, up to the start of TLS.
    ///
    /// - Parameter split: Divides the bytes of each turn into segments.
    func run(_ split: ([UInt8]) -> [[UInt8]]) throws -> (sent: [[UInt8]], surplus: [UInt8]?) {
        var dialogue = try dialogue()
        var sent: [[UInt8]] = []
        guard case .send(let first) = dialogue.start() else { return ([], []) }
        sent.append(first)
        for turn in peerTurns {
            var output: [UInt8] = []
            for segment in split(turn) {
                switch try dialogue.receive(segment) {
                case .send(let bytes): output += bytes
                case .startTLS(let bytes, let surplus): return (sent + [output + bytes], surplus)
                }
            }
            sent.append(output)
        }
        return (sent, nil)
    }

    /// What the dialogue must send before and after each turn of the peer.
    var expected: [[UInt8]] {
        var sent: [[UInt8]] = [[]]
        for turn in turns {
            switch turn {
            case .peer: sent.append([])
            case .own(let bytes): sent[sent.count - 1] += bytes
            }
        }
        return sent
    }
}

extension Transcript.Turn {
    static func peer(_ lines: String...) -> Self { .peer(lines.flatMap { Array($0.utf8) + [13, 10] }) }
    static func own(_ lines: String...) -> Self { .own(lines.flatMap { Array($0.utf8) + [13, 10] }) }
    static func peer(xml: String) -> Self { .peer(Array(xml.utf8)) }
    static func own(xml: String) -> Self { .own(Array(xml.utf8)) }
}

/// Divides bytes into segments of one byte.
func bytewise(_ bytes: [UInt8]) -> [[UInt8]] { bytes.map { [$0] } }

extension StartTLSDialogue {
    /// Starts the dialogue and receives messages. Returns the error, or `nil` if there is none.
    mutating func failure(after messages: [[UInt8]]) -> StartTLSError? {
        _ = start()
        do {
            for message in messages { _ = try receive(message) }
            return nil
        } catch {
            return error
        }
    }
}
