public import FoundationEssentials

/// The byte order of an integer.
public enum FrameByteOrder: Sendable, Hashable {
    /// The most significant byte first: network byte order (RFC 1700).
    case bigEndian
    /// The least significant byte first.
    case littleEndian
}

extension RawSpan {
    /// Returns the integer at an offset, for `Framing.decode(_:)`, or `nil` if there are too few bytes.
    ///
    /// ```swift
    /// guard let length = bytes.integer(UInt32.self, at: 0, width: 3) else {
    ///     return .incomplete(minimumLength: 3)
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - type: The type of the result. For a signed type, the highest bit of the bytes is the sign.
    ///   - offset: The position of the first byte, which need not be aligned.
    ///   - width: The number of bytes in the integer, from 1 to the size of `type`. Defaults to the size of
    ///     `type`.
    ///   - order: The byte order. Defaults to network byte order.
    public func integer<Integer: FixedWidthInteger>(
        _ type: Integer.Type = Integer.self, at offset: Int, width: Int? = nil, order: FrameByteOrder = .bigEndian
    ) -> Integer? {
        let width = Integer.checked(width)
        guard offset >= 0, byteCount - offset >= width else { return nil }
        var bits: Integer.Magnitude = 0
        for index in 0..<width {
            let position = offset + (order == .bigEndian ? index : width - 1 - index)
            bits = bits << 8 | Integer.Magnitude(unsafeLoad(fromByteOffset: position, as: UInt8.self))
        }
        // Sign extension: shift the sign bit up to the highest bit, then back down arithmetically.
        let rest = Integer.bitWidth - width * 8
        return (Integer(truncatingIfNeeded: bits) << rest) >> rest
    }
}

extension Data {
    /// Appends the bytes of an integer, for `Framing.encode(_:into:)`.
    ///
    /// - Parameters:
    ///   - value: The integer.
    ///   - width: The number of bytes to append, from 1 to the size of the type. Defaults to the size of the
    ///     type.
    ///   - order: The byte order. Defaults to network byte order.
    /// - Throws: `.badParameter` if `value` does not fit into `width` bytes.
    public mutating func append<Integer: FixedWidthInteger>(
        integer value: Integer, width: Int? = nil, order: FrameByteOrder = .bigEndian
    ) throws(AsyncSocketError) {
        let width = Integer.checked(width)
        let rest = Integer.bitWidth - width * 8
        guard (value << rest) >> rest == value else {
            throw .badParameter(.write, "the value \(value) does not fit into \(width) bytes: use a larger width")
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
        precondition((1...most).contains(width), "width must be from 1 to \(most) for \(Self.self), but is \(width)")
        return width
    }
}
