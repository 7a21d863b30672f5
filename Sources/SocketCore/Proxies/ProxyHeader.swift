/// The header of HAProxy's PROXY protocol: it names the client of a proxy that passes a connection on, and
/// the proxy sends it before the first byte of the connection.
///
/// It is what the sender of the header says. Take it only from proxies that you trust, and from them always:
/// a peer that may choose between a header and none chooses the address that you see (the specification,
/// sections 2 and 5).
///
/// Source: the PROXY protocol, versions 1 and 2 (`doc/proxy-protocol.txt` of HAProxy).
public struct ProxyHeader: Sendable, Hashable {
    /// A version of the protocol.
    public enum Version: Sendable, Hashable {
        /// A line of text, for TCP.
        case version1
        /// A binary block.
        case version2
    }

    /// The transport between the client and the proxy.
    public enum Transport: Sendable, Hashable {
        /// TCP, or a Unix-domain stream.
        case stream
        /// UDP, or Unix-domain datagrams. The specification has a receiver that does not support it use the
        /// real addresses of the connection, and not refuse it.
        case datagram
    }

    /// A field of version 2 (a TLV): its type, and its bytes.
    public struct Field: Sendable, Hashable {
        /// The number of its type. 0xE0 to 0xEF are free for applications.
        public let type: UInt8
        /// Its bytes.
        public let value: [UInt8]

        /// A field of an unregistered type.
        public init(type: UInt8, value: [UInt8]) {
            self.type = type
            self.value = value
        }
    }

    /// The client; nil when the proxy does not name it. Then the real address of the connection counts.
    public let source: SocketAddress?
    /// The address that the client connected to; nil when `source` is.
    public let destination: SocketAddress?
    /// The transport that the client used.
    public let transport: Transport
    /// True for a connection of the proxy's own, such as a health check (`LOCAL`).
    public let isLocal: Bool

    /// The protocol above, as the bytes of ALPN (`PP2_TYPE_ALPN`); nil: none. RFC 7301 allows any bytes.
    public var applicationProtocol: [UInt8]?
    /// The host that the client asked for, such as the server name of TLS (`PP2_TYPE_AUTHORITY`); nil: none.
    public var authority: String?
    /// The proxy's name for the connection, at most `longestUniqueID` bytes (`PP2_TYPE_UNIQUE_ID`); nil:
    /// none.
    public var uniqueID: [UInt8]?
    /// The facts about TLS between the client and the proxy (`PP2_TYPE_SSL`); nil: none are known.
    public var clientTLS: ClientTLS?
    /// The name of the network namespace (`PP2_TYPE_NETNS`), in ASCII; nil: none.
    public var networkNamespace: String?
    /// True when the header has a CRC32C (`PP2_TYPE_CRC32C`). That of a parsed header was right.
    public var hasChecksum = false
    /// The fields of all other types, in their order.
    public var otherFields: [Field] = []

    /// The most bytes of `uniqueID`.
    public static let longestUniqueID = 128

    private init(source: SocketAddress?, destination: SocketAddress?, transport: Transport, isLocal: Bool) {
        self.source = source
        self.destination = destination
        self.transport = transport
        self.isLocal = isLocal
    }

    /// The header of a connection that a client has made.
    ///
    /// - Parameters:
    ///   - source: The client's address.
    ///   - destination: The address that it connected to, of the same family.
    ///   - transport: The transport that it used.
    public init(source: SocketAddress, destination: SocketAddress, transport: Transport = .stream) {
        self.init(source: source, destination: destination, transport: transport, isLocal: false)
    }

    /// The header of a connection of the proxy's own. Version 1 has `UNKNOWN` for it.
    public static let local = ProxyHeader(source: nil, destination: nil, transport: .stream, isLocal: true)

    /// The header of a connection whose addresses the proxy does not know, or cannot write down.
    public static let unknown = ProxyHeader(source: nil, destination: nil, transport: .stream, isLocal: false)
}

extension ProxyHeader {
    /// The facts that a proxy knows about TLS between the client and itself.
    public struct ClientTLS: Sendable, Hashable {
        /// Which facts are there.
        public struct Flags: OptionSet, Sendable, Hashable {
            /// The bits of the protocol.
            public let rawValue: UInt8

            /// Flags with these bits.
            public init(rawValue: UInt8) {
                self.rawValue = rawValue
            }

            /// The client connected with TLS (`PP2_CLIENT_SSL`).
            public static let usesTLS = Flags(rawValue: 0x01)
            /// The client presented a certificate on this connection (`PP2_CLIENT_CERT_CONN`).
            public static let presentedCertificate = Flags(rawValue: 0x02)
            /// The client has presented a certificate in the TLS session of this connection
            /// (`PP2_CLIENT_CERT_SESS`).
            public static let presentedCertificateInSession = Flags(rawValue: 0x04)
        }

        /// Which facts are there.
        public var flags: Flags
        /// The result of the proxy's verification of the client's certificate: zero for success. HAProxy
        /// sends zero for a client without a certificate too: use `hasVerifiedCertificate`.
        public var verifyResult: UInt32
        /// The version of TLS, such as `TLSv1.3`; nil: unknown.
        public var version: String?
        /// The common name in the client's certificate; nil: none.
        public var commonName: String?
        /// The cipher suite, such as `ECDHE-RSA-AES128-GCM-SHA256`; nil: unknown.
        public var cipherSuite: String?
        /// The algorithm that signed the proxy's certificate, such as `RSA-SHA256`; nil: unknown.
        public var signatureAlgorithm: String?
        /// The key of the proxy's certificate, such as `RSA2048`; nil: unknown.
        public var keyAlgorithm: String?
        /// The fields of all other types in this one, in their order.
        public var otherFields: [Field] = []

        /// The facts that a proxy knows about TLS.
        public init(flags: Flags, verifyResult: UInt32) {
            self.flags = flags
            self.verifyResult = verifyResult
        }

        /// True when the client has presented a certificate, and the proxy has verified it.
        public var hasVerifiedCertificate: Bool {
            verifyResult == 0 && !flags.isDisjoint(with: [.presentedCertificate, .presentedCertificateInSession])
        }
    }
}

/// Why there is no `ProxyHeader`, or no bytes of one.
public struct ProxyHeaderError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of the failure. New kinds may be added: a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String

        private init(_ name: String) {
            description = name
        }

        /// The peer's first bytes are not a header, or break a rule of the protocol. End the connection.
        public static let malformed = Code("malformed")
        /// The peer's header is longer than the protocol, or the limit, allows. End the connection.
        public static let tooLong = Code("tooLong")
        /// The peer's header was damaged: its checksum is wrong. End the connection.
        public static let wrongChecksum = Code("wrongChecksum")
        /// The caller's header cannot be sent in that version of the protocol. Nothing is wrong with a peer.
        public static let notEncodable = Code("notEncodable")
    }

    /// The kind of the failure.
    public let code: Code
    /// One sentence that says what failed. It quotes the peer in printable ASCII, up to a limit.
    public let message: String

    /// An error as this library throws it: for tests of code that handles errors.
    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// The message and the code.
    public var description: String { "\(message) [\(code)]" }
}
