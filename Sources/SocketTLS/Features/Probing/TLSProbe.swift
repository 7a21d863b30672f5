// Probes find out what a server would accept, including versions and cipher suites that the loaded OpenSSL
// cannot negotiate. A probe sends only a ClientHello and reads only the server's first message. No keys are
// derived and no handshake is completed, so a probe cannot carry data.

/// An offer of one protocol version and some cipher suites, to find out whether a server would accept it.
///
/// Use it with `reply(over:timeout:)`. **The reply proves nothing about the server's identity**: it is not
/// authenticated, so an attacker on the network path can forge it.
public struct TLSProbe: Sendable, Hashable {
    /// The offered version as its number on the wire: 0x0301 for TLS 1.0 to 0x0304 for TLS 1.3.
    public var version: UInt16
    /// The offered cipher suites by their numbers in the IANA registry "TLS Cipher Suites". Only the first
    /// 1,000 are sent.
    public var cipherSuites: [UInt16]
    /// The host name to send with SNI. If this is `nil` or an IP address, no name is sent.
    public var serverName: String?

    /// Creates an offer.
    public init(version: UInt16, cipherSuites: [UInt16], serverName: String? = nil) {
        self.version = version
        self.cipherSuites = cipherSuites
        self.serverName = serverName
    }

    /// The reply of a server.
    public enum Reply: Sendable, Hashable {
        /// The server accepted the offer and selected this version and cipher suite.
        case accepted(version: UInt16, cipherSuite: UInt16)
        /// The server rejected the offer with an alert.
        case rejected(TLSAlert)
        /// The bytes are not TLS.
        case notTLS
    }
}

extension TLSProbe {
    /// The offered key exchange groups: X25519MLKEM768, X25519, P-256, P-384, P-521, X448, ffdhe2048 and
    /// ffdhe3072. Listed by number, because the names that OpenSSL supports depend on its version.
    private static let groups: [UInt16] = [0x11EC, 29, 23, 24, 25, 30, 256, 257]
    /// Modern algorithms first, followed by SHA-1, which some old servers require.
    private static let signatures: [UInt16] = [
        0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601, 0x0203, 0x0201, 0x0202,
    ]
    /// Signals support for secure renegotiation (RFC 5746), which some servers require.
    private static let secureRenegotiation: UInt16 = 0x00FF
    private static let suiteLimit = 1_000
    private static let (tls10, tls12, tls13): (UInt16, UInt16, UInt16) = (0x0301, 0x0303, 0x0304)

    /// The record with the ClientHello (RFC 8446, section 4.1.2; RFC 5246, section 7.4.1.2).
    package var record: [UInt8] {
        var hello: [UInt8] = []
        hello.appendNumber(min(version, Self.tls12))
        hello += (0..<32).map { _ in UInt8.random(in: .min ... .max) }
        // Middleboxes expect a session ID in TLS 1.3 (RFC 8446, appendix D.4).
        hello.appendBlock(lengthBytes: 1, version >= Self.tls13 ? (0..<32).map { _ in UInt8.random(in: .min ... .max) } : [])
        let suites = cipherSuites.prefix(Self.suiteLimit) + [Self.secureRenegotiation]
        hello.appendBlock(lengthBytes: 2, suites.flatMap(\.wireBytes))
        hello.appendBlock(lengthBytes: 1, [0])
        hello.appendBlock(lengthBytes: 2, extensions)
        var message: [UInt8] = [1]
        message.appendBlock(lengthBytes: 3, hello)
        var record: [UInt8] = [22]
        record.appendNumber(Self.tls10)
        record.appendBlock(lengthBytes: 2, message)
        return record
    }

    private var extensions: [UInt8] {
        var all: [UInt8] = []
        if let serverName, let name = try? ServerName(serverName), case .hostName(let host) = name {
            var entry: [UInt8] = [0]
            entry.appendBlock(lengthBytes: 2, Array(host.utf8))
            all.appendExtension(0, [UInt8](block: entry))
        }
        all.appendExtension(10, [UInt8](block: Self.groups.flatMap(\.wireBytes)))
        all.appendExtension(11, [1, 0])
        if version >= Self.tls12 { all.appendExtension(13, [UInt8](block: Self.signatures.flatMap(\.wireBytes))) }
        all.appendExtension(23, [])
        if version >= Self.tls13 {
            all.appendExtension(43, [2] + version.wireBytes)
            // Without a key share, the server selects a group and a suite in a HelloRetryRequest.
            all.appendExtension(51, [0, 0])
        }
        return all
    }
}

extension UInt16 {
    fileprivate var wireBytes: [UInt8] { [UInt8(self >> 8), UInt8(self & 0xFF)] }
}

extension [UInt8] {
    /// The bytes of `block` after their length in two bytes.
    fileprivate init(block: [UInt8]) {
        self = []
        appendBlock(lengthBytes: 2, block)
    }

    fileprivate mutating func appendNumber(_ number: UInt16) { self += number.wireBytes }

    fileprivate mutating func appendBlock(lengthBytes: Int, _ block: [UInt8]) {
        for index in (0..<lengthBytes).reversed() { append(UInt8(truncatingIfNeeded: block.count >> (8 * index))) }
        self += block
    }

    fileprivate mutating func appendExtension(_ type: UInt16, _ value: [UInt8]) {
        appendNumber(type)
        appendBlock(lengthBytes: 2, value)
    }
}

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
