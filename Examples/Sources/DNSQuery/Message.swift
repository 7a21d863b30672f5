import Foundation

/// A query for a name's IPv4 addresses, and the parser for its response (RFC 1035, section 4).
struct DNSQuery {
    let number: UInt16
    let bytes: Data

    /// Returns nil if the name is invalid: a label must have 1 to 63 bytes, and the whole name at most 253.
    init?(name: String, number: UInt16 = .random(in: 0...UInt16.max)) {
        let labels = name.split(separator: ".", omittingEmptySubsequences: false).map(\.utf8)
        guard name.utf8.count <= 253, labels.allSatisfy({ (1...63).contains($0.count) }) else { return nil }
        self.number = number
        // One question of type A and class IN, with the recursion desired flag.
        let head = [number, 0x0100, 1, 0, 0, 0].flatMap { [UInt8($0 >> 8), UInt8($0 & 0xff)] }
        bytes = Data(head + labels.flatMap { [UInt8($0.count)] + $0 } + [0, 0, 1, 0, 1])
    }

    /// Returns the addresses in a response to this query, or nil if the datagram is something else.
    func addresses(in data: Data) -> [String]? {
        var reader = DNSReader(data)
        guard reader.number() == number, let flags = reader.number(), flags & 0x8000 != 0, reader.number() == 1,
            let count = reader.number()
        else { return nil }
        // Skip the two other counts. The response repeats the question.
        guard reader.skip(4), reader.take(bytes.count - 12) == bytes.dropFirst(12) else { return nil }
        var addresses: [String] = []
        for _ in 0..<count {
            guard reader.skipName(), let type = reader.number(), reader.skip(6), let length = reader.number(),
                let content = reader.take(Int(length))
            else { return nil }
            if type == 1, length == 4 { addresses.append(content.map(String.init).joined(separator: ".")) }
        }
        return addresses
    }
}

/// Reads a message from front to back, and checks every length.
private struct DNSReader {
    private var rest: Data

    init(_ data: Data) {
        rest = data
    }

    mutating func take(_ count: Int) -> Data? {
        guard count >= 0, rest.count >= count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    mutating func number() -> UInt16? {
        take(2).map { $0.reduce(0) { $0 << 8 | UInt16($1) } }
    }

    mutating func skip(_ count: Int) -> Bool { take(count) != nil }

    /// A name ends with an empty label or with a pointer to an earlier name.
    mutating func skipName() -> Bool {
        while let length = take(1)?.first {
            if length == 0 { return true }
            if length >= 0xc0 { return skip(1) }
            guard skip(Int(length)) else { return false }
        }
        return false
    }
}
