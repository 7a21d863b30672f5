/// Why a proxy made no connection.
package struct ProxyFailure: Error, Sendable, Hashable {
    package enum Kind: Sendable, Hashable {
        /// We were given something that cannot be sent; nothing was.
        case invalid
        /// The proxy wants credentials: any, or better ones.
        case authenticationRequired
        /// The proxy has understood, and did not do it.
        case refused
        /// What came is not the proxy's protocol.
        case misbehaved
    }

    package let kind: Kind
    /// One sentence without its capital; what the proxy said is quoted in printable ASCII and cut off.
    package let message: String

    init(_ kind: Kind, _ message: String) {
        self.kind = kind
        self.message = message
    }
}

extension ProxyFailure {
    /// Bytes of a proxy as they may stand in a message: the first `limit` of them, printable ASCII, in
    /// quotation marks.
    static func quote(_ bytes: some Sequence<UInt8>, limit: Int = 100) -> String {
        let printable = bytes.prefix(limit).map { (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?") }
        return "\"\(String(decoding: printable, as: UTF8.self))\""
    }
}
