public import FoundationEssentials

/// What went wrong with TLS, and who is to blame.
///
/// A failure ends the TLS connection for good: nothing more can be read or written. The `message` is one
/// sentence for a log or a user; programs decide by `code`.
public struct TLSError: LocalizedError, Sendable, Hashable, CustomStringConvertible {
    /// What kind of failure it is.
    public var code: Code
    /// One sentence that says what was wrong.
    public var message: String
    /// What was being done: an OpenSSL function such as "SSL_do_handshake", or a step of this library.
    public var operation: String
    /// The fatal alert that the peer sent, if it sent one.
    public var alert: TLSAlert?
    /// The fatal alert that was sent to the peer, if one was.
    public var sentAlert: TLSAlert?
    /// OpenSSL's `X509_V_ERR_*` code, when a certificate was refused.
    public var verifyCode: Int32?
    /// OpenSSL's error queue, oldest entry first.
    public var openSSLStack: [String]

    /// An error as this library would throw it: for tests of code that handles them.
    public init(
        _ code: Code,
        _ message: String,
        operation: String = "SSL_do_handshake",
        alert: TLSAlert? = nil,
        sentAlert: TLSAlert? = nil,
        verifyCode: Int32? = nil,
        openSSLStack: [String] = []
    ) {
        self.code = code
        self.message = message
        self.operation = operation
        self.alert = alert
        self.sentAlert = sentAlert
        self.verifyCode = verifyCode
        self.openSSLStack = openSSLStack
    }

    /// Who has to change something before this can work.
    public var blame: Blame { code.blame }

    /// The message, the operation, the alerts, the result of the verification, and OpenSSL's own words: each
    /// once, where there is one.
    public var description: String {
        var details = [operation]
        if let alert, !message.contains(alert.description) { details.append("received alert \(alert)") }
        if let sentAlert { details.append("sent alert \(sentAlert)") }
        if let verifyCode { details.append("verification result \(verifyCode)") }
        for reason in openSSLStack where !message.contains(reason) && !details.contains(reason) { details.append(reason) }
        return "\(message) [\(code), blame: \(blame); \(details.joined(separator: "; "))]"
    }

    /// The `description`, which is in English: what `localizedDescription` answers.
    public var errorDescription: String? { description }
}

extension TLSError {
    /// The kind of a TLS failure. New kinds may be added: always have a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String
        let blame: Blame

        private init(_ name: String, blame: Blame) {
            description = name
            self.blame = blame
        }

        /// The settings contradict themselves or cannot be used.
        public static let invalidSettings = Code("invalidSettings", blame: .caller)
        /// A certificate given by the program cannot be read or used.
        public static let invalidCertificate = Code("invalidCertificate", blame: .caller)
        /// A private key given by the program cannot be read or used.
        public static let invalidPrivateKey = Code("invalidPrivateKey", blame: .caller)
        /// A private key does not belong to the certificate beside it.
        public static let keyMismatch = Code("keyMismatch", blame: .caller)
        /// A certificate of the peer's chain is past its last day.
        public static let certificateExpired = Code("certificateExpired", blame: .certificate)
        /// A certificate of the peer's chain is not valid yet.
        public static let certificateNotYetValid = Code("certificateNotYetValid", blame: .certificate)
        /// The server's certificate is for another host name or address.
        public static let hostNameMismatch = Code("hostNameMismatch", blame: .certificate)
        /// The peer's chain does not end at a trusted root.
        public static let unknownIssuer = Code("unknownIssuer", blame: .certificate)
        /// OpenSSL refused the peer's chain for another reason: see `verifyCode`.
        public static let certificateRejected = Code("certificateRejected", blame: .certificate)
        /// The peer's chain, or a key in it, is more than this side verifies: see
        /// `TLSSettings.maximumCertificateChainLength`.
        public static let certificateTooLarge = Code("certificateTooLarge", blame: .certificate)
        /// The trust callback said no.
        public static let trustRejected = Code("trustRejected", blame: .certificate)
        /// The trust callback did not answer in time.
        public static let trustTimeout = Code("trustTimeout", blame: .caller)
        /// The server requires a client certificate, and the client showed none.
        public static let clientCertificateMissing = Code("clientCertificateMissing", blame: .peer)
        /// The peer ended the connection with a fatal alert: see `alert`.
        public static let peerAlert = Code("peerAlert", blame: .peer)
        /// What the peer sent is not TLS at all.
        public static let notTLS = Code("notTLS", blame: .peer)
        /// The peer broke the rules of TLS, or someone changed its bytes on the way.
        public static let protocolViolation = Code("protocolViolation", blame: .peer)
        /// The two sides have no version, cipher suite or application protocol in common.
        public static let noSharedParameters = Code("noSharedParameters", blame: .peer)
        /// The transport ended without close_notify: what was received may be cut short.
        public static let truncated = Code("truncated", blame: .peer)
        /// The transport ended before the handshake was complete.
        public static let closedDuringHandshake = Code("closedDuringHandshake", blame: .peer)
        /// The peer sent more messages that are no data (KeyUpdate, tickets, requests to renegotiate,
        /// warnings) than an honest one has use for.
        public static let tooManyKeyUpdates = Code("tooManyKeyUpdates", blame: .peer)
        /// OpenSSL, this machine or this library failed.
        public static let internalError = Code("internalError", blame: .system)
    }
}

/// Who has to change something before the same attempt can succeed.
public enum Blame: Sendable, Hashable, CustomStringConvertible {
    /// The program that uses this library: a setting, a file, or a trust callback that did not answer.
    case caller
    /// The program at the other end, or someone on the wire between.
    case peer
    /// The certificate that the peer showed.
    case certificate
    /// This machine, OpenSSL, or this library.
    case system

    /// The case's name in plain English.
    public var description: String {
        switch self {
        case .caller: "caller"
        case .peer: "peer"
        case .certificate: "certificate"
        case .system: "system"
        }
    }
}

extension String {
    /// Text from the network as a message may show it: on one line, and not too long.
    var printable: String {
        let limit = 120
        var shown = String.UnicodeScalarView()
        for scalar in unicodeScalars.prefix(limit) {
            let isControl = scalar.properties.generalCategory == .control || scalar.properties.generalCategory == .format
            shown.append(isControl || scalar.value == 0x2028 || scalar.value == 0x2029 ? "\u{FFFD}" : scalar)
        }
        return String(shown) + (unicodeScalars.dropFirst(limit).isEmpty ? "" : "…")
    }
}
