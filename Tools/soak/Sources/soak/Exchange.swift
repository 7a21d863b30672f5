import Foundation

/// One request and its reply, which the client announces in 24 bytes before the request. The reply has no
/// header.
struct Exchange: Sendable {
    /// What happens during or after the exchange.
    enum End: UInt8, Sendable, CaseIterable {
        /// The connection is used again.
        case none
        /// The client closes its side after the request, and the server replies after it has received that.
        case halfClose
        /// The server resets the connection after half of the reply.
        case reset
        /// The client may end the connection at any time during the exchange.
        case cut
        /// The server closes the connection after the reply.
        case close
    }

    static let headerLength = 24
    private static let mark: UInt32 = 0x4B41_4F53  // "SOAK"

    var end: End
    var requestLength: Int
    var replyLength: Int
    var seed: UInt64

    var request: Pattern { Pattern(seed: seed) }
    var reply: Pattern { request.reply }
    /// How many bytes the server sends.
    var sentLength: Int { end == .reset ? replyLength / 2 : replyLength }

    init(_ choices: inout Choices, canHalfClose: Bool) {
        end =
            switch Int.random(in: 0..<100, using: &choices) {
            case ..<80: .none
            case ..<85: canHalfClose ? .halfClose : .none
            case ..<89: .reset
            case ..<95: .cut
            default: .close
            }
        requestLength = choices.length()
        // At least two, so that half of a reply is not empty.
        replyLength = 1 + choices.length()
        seed = choices.next()
    }

    /// Returns `nil` if the bytes are not a header.
    init?(_ header: Data) {
        let words = header.withUnsafeBytes { bytes in
            stride(from: 0, to: Self.headerLength, by: 4).map { UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: $0, as: UInt32.self)) }
        }
        guard words[3] == Self.mark, words[0] < 256, let end = End(rawValue: UInt8(words[0])) else { return nil }
        self.end = end
        (requestLength, replyLength) = (Int(words[1]), Int(words[2]))
        seed = UInt64(words[4]) | UInt64(words[5]) << 32
    }

    var header: Data {
        let words = [
            UInt32(end.rawValue), UInt32(requestLength), UInt32(replyLength), Self.mark, UInt32(truncatingIfNeeded: seed),
            UInt32(seed >> 32),
        ]
        return words.reduce(into: Data()) { data, word in
            withUnsafeBytes(of: word.littleEndian) { data.append(contentsOf: $0) }
        }
    }
}
