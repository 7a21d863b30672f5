import Foundation

/// A CoAP message (RFC 7252, section 3). Supports only what a GET needs.
struct CoAPMessage {
    enum Kind: UInt8 {
        case confirmable, nonConfirmable, acknowledgement, reset
    }

    let kind: Kind
    /// Class and detail: 2.05 is 0x45.
    let code: UInt8
    let number: UInt16
    let token: Data
    var payload = Data()

    static let get: UInt8 = 0x01

    /// Encodes the message, with each segment of the path as a `Uri-Path` option (number 11) of at most 268
    /// bytes.
    func bytes(path: [String] = []) -> Data {
        var bytes =
            Data([0x40 | kind.rawValue << 4 | UInt8(token.count), code, UInt8(number >> 8), UInt8(number & 0xff)]) + token
        for (index, segment) in path.map(\.utf8).enumerated() {
            let delta: UInt8 = index == 0 ? 11 : 0
            bytes += segment.count < 13 ? [delta << 4 | UInt8(segment.count)] : [delta << 4 | 13, UInt8(segment.count - 13)]
            bytes += segment
        }
        return bytes
    }

    var description: String { "\(code >> 5).\(code & 31 < 10 ? "0" : "")\(code & 31)" }
}

extension CoAPMessage {
    /// Returns nil if the datagram is not a CoAP version 1 message.
    init?(_ data: Data) {
        let bytes = [UInt8](data)
        guard bytes.count >= 4, bytes[0] >> 6 == 1, let kind = Kind(rawValue: bytes[0] >> 4 & 3), bytes[0] & 15 <= 8,
            bytes.count >= 4 + Int(bytes[0] & 15)
        else { return nil }
        let optionsStart = 4 + Int(bytes[0] & 15)
        self.init(
            kind: kind, code: bytes[1], number: UInt16(bytes[2]) << 8 | UInt16(bytes[3]), token: Data(bytes[4..<optionsStart]))
        guard let start = Self.payloadStart(bytes, optionsStart) else { return nil }
        payload = Data(bytes[start...])
    }

    /// Skips the options. Returns nil if one is truncated.
    private static func payloadStart(_ bytes: [UInt8], _ start: Int) -> Int? {
        var index = start
        while index < bytes.count {
            let head = bytes[index]
            index += 1
            if head == 0xff { return index }
            var length = 0
            for (position, nibble) in [head >> 4, head & 15].enumerated() {
                let size = nibble == 13 ? 1 : nibble == 14 ? 2 : 0
                guard nibble != 15, index + size <= bytes.count else { return nil }
                let extended = bytes[index..<index + size].reduce(0) { $0 << 8 | Int($1) }
                index += size
                if position == 1 { length = nibble == 13 ? 13 + extended : nibble == 14 ? 269 + extended : Int(nibble) }
            }
            index += length
        }
        return index == bytes.count ? index : nil
    }
}
