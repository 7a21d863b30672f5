/// Reads numbers, and fields that follow their own length, in the order of the network.
///
/// It returns nil where bytes are missing. It copies nothing: use it while the bytes are there.
struct FieldReader {
    /// The bytes that are not read yet.
    private(set) var rest: Slice<UnsafeRawBufferPointer>

    init(_ bytes: Slice<UnsafeRawBufferPointer>) {
        rest = bytes
    }

    init(_ bytes: UnsafeRawBufferPointer) {
        rest = bytes[...]
    }

    var isAtEnd: Bool { rest.isEmpty }

    /// The offset of the next byte in the memory that the reader was made with.
    var offset: Int { rest.startIndex }

    /// A number of 1 to 8 bytes; one of 8 bytes has a sign.
    mutating func number(of size: Int) -> Int? {
        guard let bytes = bytes(size) else { return nil }
        return bytes.reduce(0) { $0 << 8 | Int($1) }
    }

    /// A field, behind its length in `size` bytes.
    mutating func field(lengthOf size: Int) -> Slice<UnsafeRawBufferPointer>? {
        guard let length = number(of: size), length >= 0 else { return nil }
        return bytes(length)
    }

    /// The next `count` bytes.
    mutating func bytes(_ count: Int) -> Slice<UnsafeRawBufferPointer>? {
        guard rest.count >= count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}
