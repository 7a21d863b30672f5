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
        var place = 6
        while place + 4 <= message.count {
            if number(at: place) == Self.earlyData { return place }
            place += 4 + number(at: place + 2)
        }
        return nil
    }

    private func number(at place: Int) -> Int { Int(message[place]) << 8 | Int(message[place + 1]) }
}
