public import FoundationEssentials

/// A failure of TLS, and who is to blame.
///
/// A failure is final: nothing more can be read or written. The `message` is one sentence for a log or a
/// user; programs decide by `code`.
public struct TLSError: LocalizedError, Sendable, Hashable, CustomStringConvertible {
    /// The kind of the failure.
    public var code: Code
    /// One sentence that says what failed.
    public var message: String
    /// The operation that failed: an OpenSSL function such as "SSL_do_handshake", or a step of this library.
    public var operation: String
    /// The fatal alert that the peer sent, if it sent one.
    public var alert: TLSAlert?
    /// The fatal alert that this side sent, if it sent one.
    public var sentAlert: TLSAlert?
    /// OpenSSL's `X509_V_ERR_*` code, if a certificate was refused.
    public var verifyCode: Int32?
    /// OpenSSL's error queue, oldest entry first.
    public var openSSLStack: [String]

    /// An error as this library throws it: for tests of code that handles errors.
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

    /// The party that must change something before this can succeed.
    public var blame: Blame { code.blame }

    /// The message, the operation, the alerts, the result of the verification and OpenSSL's error stack,
    /// without repetitions.
    public var description: String {
        var details = [operation]
        if let alert, !message.contains(alert.description) { details.append("received alert \(alert)") }
        if let sentAlert { details.append("sent alert \(sentAlert)") }
        if let verifyCode { details.append("verification result \(verifyCode)") }
        for reason in openSSLStack where !message.contains(reason) && !details.contains(reason) { details.append(reason) }
        return "\(message) [\(code), blame: \(blame); \(details.joined(separator: "; "))]"
    }

    /// The `description`, in English: `localizedDescription` returns it.
    public var errorDescription: String? { description }
}

extension TLSError {
    /// The kind of a TLS failure. New kinds may be added: a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String
        let blame: Blame

        init(_ name: String, blame: Blame) {
            description = name
            self.blame = blame
        }

        /// The settings contradict each other or cannot be used.
        public static let invalidSettings = Code("invalidSettings", blame: .caller)
        /// A certificate, or a list of revoked ones, given by the program cannot be read or used.
        public static let invalidCertificate = Code("invalidCertificate", blame: .caller)
        /// A private key given by the program cannot be read or used.
        public static let invalidPrivateKey = Code("invalidPrivateKey", blame: .caller)
        /// A session to resume cannot be read.
        public static let invalidSession = Code("invalidSession", blame: .caller)
        /// The connection has no such channel binding or keying material: its version, its certificate or the
        /// peer does not allow it.
        public static let bindingUnavailable = Code("bindingUnavailable", blame: .caller)
        /// A private key does not belong to its certificate.
        public static let keyMismatch = Code("keyMismatch", blame: .caller)
        /// A certificate of the peer's chain has expired.
        public static let certificateExpired = Code("certificateExpired", blame: .certificate)
        /// A certificate of the peer's chain is not valid yet.
        public static let certificateNotYetValid = Code("certificateNotYetValid", blame: .certificate)
        /// The server's certificate is for another host name or address.
        public static let hostNameMismatch = Code("hostNameMismatch", blame: .certificate)
        /// The peer's chain does not end at a trusted root.
        public static let unknownIssuer = Code("unknownIssuer", blame: .certificate)
        /// A list of its issuer says that a certificate of the peer's chain is revoked.
        public static let certificateRevoked = Code("certificateRevoked", blame: .certificate)
        /// OpenSSL refused the peer's chain for another reason: see `verifyCode`.
        public static let certificateRejected = Code("certificateRejected", blame: .certificate)
        /// The peer's chain, or a key in it, is larger than this side verifies: see
        /// `TLSSettings.maximumCertificateChainLength`.
        public static let certificateTooLarge = Code("certificateTooLarge", blame: .certificate)
        /// The trust callback refused the peer.
        public static let trustRejected = Code("trustRejected", blame: .certificate)
        /// The trust callback did not decide in time.
        public static let trustTimeout = Code("trustTimeout", blame: .caller)
        /// The server requires a client certificate, and the client showed none.
        public static let clientCertificateMissing = Code("clientCertificateMissing", blame: .peer)
        /// The peer ended the connection with a fatal alert: see `alert`.
        public static let peerAlert = Code("peerAlert", blame: .peer)
        /// The peer does not speak TLS.
        public static let notTLS = Code("notTLS", blame: .peer)
        /// The peer broke the rules of TLS, or someone changed its bytes on the way.
        public static let protocolViolation = Code("protocolViolation", blame: .peer)
        /// The two sides have no version, cipher suite or application protocol in common.
        public static let noSharedParameters = Code("noSharedParameters", blame: .peer)
        /// The client asks for a name that the server does not have: see `TLSSettings.serverNames`.
        public static let unrecognizedName = Code("unrecognizedName", blame: .peer)
        /// The transport ended without close_notify: the received data may be incomplete.
        public static let truncated = Code("truncated", blame: .peer)
        /// The transport ended before the handshake was complete.
        public static let closedDuringHandshake = Code("closedDuringHandshake", blame: .peer)
        /// The peer sent more messages other than data (KeyUpdate, tickets, requests to renegotiate,
        /// warnings) than an honest peer needs.
        public static let tooManyKeyUpdates = Code("tooManyKeyUpdates", blame: .peer)
        /// OpenSSL, this machine or this library failed.
        public static let internalError = Code("internalError", blame: .system)
    }
}

/// The party that must change something before the same attempt can succeed.
public enum Blame: Sendable, Hashable, CustomStringConvertible {
    /// The program that uses this library: a setting, a file, or a trust callback that did not decide in
    /// time.
    case caller
    /// The program at the other end, or someone on the network in between.
    case peer
    /// The peer's certificate.
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
    /// Text from the network, fit for a message: on one line, and not too long.
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
