/// Reads numbers and length-prefixed fields in network byte order.
///
/// The methods return `nil` if bytes are missing. The bytes are not copied, so use a reader only while they
/// are valid.
struct FieldReader {
    private(set) var rest: Slice<UnsafeRawBufferPointer>

    init(_ bytes: Slice<UnsafeRawBufferPointer>) {
        rest = bytes
    }

    init(_ bytes: UnsafeRawBufferPointer) {
        rest = bytes[...]
    }

    var isAtEnd: Bool { rest.isEmpty }

    var offset: Int { rest.startIndex }

    /// Reads an integer that is 1 to 8 bytes long. An 8-byte integer is signed.
    mutating func number(of size: Int) -> Int? {
        guard let bytes = bytes(size) else { return nil }
        return bytes.reduce(0) { $0 << 8 | Int($1) }
    }

    /// Reads a field that is preceded by its length, an integer of `size` bytes.
    mutating func field(lengthOf size: Int) -> Slice<UnsafeRawBufferPointer>? {
        guard let length = number(of: size), length >= 0 else { return nil }
        return bytes(length)
    }

    mutating func bytes(_ count: Int) -> Slice<UnsafeRawBufferPointer>? {
        guard rest.count >= count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}
