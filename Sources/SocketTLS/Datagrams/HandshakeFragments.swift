/// The messages of a peer's handshake, which come in fragments (RFC 6347, section 4.2.3).
///
/// OpenSSL allocates the whole length of a message with its first fragment, of up to eleven messages at a
/// time: eleven small datagrams would cost 745 KB.
struct HandshakeFragments {
    /// The lengths of the messages that have begun, by their numbers.
    private var lengths: [Int: Int] = [:]
    private var cost = 0
    private let limit: Int

    /// Room for a ClientHello and the short messages.
    private static let leastLimit = 64 * 1024
    /// Messages without bytes take some too.
    private static let costOfMessage = 64

    init(with settings: TLSSettingValues) {
        // A server has two: its certificates, and the issuers that it accepts.
        let lists = settings.role == .server ? (settings.verifiesPeer ? 1 : 0) : 2
        limit = Self.leastLimit + lists * settings.maximumCertificateChainBytes
    }

    /// Whether OpenSSL may see a record with these messages of the handshake, or fragments of them.
    mutating func admits(_ messages: Slice<UnsafeRawBufferPointer>) -> Bool {
        var reader = FieldReader(messages)
        while let header = Header(&reader) {
            // OpenSSL would drop those too, and they would take the room of others.
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

        /// A handshake has fewer messages than this.
        private static let messageLimit = 32

        /// A fragment of a message that may come, and not an empty one of a message with bytes.
        var isUsable: Bool { message < Self.messageLimit && (fragmentLength > 0 || length == 0) }

        /// Nil at the end.
        init?(_ reader: inout FieldReader) {
            guard reader.number(of: 1) != nil, let length = reader.number(of: 3), let message = reader.number(of: 2),
                reader.number(of: 3) != nil, let fragmentLength = reader.number(of: 3)
            else { return nil }
            (self.length, self.message, self.fragmentLength) = (length, message, fragmentLength)
        }
    }
}
