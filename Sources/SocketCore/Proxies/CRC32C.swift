/// CRC-32C, with Castagnoli's polynomial (RFC 4960, appendix B, but not in SCTP's byte order).
enum CRC32C {
    private static let polynomial: UInt32 = 0x82f6_3b78

    private static let table = (0..<256).map { index in
        (0..<8).reduce(UInt32(index)) { rest, _ in rest & 1 == 0 ? rest >> 1 : rest >> 1 ^ polynomial }
    }

    static func checksum(of bytes: [UInt8]) -> UInt32 {
        ~bytes.reduce(~0) { rest, byte in rest >> 8 ^ table[Int(UInt8(truncatingIfNeeded: rest) ^ byte)] }
    }
}

extension FixedWidthInteger {
    var bigEndianBytes: [UInt8] { withUnsafeBytes(of: bigEndian) { Array($0) } }
}
