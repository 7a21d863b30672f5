/// The offer of a client in its first message (RFC 8446, section 4.1.2).
public struct TLSClientHello: Sendable, Hashable {
    /// The name that it asks for (SNI); nil if it asks for none. It has not proved anything.
    public let serverName: String?
    /// The application protocols that it offers (ALPN), the preferred one first.
    public let applicationProtocols: [String]
    /// The identities of the pre-shared keys and the tickets that it offers in TLS 1.3 (RFC 8446, section
    /// 4.2.11), in order and eight at most. It has not proved anything.
    ///
    /// A function of `TLSServerNames` may wait for a database to find the key of one, and return
    /// `TLSSettings.server(preSharedKeys:)` with it.
    public let preSharedKeyIdentities: [[UInt8]]

    /// An offer: for tests of code that chooses by it.
    public init(serverName: String?, applicationProtocols: [String] = [], preSharedKeyIdentities: [[UInt8]] = []) {
        self.preSharedKeyIdentities = preSharedKeyIdentities
        self.serverName = serverName
        self.applicationProtocols = applicationProtocols
    }

    /// The name as names are compared: in lower case, and without the dot at its end.
    var comparedName: String? {
        guard let serverName else { return nil }
        let name = serverName.hasSuffix(".") ? String(serverName.dropLast()) : serverName
        // Outside ASCII some letters become others in lower case; no name of a list is there.
        return name.utf8.allSatisfy { $0 < 0x80 } ? name.lowercased() : name
    }

    /// Tells names apart in tickets; never 0.
    var nameDigest: Int {
        DigestFields.digest { $0.append(Array((comparedName ?? "").utf8)) }.prefix(8).reduce(0) { $0 << 8 | Int($1) } | 1
    }

    /// Whether it fits the settings that were chosen by `other`, the client's first message. Keys may be
    /// missing in the second one (RFC 8446, section 4.1.2), and count for nothing before they are proved.
    package func asksForTheSame(as other: TLSClientHello) -> Bool {
        serverName == other.serverName && applicationProtocols == other.applicationProtocols
    }
}

extension TLSClientHello {
    /// Nil for a message that is not well formed.
    ///
    /// - Parameter message: The message with its header of four bytes.
    init?(_ message: UnsafeRawBufferPointer) {
        var (name, protocols): (String?, [String]) = (nil, [])
        var keys: [[UInt8]] = []
        let isWhole = ClientHelloMessage(message).forEachExtension { type, contents in
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

    /// The list has one name of the type host_name (0), without NUL, as OpenSSL takes it. All that it takes
    /// is a name, even if no host can have it: a server must not treat its client as one that asks for none.
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
