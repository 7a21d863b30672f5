internal import COpenSSL

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
