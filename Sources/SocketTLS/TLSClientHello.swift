/// The parameters that a client offers in its first message (RFC 8446, section 4.1.2).
public struct TLSClientHello: Sendable, Hashable {
    /// The requested server name (SNI), or `nil` if the client requested no name. The client has not proved
    /// anything yet.
    public let serverName: String?
    /// The application protocols that the client offers (ALPN), most preferred first.
    public let applicationProtocols: [String]
    /// The identities of the pre-shared keys and tickets that the client offers in TLS 1.3 (RFC 8446, section
    /// 4.2.11), in order, at most eight. The client has not proved anything yet.
    ///
    /// A `TLSServerNames` function can look up the key for an identity in a database, and return
    /// `TLSSettings.server(preSharedKeys:)` with this key.
    public let preSharedKeyIdentities: [[UInt8]]

    /// Creates a value for tests of code that selects settings for a client.
    public init(serverName: String?, applicationProtocols: [String] = [], preSharedKeyIdentities: [[UInt8]] = []) {
        self.preSharedKeyIdentities = preSharedKeyIdentities
        self.serverName = serverName
        self.applicationProtocols = applicationProtocols
    }

    /// The server name in the form used for comparisons: lowercase, without a trailing dot.
    var comparedName: String? {
        guard let serverName else { return nil }
        let name = serverName.hasSuffix(".") ? String(serverName.dropLast()) : serverName
        // Lowercasing can turn some non-ASCII letters into different letters. No configured name contains
        // such letters.
        return name.utf8.allSatisfy { $0 < 0x80 } ? name.lowercased() : name
    }

    /// A digest of the server name, which is stored in tickets. Never 0.
    var nameDigest: Int {
        DigestFields.digest { $0.append(Array((comparedName ?? "").utf8)) }.prefix(8).reduce(0) { $0 << 8 | Int($1) } | 1
    }

    /// Whether the settings selected for `other`, the client's first hello, also apply to this hello.
    ///
    /// Pre-shared keys are ignored: a second hello may offer fewer keys (RFC 8446, section 4.1.2), and an
    /// identity proves nothing until the client has proved that it holds the key.
    package func asksForTheSame(as other: TLSClientHello) -> Bool {
        serverName == other.serverName && applicationProtocols == other.applicationProtocols
    }
}

extension TLSClientHello {
    /// Parses a ClientHello. Returns `nil` if the message is malformed.
    ///
    /// - Parameters:
    ///   - message: The message, including its four-byte header.
    ///   - hasCookie: Whether this is a DTLS message.
    init?(_ message: UnsafeRawBufferPointer, hasCookie: Bool = false) {
        var (name, protocols): (String?, [String]) = (nil, [])
        var keys: [[UInt8]] = []
        let isWhole = ClientHelloMessage(message, hasCookie: hasCookie).forEachExtension { type, contents in
            switch type {
            case 0: name = Self.serverName(in: contents)
            case 16: protocols = Self.applicationProtocols(in: contents)
            case 41: keys = PreSharedKeyList(contents).identities
            default: break
            }
        }
        guard isWhole else { return nil }
        self.init(serverName: name, applicationProtocols: protocols, preSharedKeyIdentities: keys)
    }

    /// Like OpenSSL, accepts a list with exactly one entry of type host_name (0) without NUL bytes. Any name
    /// that OpenSSL accepts is returned, even if no host could have it: the server must not treat this client
    /// like a client without a name.
    private static func serverName(in contents: Slice<UnsafeRawBufferPointer>) -> String? {
        var reader = FieldReader(contents)
        guard var list = reader.field(lengthOf: 2).map({ FieldReader($0) }), reader.isAtEnd, list.number(of: 1) == 0,
            let name = list.field(lengthOf: 2), list.isAtEnd
        else { return nil }
        guard name.count <= 255, !name.contains(0) else { return nil }
        return String(decoding: name, as: UTF8.self)
    }

    private static func applicationProtocols(in contents: Slice<UnsafeRawBufferPointer>) -> [String] {
        var reader = FieldReader(contents.dropFirst(2))
        var names: [String] = []
        while let name = reader.field(lengthOf: 1), !name.isEmpty { names.append(String(decoding: name, as: UTF8.self)) }
        return names
    }
}
