/// A proxy that makes connections on your behalf: where it is, what it speaks, and what it may want to know
/// about you.
///
/// Set it as `socket.proxy` before `connect`. Nothing is checked here: `connect` throws `.badParameter` for a
/// proxy or credentials that cannot be used.
public struct Proxy: Sendable, Hashable {
    /// The protocol between us and a proxy.
    public enum Kind: Sendable, Hashable {
        /// SOCKS version 5 (RFC 1928); with credentials, also the method "username/password" (RFC 1929).
        case socks5
        /// The method CONNECT of HTTP (RFC 9110, section 9.3.6), in plaintext; with credentials, the scheme
        /// "Basic" (RFC 7617).
        case http
    }

    /// What it speaks.
    public let kind: Kind
    /// The proxy's own name or address, as `connect(toHost:onPort:)` takes them. It is resolved here.
    public let host: String
    /// The port on which it listens.
    public let port: UInt16
    /// Who we are, where the proxy wants to know.
    public let credentials: Credentials?

    /// A SOCKS 5 proxy.
    ///
    /// It is offered to go without authentication and, when there are credentials, to take these; the choice
    /// is the proxy's. They travel in plaintext.
    ///
    /// - Parameters:
    ///   - host: The proxy's name or address.
    ///   - port: Its port; 1080 is customary.
    ///   - credentials: User name and password, each of 1 to 255 bytes (RFC 1929, section 2) without a zero
    ///     among them; nil: none.
    public static func socks5(host: String, port: UInt16, credentials: Credentials? = nil) -> Proxy {
        Proxy(kind: .socks5, host: host, port: port, credentials: credentials)
    }

    /// An HTTP proxy that knows CONNECT.
    ///
    /// Credentials are sent with the request, without waiting to be asked. They travel in plaintext.
    ///
    /// - Parameters:
    ///   - host: The proxy's name or address.
    ///   - port: Its port; 3128 and 8080 are customary.
    ///   - credentials: User name and password without control characters, and no colon in the name (RFC
    ///     7617, section 2); nil: none.
    public static func http(host: String, port: UInt16, credentials: Credentials? = nil) -> Proxy {
        Proxy(kind: .http, host: host, port: port, credentials: credentials)
    }

    /// What a proxy may ask of its users.
    public struct Credentials: Sendable, Hashable {
        /// The user's name.
        public let username: String
        /// The user's password. No description shows it.
        public let password: String

        /// A user name and a password, both sent as UTF-8.
        public init(username: String, password: String) {
            self.username = username
            self.password = password
        }
    }
}

extension Proxy: CustomStringConvertible {
    /// The kind, the host and the port.
    public var description: String {
        switch kind {
        case .socks5: "SOCKS proxy \(host):\(port)"
        case .http: "HTTP proxy \(host):\(port)"
        }
    }
}

extension Proxy.Credentials: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The user name, and not the password.
    public var description: String { "\(username) with a password" }
    /// The user name, and not the password.
    public var debugDescription: String { description }
    /// The user name, and not the password.
    public var customMirror: Mirror { Mirror(self, children: ["username": username]) }
}

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
