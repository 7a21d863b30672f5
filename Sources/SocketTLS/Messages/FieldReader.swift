internal import COpenSSL

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

/// Encrypted records from a client that OpenSSL has not processed.
package enum ClientRecords {
    /// Whether the records contain application data, according to their headers.
    ///
    /// - Parameter sealedAlertLength: In TLS 1.3, which encrypts the type of a record (RFC 8446, 5.2), the
    ///   length of an encrypted alert: a single record of this length is taken for one. In TLS 1.2, `nil`. A
    ///   client may send data before the server has completed that handshake (RFC 7918).
    package static func holdData(_ records: UnsafeRawBufferPointer, sealedAlertLength: Int?) -> Bool {
        if let sealedAlertLength { return !records.isEmpty && records.count != sealedAlertLength }
        var rest = records[...]
        while rest.count >= headerLength {
            let header = rest.prefix(headerLength).map { Int($0) }
            if header[0] == Int(SSL3_RT_APPLICATION_DATA) { return true }
            rest = rest.dropFirst(headerLength + header[3] * 256 + header[4])
        }
        return false
    }

    /// Returns the length of an encrypted alert in TLS 1.3: the header, the alert, its content type and
    /// the tag.
    static func sealedAlertLength(on ssl: OpaquePointer) -> Int {
        let name = SSL_CIPHER_get_name(SSL_get_current_cipher(ssl)).map { String(cString: $0) } ?? ""
        return headerLength + 2 + 1 + (name.hasSuffix("CCM_8_SHA256") ? 8 : 16)
    }

    private static let headerLength = 5
}
