/// A plaintext record with one alert (RFC 8446, 5.1 and 6; RFC 5246, 7.2).
///
/// It uses the version number that TLS 1.2 and 1.3 share. The peer may already have chosen one of these
/// versions, and OpenSSL rejects alerts with another version number.
enum AlertRecord {
    enum Level: UInt8 {
        case warning = 1
        case fatal = 2
    }

    static func bytes(_ alert: TLSAlert, _ level: Level = .fatal) -> [UInt8] {
        [contentType, 3, 3, 0, 2, level.rawValue, alert.rawValue]
    }

    /// Whether a record written by OpenSSL is a plaintext alert.
    static func matches(_ record: UnsafeRawBufferPointer) -> Bool {
        record.count == length && record[0] == contentType
    }

    /// Replaces the alert at the end of `output` if it is the fatal alert `wrong` in plaintext. The version
    /// number is kept. Returns whether the alert was replaced.
    static func replace(_ wrong: TLSAlert, by right: TLSAlert, atTheEndOf output: inout [UInt8]) -> Bool {
        let record = output.suffix(length)
        guard record.starts(with: [contentType, 3]),
            record.suffix(4).elementsEqual([0, 2, Level.fatal.rawValue, wrong.rawValue])
        else { return false }
        output[output.count - 1] = right.rawValue
        return true
    }

    // MARK: - DTLS

    /// Returns an unencrypted DTLS record with one alert (RFC 6347, section 4.1).
    static func datagramBytes(_ alert: TLSAlert, _ level: Level = .fatal, sequence: UInt64) -> [UInt8] {
        let number = withUnsafeBytes(of: sequence.bigEndian) { Array($0.suffix(6)) }
        return [contentType, 0xFE, 0xFD, 0, 0] + number + [0, 2, level.rawValue, alert.rawValue]
    }

    /// Whether a datagram written by OpenSSL, which starts with `header`, is a plaintext alert.
    static func matches(_ datagram: UnsafeRawBufferPointer, _ header: RecordHeader) -> Bool {
        header.type == contentType && header.epoch == 0 && header.length == 2 && datagram.count == header.recordSize
    }

    /// Returns one datagram with the alerts user_canceled and close_notify, which cancel a handshake.
    static func cancellation(from sequence: UInt64) -> [UInt8] {
        datagramBytes(.userCanceled, .warning, sequence: sequence)
            + datagramBytes(.closeNotify, .warning, sequence: sequence + 1)
    }

    private static let contentType: UInt8 = 21
    private static let length = 7
}
