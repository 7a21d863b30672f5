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
