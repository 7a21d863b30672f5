/// A header of HAProxy's PROXY protocol, which identifies the original client of a forwarded connection. The
/// proxy sends the header before any other data.
///
/// The header is unauthenticated: its contents are whatever the sender wrote. Accept it only from proxies
/// that you trust, and require it from them. A peer that may choose whether to send a header can choose the
/// address that you see (specification, sections 2 and 5).
///
/// Source: the PROXY protocol, versions 1 and 2 (`doc/proxy-protocol.txt` in HAProxy's source).
public struct ProxyHeader: Sendable, Hashable {
    /// A version of the PROXY protocol.
    public enum Version: Sendable, Hashable {
        /// A line of text, for TCP only.
        case version1
        /// A binary block.
        case version2
    }

    /// The transport between the client and the proxy.
    public enum Transport: Sendable, Hashable {
        /// TCP, or a Unix-domain stream.
        case stream
        /// UDP, or Unix-domain datagrams. According to the specification, a receiver that does not support
        /// datagrams must use the real addresses of the connection instead of rejecting it.
        case datagram
    }

    /// A type-length-value field (TLV) of version 2.
    public struct Field: Sendable, Hashable {
        /// The field type. Types 0xE0 to 0xEF are reserved for applications.
        public let type: UInt8
        /// The contents of the field.
        public let value: [UInt8]

        /// Creates a field of an unregistered type.
        public init(type: UInt8, value: [UInt8]) {
            self.type = type
            self.value = value
        }
    }

    /// The client's address, or `nil` if the proxy does not provide it. In that case, use the real address
    /// of the connection.
    public let source: SocketEndpoint?
    /// The address to which the client connected, or `nil` if `source` is `nil`.
    public let destination: SocketEndpoint?
    /// The transport that the client used.
    public let transport: Transport
    /// Whether the proxy opened the connection for its own purposes, such as a health check (`LOCAL`).
    public let isLocal: Bool

    /// The application protocol, as an ALPN identifier (`PP2_TYPE_ALPN`), or `nil` if absent. RFC 7301
    /// allows any bytes.
    public var applicationProtocol: [UInt8]?
    /// The host name that the client requested, such as the TLS server name (`PP2_TYPE_AUTHORITY`), or
    /// `nil` if absent.
    public var authority: String?
    /// The proxy's identifier for the connection, at most `maximumUniqueIDBytes` bytes long
    /// (`PP2_TYPE_UNIQUE_ID`), or `nil` if absent.
    public var uniqueID: [UInt8]?
    /// Information about TLS between the client and the proxy (`PP2_TYPE_SSL`), or `nil` if absent.
    public var clientTLS: ClientTLS?
    /// The name of the network namespace in ASCII (`PP2_TYPE_NETNS`), or `nil` if absent.
    public var networkNamespace: String?
    /// Whether the header has a CRC-32C checksum (`PP2_TYPE_CRC32C`). The parser has already verified the
    /// checksum of a parsed header.
    public var hasChecksum = false
    /// Fields of all other types, in their original order.
    public var otherFields: [Field] = []

    /// The maximum length of `uniqueID` in bytes.
    public static let maximumUniqueIDBytes = 128

    private init(source: SocketEndpoint?, destination: SocketEndpoint?, transport: Transport, isLocal: Bool) {
        self.source = source
        self.destination = destination
        self.transport = transport
        self.isLocal = isLocal
    }

    /// Creates a header for a client's connection.
    ///
    /// - Parameters:
    ///   - source: The client's address.
    ///   - destination: The address to which the client connected, of the same family.
    ///   - transport: The transport that the client used.
    public init(source: SocketEndpoint, destination: SocketEndpoint, transport: Transport = .stream) {
        self.init(source: source, destination: destination, transport: transport, isLocal: false)
    }

    /// The header for a connection that the proxy opened for its own purposes. Version 1 encodes it as
    /// `UNKNOWN`.
    public static let local = ProxyHeader(source: nil, destination: nil, transport: .stream, isLocal: true)

    /// The header for a connection with addresses that the proxy does not know or cannot encode.
    public static let unknown = ProxyHeader(source: nil, destination: nil, transport: .stream, isLocal: false)
}

extension ProxyHeader {
    /// Information from the proxy about TLS between the client and the proxy.
    public struct ClientTLS: Sendable, Hashable {
        /// Flags that describe the client's use of TLS.
        public struct Flags: OptionSet, Sendable, Hashable {
            /// The bits as defined by the protocol.
            public let rawValue: UInt8

            /// Creates flags from the given bits.
            public init(rawValue: UInt8) {
                self.rawValue = rawValue
            }

            /// The client connected with TLS (`PP2_CLIENT_SSL`).
            public static let usesTLS = Flags(rawValue: 0x01)
            /// The client presented a certificate on this connection (`PP2_CLIENT_CERT_CONN`).
            public static let presentedCertificate = Flags(rawValue: 0x02)
            /// The client presented a certificate at least once in the TLS session of this connection
            /// (`PP2_CLIENT_CERT_SESS`).
            public static let presentedCertificateInSession = Flags(rawValue: 0x04)
        }

        /// Flags that describe the client's use of TLS.
        public var flags: Flags
        /// The result of the proxy's verification of the client's certificate, which is zero on success.
        /// HAProxy also sends zero for a client without a certificate, so use `hasVerifiedCertificate`.
        public var verifyResult: UInt32
        /// The TLS version, such as `TLSv1.3`, or `nil` if unknown.
        public var version: String?
        /// The common name in the client's certificate, or `nil` if absent.
        public var commonName: String?
        /// The cipher suite, such as `ECDHE-RSA-AES128-GCM-SHA256`, or `nil` if unknown.
        public var cipherSuite: String?
        /// The algorithm that signed the proxy's certificate, such as `RSA-SHA256`, or `nil` if unknown.
        public var signatureAlgorithm: String?
        /// The key type of the proxy's certificate, such as `RSA2048`, or `nil` if unknown.
        public var keyAlgorithm: String?
        /// Nested fields of all other types, in their original order.
        public var otherFields: [Field] = []

        /// Creates information about TLS.
        public init(flags: Flags, verifyResult: UInt32) {
            self.flags = flags
            self.verifyResult = verifyResult
        }

        /// Whether the client presented a certificate and the proxy verified it.
        public var hasVerifiedCertificate: Bool {
            verifyResult == 0 && !flags.isDisjoint(with: [.presentedCertificate, .presentedCertificateInSession])
        }
    }
}

/// An error in parsing or encoding a `ProxyHeader`.
public struct ProxyHeaderError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure. New kinds may be added, so a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String

        private init(_ name: String) {
            description = name
        }

        /// The peer's first bytes are not a header or violate the protocol. Close the connection.
        public static let malformed = Code("malformed")
        /// The peer's header exceeds the protocol's limit or the caller's limit. Close the connection.
        public static let tooLong = Code("tooLong")
        /// The peer's header has an incorrect checksum. Close the connection.
        public static let wrongChecksum = Code("wrongChecksum")
        /// The header cannot be encoded in the requested protocol version. This is the caller's error, not
        /// the peer's.
        public static let notEncodable = Code("notEncodable")
    }

    /// The kind of failure.
    public let code: Code
    /// A one-sentence description. It quotes the peer's bytes as printable ASCII of limited length.
    public let message: String

    /// Creates an error in the form that this library throws, for testing error handling.
    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// The message and the code.
    public var description: String { "\(message) [\(code)]" }
}

extension ProxyHeader: CustomStringConvertible {
    /// A description such as
    /// `192.0.2.1:4000 to 198.51.100.7:443, host "example.org", TLSv1.3, client certificate "alice"`.
    ///
    /// Text from the header is quoted, with control characters escaped.
    public var description: String {
        var parts = [way]
        if transport == .datagram { parts.append("datagrams") }
        if let authority { parts.append("host \(authority.debugDescription)") }
        if let clientTLS, clientTLS.flags.contains(.usesTLS) { parts += clientTLS.facts }
        return parts.joined(separator: ", ")
    }

    private var way: String {
        guard let source else { return isLocal ? "a connection from the proxy itself" : "an unknown client" }
        return destination.map { "\(source) to \($0)" } ?? "\(source)"
    }
}

extension ProxyHeader.ClientTLS {
    fileprivate var facts: [String] {
        // The sender controls the version text too.
        let version = version.map { $0.allSatisfy { $0.isLetter || $0.isNumber || $0 == "." } ? $0 : $0.debugDescription }
        let name = commonName.map { " \($0.debugDescription)" } ?? ""
        guard flags.isSuperset(of: .presentedCertificate) || flags.isSuperset(of: .presentedCertificateInSession) else {
            return [version ?? "TLS"]
        }
        return [version ?? "TLS", "\(hasVerifiedCertificate ? "" : "unverified ")client certificate\(name)"]
    }
}
