/// The bytes that one side sends. Each byte depends on its position, so that lost, doubled and reordered
/// bytes differ from the expected ones.
struct Pattern {
    static let lineFeed = UInt8(ascii: "\n")

    let bytes: [UInt8]

    init(_ seed: UInt64, count: Int) {
        bytes = (0..<count).map { position in
            let number = Choices.mix(seed, UInt64(position))
            return number % 16 == 0 ? Self.lineFeed : UInt8(ascii: "a") + UInt8(number / 16 % 26)
        }
    }

    /// Returns the number of bytes from `start` up to and including the next line feed before `end`.
    func lineLength(from start: Int, before end: Int) -> Int? {
        bytes[start..<end].firstIndex(of: Self.lineFeed).map { $0 + 1 - start }
    }

    /// Returns why `data` does not follow the first `offset` bytes.
    func complaint(about data: some Collection<UInt8>, at offset: Int) -> String? {
        guard offset + data.count <= bytes.count else {
            return "\(data.count) bytes at \(offset), although only \(bytes.count) were sent"
        }
        for (index, byte) in data.enumerated() where byte != bytes[offset + index] {
            return "byte \(offset + index) is \(byte), not \(bytes[offset + index])"
        }
        return nil
    }
}

/// Watches the bytes that one side passes to the kernel: the plaintext before the upgrade, and TLS records
/// after it. Nothing else may follow a call of `startTLS`.
struct WireInspector {
    private let pattern: Pattern
    private let plaintextCount: Int
    private let isUpgraded: Bool
    private var position = 0
    private var header: [UInt8] = []
    private var recordBytesLeft = 0

    init(_ pattern: Pattern, plaintextCount: Int, isUpgraded: Bool) {
        (self.pattern, self.plaintextCount, self.isUpgraded) = (pattern, plaintextCount, isUpgraded)
    }

    /// Returns a description of an error in the next bytes.
    mutating func add(_ bytes: ArraySlice<UInt8>) -> String? {
        var rest = bytes
        if position < plaintextCount {
            let plaintext = rest.prefix(plaintextCount - position)
            if let complaint = pattern.complaint(about: plaintext, at: position) { return "on the wire, \(complaint)" }
            position += plaintext.count
            rest = rest.dropFirst(plaintext.count)
        }
        guard isUpgraded else { return rest.isEmpty ? nil : "\(rest.count) bytes follow the last one" }
        for byte in rest {
            if recordBytesLeft > 0 { recordBytesLeft -= 1 } else if let complaint = addToHeader(byte) { return complaint }
        }
        return nil
    }

    private mutating func addToHeader(_ byte: UInt8) -> String? {
        header.append(byte)
        guard header.count == 5 else { return nil }
        defer { header = [] }
        recordBytesLeft = Int(header[3]) << 8 | Int(header[4])
        let isRecord = (20...23).contains(header[0]) && header[1] == 3 && recordBytesLeft <= 1 << 14 + 256
        return isRecord ? nil : "after startTLS, \(header) is on the wire instead of a record"
    }
}
