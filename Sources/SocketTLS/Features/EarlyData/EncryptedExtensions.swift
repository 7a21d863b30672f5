internal import COpenSSL

/// A server's EncryptedExtensions message (RFC 8446, 4.3.1), before OpenSSL decodes it.
package struct EncryptedExtensions {
    /// RFC 8446, 4.2.
    private static let earlyData = 42

    private let message: UnsafeRawBufferPointer

    /// - Parameter message: The message, including its 4-byte header.
    package init(_ message: UnsafeRawBufferPointer) {
        self.message = message
    }

    /// The offset of the extension type early_data; `nil` if the message does not contain the extension.
    package var placeOfEarlyData: Int? {
        // Skips the header and the length of the list.
        var reader = FieldReader(message.dropFirst(6))
        while true {
            let place = reader.offset
            guard let type = reader.number(of: 2), let length = reader.number(of: 2) else { return nil }
            if type == Self.earlyData { return place }
            guard reader.bytes(length) != nil else { return nil }
        }
    }
}

extension Facts {
    /// Rejects a server that claims to have accepted early data after a HelloRetryRequest, which RFC 8446,
    /// 4.2.10, rules out. OpenSSL's client would accept the claim. The extension type is overwritten with a
    /// type that is not allowed in this message, so OpenSSL rejects it.
    func noteEncryptedExtensions(_ message: UnsafeRawBufferPointer) {
        guard !isServer, serverHelloCount > 1, let place = EncryptedExtensions(message).placeOfEarlyData else {
            return
        }
        UnsafeMutableRawBufferPointer(mutating: message)[place + 1] = UInt8(TLSEXT_TYPE_key_share)
    }
}
