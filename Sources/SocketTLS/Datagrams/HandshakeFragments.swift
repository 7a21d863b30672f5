/// Limits the memory for the peer's handshake messages, which arrive in fragments (RFC 6347, section 4.2.3).
///
/// OpenSSL allocates the full length of a message when its first fragment arrives, for up to eleven messages
/// at a time. Eleven small datagrams would therefore cost 745 KB.
struct HandshakeFragments {
    /// The lengths of the messages that have started to arrive, by message number.
    private var lengths: [Int: Int] = [:]
    private var cost = 0
    private let limit: Int

    /// Enough for a ClientHello and the short messages.
    private static let leastLimit = 64 * 1024
    /// The overhead of each message, which also covers empty messages.
    private static let costOfMessage = 64

    init(with settings: TLSSettingValues) {
        // A server sends two long lists: its certificates and the issuers that it accepts.
        let lists = settings.role == .server ? (settings.verifiesPeer ? 1 : 0) : 2
        limit = Self.leastLimit + lists * settings.maximumCertificateChainBytes
    }

    mutating func admits(_ messages: Slice<UnsafeRawBufferPointer>) -> Bool {
        var reader = FieldReader(messages)
        while let header = Header(&reader) {
            // OpenSSL would drop such a message anyway, and it would use up part of the limit.
            guard header.isUsable else { return false }
            let known = lengths[header.message].map { $0 + Self.costOfMessage } ?? 0
            let more = max(0, header.length + Self.costOfMessage - known)
            guard cost + more <= limit else { return false }
            if more > 0 {
                cost += more
                lengths[header.message] = header.length
            }
            if reader.bytes(header.fragmentLength) == nil { break }
        }
        return true
    }

    private struct Header {
        let length: Int
        let message: Int
        let fragmentLength: Int

        /// More messages than any handshake has.
        private static let messageLimit = 32

        /// Whether this fragment is possible in a handshake: its message number is in range, and it is not an
        /// empty fragment of a message that has bytes.
        var isUsable: Bool { message < Self.messageLimit && (fragmentLength > 0 || length == 0) }

        init?(_ reader: inout FieldReader) {
            guard reader.number(of: 1) != nil, let length = reader.number(of: 3), let message = reader.number(of: 2),
                reader.number(of: 3) != nil, let fragmentLength = reader.number(of: 3)
            else { return nil }
            (self.length, self.message, self.fragmentLength) = (length, message, fragmentLength)
        }
    }
}
