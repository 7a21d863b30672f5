// The first message of a server: a ServerHello, or an alert. The bytes are from an unauthenticated peer, so
// every length is checked, and at most `maximumReplyBytes` are examined.

extension TLSProbe {
    /// The size of the largest record. A ServerHello has about a hundred bytes.
    package static let maximumReplyBytes = 5 + (1 << 14) + 256

    /// Returns the reply at the start of `bytes`, or `nil` if more bytes are needed.
    package static func reply(in bytes: [UInt8]) -> Reply? {
        bytes.withUnsafeBytes { bytes in
            var records = FieldReader(bytes)
            var messages: [UInt8] = []
            while let type = records.number(of: 1) {
                guard type == alert || type == handshake else { return .notTLS }
                guard let version = records.number(of: 2) else { return nil }
                guard version >> 8 == 3 else { return .notTLS }
                guard let body = records.field(lengthOf: 2) else { return nil }
                if type == handshake {
                    messages += body
                    if let reply = serverHello(messages) { return reply }
                } else if let reply = alert(Array(body)) {
                    return reply
                }
            }
            return nil
        }
    }

    private static let (alert, handshake) = (21, 22)
    private static let (serverHello, supportedVersions) = (2, 43)

    /// Returns `nil` for a warning, which does not end the handshake (RFC 5246, section 7.2).
    private static func alert(_ body: [UInt8]) -> Reply? {
        guard body.count == 2 else { return .notTLS }
        let alert = TLSAlert(rawValue: body[1])
        return body[0] == 1 && alert != .closeNotify ? nil : .rejected(alert)
    }

    /// Returns `nil` if the message is incomplete.
    private static func serverHello(_ bytes: [UInt8]) -> Reply? {
        bytes.withUnsafeBytes { bytes in
            var fields = FieldReader(bytes)
            guard let type = fields.number(of: 1) else { return nil }
            guard type == serverHello else { return .notTLS }
            guard let body = fields.field(lengthOf: 3) else { return nil }
            return choice(in: body)
        }
    }

    private static func choice(in body: Slice<UnsafeRawBufferPointer>) -> Reply {
        var hello = FieldReader(body)
        guard let version = hello.number(of: 2), hello.bytes(32) != nil, hello.field(lengthOf: 1) != nil,
            let suite = hello.number(of: 2), hello.number(of: 1) != nil
        else { return .notTLS }
        let selected = hello.field(lengthOf: 2).flatMap(selectedVersion) ?? version
        return .accepted(version: UInt16(selected), cipherSuite: UInt16(suite))
    }

    /// TLS 1.3 states its version in an extension (RFC 8446, section 4.2.1).
    private static func selectedVersion(in extensions: Slice<UnsafeRawBufferPointer>) -> Int? {
        var rest = FieldReader(extensions)
        while let type = rest.number(of: 2), let value = rest.field(lengthOf: 2) {
            var fields = FieldReader(value)
            if type == supportedVersions { return fields.number(of: 2) }
        }
        return nil
    }
}
