/// A proxy that makes connections for you: where it is, what it speaks, and your credentials.
///
/// Set it as `socket.proxy` before `connect`, which throws `.badParameter` for a proxy or credentials that
/// cannot be used.
public struct Proxy: Sendable, Hashable {
    /// The protocol that a proxy speaks.
    public enum Kind: Sendable, Hashable {
        /// SOCKS version 5 (RFC 1928); with credentials, also the method "username/password" (RFC 1929).
        case socks5
        /// The method CONNECT of HTTP (RFC 9110, section 9.3.6), in plaintext; with credentials, the scheme
        /// "Basic" (RFC 7617).
        case http
    }

    /// Its protocol.
    public let kind: Kind
    /// The name or address of the proxy itself, as `connect(toHost:onPort:)` takes it. This machine resolves
    /// it.
    public let host: String
    /// Its port.
    public let port: UInt16
    /// The user name and password, if the proxy wants them.
    public let credentials: Credentials?

    /// A SOCKS 5 proxy.
    ///
    /// The proxy chooses between no authentication and the credentials, if there are any. They travel in
    /// plaintext.
    ///
    /// - Parameters:
    ///   - host: The proxy's name or address.
    ///   - port: Its port; 1080 is customary.
    ///   - credentials: User name and password, each of 1 to 255 bytes (RFC 1929, section 2) without a zero;
    ///     nil: none.
    public static func socks5(host: String, port: UInt16, credentials: Credentials? = nil) -> Proxy {
        Proxy(kind: .socks5, host: host, port: port, credentials: credentials)
    }

    /// An HTTP proxy with the method CONNECT.
    ///
    /// The credentials are a part of the request, asked for or not. They travel in plaintext.
    ///
    /// - Parameters:
    ///   - host: The proxy's name or address.
    ///   - port: Its port; 3128 and 8080 are customary.
    ///   - credentials: User name and password without control characters, and no colon in the name (RFC
    ///     7617, section 2); nil: none.
    public static func http(host: String, port: UInt16, credentials: Credentials? = nil) -> Proxy {
        Proxy(kind: .http, host: host, port: port, credentials: credentials)
    }

    /// A user name and a password for a proxy.
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

/// Why there is no connection through a proxy.
package struct ProxyFailure: Error, Sendable, Hashable {
    package enum Kind: Sendable, Hashable {
        /// The proxy or the target cannot be put into a request; nothing was sent.
        case invalid
        /// The proxy wants credentials: any, or better ones.
        case authenticationRequired
        /// The proxy understood the request, and refused it.
        case refused
        /// The answer is not of the proxy's protocol.
        case misbehaved
    }

    package let kind: Kind
    /// One sentence, without its capital. It quotes the proxy in printable ASCII, up to a limit.
    package let message: String

    init(_ kind: Kind, _ message: String) {
        self.kind = kind
        self.message = message
    }
}

extension ProxyFailure {
    /// Bytes of a stranger for a message: the first `limit` of them, as printable ASCII in quotation marks.
    static func quote(_ bytes: some Sequence<UInt8>, limit: Int = 100) -> String {
        let printable = bytes.prefix(limit).map { (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?") }
        return "\"\(String(decoding: printable, as: UTF8.self))\""
    }
}
