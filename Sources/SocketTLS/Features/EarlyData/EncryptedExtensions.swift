internal import COpenSSL

/// The message EncryptedExtensions of a server (RFC 8446, 4.3.1), before OpenSSL decodes it.
package struct EncryptedExtensions {
    /// RFC 8446, 4.2.
    private static let earlyData = 42

    private let message: UnsafeRawBufferPointer

    /// - Parameter message: The message with its header of four bytes.
    package init(_ message: UnsafeRawBufferPointer) {
        self.message = message
    }

    /// Where the number of the extension early_data is; nil without one.
    package var placeOfEarlyData: Int? {
        // The header, and the length of the list.
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
    /// A server that has asked for another ClientHello cannot have accepted early data (RFC 8446, 4.2.10).
    /// OpenSSL's client would believe it. With another number the extension is one that may not be here.
    func noteEncryptedExtensions(_ message: UnsafeRawBufferPointer) {
        guard !isServer, serverHelloCount > 1, let place = EncryptedExtensions(message).placeOfEarlyData else {
            return
        }
        UnsafeMutableRawBufferPointer(mutating: message)[place + 1] = UInt8(TLSEXT_TYPE_key_share)
    }
}
