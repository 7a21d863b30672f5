/// The reason why a STARTTLS dialogue failed.
public struct StartTLSError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of error. New codes may be added: keep a `default` in a `switch`.
    public let code: Code
    /// The name of the protocol, such as `SMTP`.
    public let protocolName: String
    /// A one-sentence description of the problem.
    public let message: String
    /// The peer's line or message that caused the error, if any. The first 200 characters, with control
    /// characters escaped.
    public let line: String?
    /// The number of bytes that arrived too early, for the code `injected`. Otherwise 0.
    public let injectedByteCount: Int
    /// The bytes to send before the connection is closed, such as a server's final reply. May be empty.
    public let reply: [UInt8]

    /// The kind of error.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the code, for logs.
        public let description: String

        /// The server does not offer TLS. An attacker may have removed the offer.
        public static let notOffered = Code(description: "notOffered")
        /// The server offers TLS but refused to start it, or refused the connection.
        public static let refused = Code(description: "refused")
        /// The peer sent a message that does not belong here, or that violates the protocol.
        public static let unexpectedMessage = Code(description: "unexpectedMessage")
        /// Bytes arrived after the message that starts TLS, or before they were requested: an injection
        /// attack. They are discarded.
        public static let injected = Code(description: "injected")
        /// The peer sent more than `StartTLSDialogue.maximumLength` bytes.
        public static let tooLong = Code(description: "tooLong")
        /// The server considers the connection authenticated already (`PREAUTH` in IMAP). TLS is then no
        /// longer possible, and an attacker can use this to prevent it.
        public static let alreadyAuthenticated = Code(description: "alreadyAuthenticated")
        /// The client tried to log in or to continue without TLS.
        public static let tlsRequired = Code(description: "tlsRequired")
        /// TLS arrived without the dialogue, or the port expects TLS from the first byte.
        public static let unexpectedTLS = Code(description: "unexpectedTLS")
        /// The peer logged out or closed the connection before TLS started.
        public static let closed = Code(description: "closed")
        /// A parameter of the protocol contains characters that cannot be sent, or the dialogue was used
        /// after its end.
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

    private static func quotable(_ line: String) -> String {
        let start = line.unicodeScalars.prefix(200)
        let text = start.map { $0.properties.generalCategory == .control ? $0.escaped(asASCII: true) : String($0) }.joined()
        return start.endIndex == line.endIndex ? text : text + "…"
    }
}
