public import FoundationEssentials

/// In which order the bytes of an integer come.
public enum ByteOrder: Sendable, Hashable {
    /// The most significant byte comes first: network byte order (RFC 1700).
    case bigEndian
    /// The least significant byte comes first.
    case littleEndian
}

extension RawSpan {
    /// The integer at an offset, for `Framing.decode(_:)`; nil when the bytes are too few.
    ///
    /// ```swift
    /// guard let length = bytes.integer(UInt32.self, at: 0, width: 3) else {
    ///     return .incomplete(minimumLength: 3)
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - type: The type of the result. The highest bit of the bytes is the sign of a signed one.
    ///   - offset: The first byte; it need not be aligned.
    ///   - width: How many bytes the integer has: 1 up to the size of `type`, which is the default.
    ///   - order: In which order the bytes come: network byte order by default.
    public func integer<Integer: FixedWidthInteger>(
        _ type: Integer.Type = Integer.self, at offset: Int, width: Int? = nil, order: ByteOrder = .bigEndian
    ) -> Integer? {
        let width = Integer.checked(width)
        guard offset >= 0, byteCount - offset >= width else { return nil }
        var bits: Integer.Magnitude = 0
        for index in 0..<width {
            let position = offset + (order == .bigEndian ? index : width - 1 - index)
            bits = bits << 8 | Integer.Magnitude(unsafeLoad(fromByteOffset: position, as: UInt8.self))
        }
        // The sign of fewer bytes goes into the highest bit, and comes down from there.
        let rest = Integer.bitWidth - width * 8
        return (Integer(truncatingIfNeeded: bits) << rest) >> rest
    }
}

extension Data {
    /// Appends the bytes of an integer, for `Framing.encode(_:into:)`.
    ///
    /// - Parameters:
    ///   - value: The integer.
    ///   - width: How many bytes it gets: 1 up to the size of its type, which is the default.
    ///   - order: In which order the bytes come: network byte order by default.
    /// - Throws: `.badParameter` when `value` does not fit into so many bytes.
    public mutating func append<Integer: FixedWidthInteger>(
        integer value: Integer, width: Int? = nil, order: ByteOrder = .bigEndian
    ) throws(AsyncSocketError) {
        let width = Integer.checked(width)
        let rest = Integer.bitWidth - width * 8
        guard (value << rest) >> rest == value else {
            throw .badParameter("write", "\(value) does not fit into \(width) bytes")
        }
        for index in 0..<width {
            let place = order == .bigEndian ? width - 1 - index : index
            append(UInt8(truncatingIfNeeded: value >> (place * 8)))
        }
    }
}

extension FixedWidthInteger {
    fileprivate static func checked(_ width: Int?) -> Int {
        let most = bitWidth / 8
        guard let width else { return most }
        precondition((1...most).contains(width), "width must be from 1 to \(most) for \(Self.self), and is \(width)")
        return width
    }
}
