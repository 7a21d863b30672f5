/// The reason why a STARTTLS dialogue failed.
public struct StartTLSError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of error. New codes may be added: keep a `default` in a `switch`.
    public internal(set) var code: Code
    /// The name of the protocol, such as `SMTP`.
    public let protocolName: String
    /// A one-sentence description of the problem.
    public internal(set) var message: String
    /// The peer's line or message that caused the error, if any: at most 200 characters, with control and
    /// formatting characters escaped.
    ///
    /// It was received in plaintext, so an attacker may have written it. Log it, but do not show it to users
    /// as information from the server.
    public let line: String?
    /// The number of bytes that arrived too early, for the code `injected`. Otherwise 0.
    public let injectedByteCount: Int
    /// The bytes to send before the connection is closed, such as a server's final reply. May be empty.
    public private(set) var reply: [UInt8]

    /// Whether the client's `StartTLSPolicy` allows the program to open another connection and to continue
    /// there in plaintext. The connection of this dialogue must be closed in any case.
    public internal(set) var allowsPlaintext = false
    /// Whether the server refused the connection, and not TLS.
    var refusesConnection = false

    /// The kind of error.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the code, for logs.
        public let description: String

        /// The server does not offer TLS. An attacker may have removed the offer.
        public static let notOffered = Code(description: "notOffered")
        /// The server does not offer TLS, although its TLSA records promise it (RFC 7672, section 2.2). An
        /// attacker may have removed the offer, or the server is misconfigured.
        public static let offerRemoved = Code(description: "offerRemoved")
        /// The server offers TLS but refused to start it, or refused the connection.
        public static let refused = Code(description: "refused")
        /// The peer sent a message that is out of place, or that violates the protocol.
        public static let unexpectedMessage = Code(description: "unexpectedMessage")
        /// Bytes arrived after the message that starts TLS, or a reply arrived before its command: an
        /// injection attack. The bytes are discarded.
        public static let injected = Code(description: "injected")
        /// The peer sent more than `StartTLSDialogue.maximumLength` bytes, announced a literal or an LDAP
        /// message of more bytes, or requested replies that exceed this length.
        public static let tooLong = Code(description: "tooLong")
        /// The server reports that the connection is already authenticated (`PREAUTH` in IMAP). STARTTLS is
        /// then not allowed, and an attacker can forge this to prevent TLS.
        public static let alreadyAuthenticated = Code(description: "alreadyAuthenticated")
        /// The client tried to log in or to continue without TLS.
        public static let tlsRequired = Code(description: "tlsRequired")
        /// The peer sent a TLS record instead of a dialogue message. The port may expect TLS from the first
        /// byte.
        public static let unexpectedTLS = Code(description: "unexpectedTLS")
        /// The peer logged out or closed the connection before TLS started.
        public static let closed = Code(description: "closed")
        /// A parameter of the protocol contains characters that cannot be sent.
        public static let invalidParameter = Code(description: "invalidParameter")
    }

    init(
        _ code: Code, name: String, _ message: String, line: String? = nil, injectedByteCount: Int = 0, reply: [UInt8] = []
    ) {
        self.code = code
        protocolName = name
        self.message = message
        self.line = line.map(Self.quotable)
        self.injectedByteCount = injectedByteCount
        self.reply = reply
    }

    /// The protocol, the message and the quoted line.
    public var description: String {
        "\(protocolName): \(message)" + (line.map { ": \"\($0)\"" } ?? "")
    }

    /// Returns the error with the replies to earlier messages before its own reply.
    func prepending(_ replies: [UInt8]) -> StartTLSError {
        var error = self
        error.reply = replies + reply
        return error
    }

    private static func quotable(_ line: String) -> String {
        let start = line.unicodeScalars.prefix(200)
        let text = start.map { $0.isPrintable ? String($0) : $0.escaped(asASCII: true) }.joined()
        return start.endIndex == line.endIndex ? text : text + "…"
    }
}

extension Unicode.Scalar {
    fileprivate var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}
