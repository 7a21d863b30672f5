/// A proxy through which a socket connects: its protocol, address and credentials.
///
/// Set `socket.proxy` before calling `connect`, which throws `.badParameter` if the proxy or its
/// credentials are invalid.
public struct SocketProxy: Sendable, Hashable {
    /// The protocol of a proxy.
    public enum Kind: Sendable, Hashable {
        /// SOCKS version 5 (RFC 1928). Credentials use the "username/password" method (RFC 1929).
        case socks5
        /// HTTP CONNECT (RFC 9110, section 9.3.6) in plaintext. Credentials use the "Basic" scheme (RFC
        /// 7617).
        case http
    }

    /// The protocol of the proxy.
    public let kind: Kind
    /// The name or address of the proxy, in any form that `connect(toHost:onPort:)` accepts. A name is
    /// resolved on this machine.
    public let host: String
    /// The port of the proxy.
    public let port: UInt16
    /// The user name and password, or `nil` for no authentication.
    public let credentials: Credentials?

    /// Creates a SOCKS 5 proxy.
    ///
    /// If there are credentials, the proxy chooses whether to require them. They are sent in plaintext.
    ///
    /// - Parameters:
    ///   - host: The proxy's name or address.
    ///   - port: The proxy's port, usually 1080.
    ///   - credentials: The user name and password, each 1 to 255 bytes long (RFC 1929, section 2) and
    ///     without zero bytes. `nil` means no authentication.
    public static func socks5(host: String, port: UInt16, credentials: Credentials? = nil) -> SocketProxy {
        SocketProxy(kind: .socks5, host: host, port: port, credentials: credentials)
    }

    /// Creates an HTTP proxy that is used with the CONNECT method.
    ///
    /// The credentials are sent with the request, whether or not the proxy requires them. They are sent in
    /// plaintext.
    ///
    /// - Parameters:
    ///   - host: The proxy's name or address.
    ///   - port: The proxy's port, usually 3128 or 8080.
    ///   - credentials: The user name and password. Neither may contain control characters, and the name
    ///     must not contain a colon (RFC 7617, section 2). `nil` means no authentication.
    public static func http(host: String, port: UInt16, credentials: Credentials? = nil) -> SocketProxy {
        SocketProxy(kind: .http, host: host, port: port, credentials: credentials)
    }

    /// A user name and a password for a proxy.
    public struct Credentials: Sendable, Hashable {
        /// The user name.
        public let username: String
        /// The password. Descriptions of this value never include it.
        public let password: String

        /// Creates credentials. Both strings are sent as UTF-8.
        public init(username: String, password: String) {
            self.username = username
            self.password = password
        }
    }
}

extension SocketProxy: CustomStringConvertible {
    /// The kind, the host and the port.
    public var description: String {
        switch kind {
        case .socks5: "SOCKS proxy \(host):\(port)"
        case .http: "HTTP proxy \(host):\(port)"
        }
    }
}

extension SocketProxy.Credentials: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The user name, without the password.
    public var description: String { "\(username) with a password" }
    /// The user name, without the password.
    public var debugDescription: String { description }
    /// A mirror with the user name only, without the password.
    public var customMirror: Mirror { Mirror(self, children: ["username": username]) }
}

package struct ProxyFailure: Error, Sendable, Hashable {
    package enum Kind: Sendable, Hashable {
        /// The proxy or target settings cannot be encoded in a request. No bytes were sent.
        case invalid
        /// The proxy requires credentials, or rejected the credentials.
        case authenticationRequired
        /// The proxy understood the request and refused it.
        case refused
        /// The response violates the proxy's protocol.
        case misbehaved
    }

    package let kind: Kind
    /// A sentence fragment in lower case. It quotes the proxy's response as printable ASCII of limited
    /// length.
    package let message: String

    init(_ kind: Kind, _ message: String) {
        self.kind = kind
        self.message = message
    }
}

extension ProxyFailure {
    /// Quotes untrusted bytes for an error message: the first `limit` bytes, as printable ASCII in
    /// quotation marks.
    static func quote(_ bytes: some Sequence<UInt8>, limit: Int = 100) -> String {
        let printable = bytes.prefix(limit).map { (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?") }
        return "\"\(String(decoding: printable, as: UTF8.self))\""
    }
}
