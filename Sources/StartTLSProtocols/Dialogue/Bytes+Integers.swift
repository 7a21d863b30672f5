extension ArraySlice<UInt8> {
    /// Returns the unsigned integer in the first bytes, in network byte order. `nil` if there are fewer.
    func bigEndian(bytes count: Int) -> Int? {
        guard self.count >= count else { return nil }
        return prefix(count).reduce(0) { $0 << 8 | Int($1) }
    }

    /// Returns the unsigned integer in the first bytes, in little-endian byte order.
    func littleEndian(bytes count: Int) -> Int? {
        guard self.count >= count else { return nil }
        return prefix(count).reversed().reduce(0) { $0 << 8 | Int($1) }
    }
}

extension [UInt8] {
    init(bigEndian value: Int, bytes count: Int) {
        self = (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
    }

    init(littleEndian value: Int, bytes count: Int) {
        self = (0..<count).map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
    }
}
