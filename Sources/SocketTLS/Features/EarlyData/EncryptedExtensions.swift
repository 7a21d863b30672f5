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
