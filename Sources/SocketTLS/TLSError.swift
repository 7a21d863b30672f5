public import FoundationEssentials
internal import SocketBuffers

/// A TLS failure, with the party at fault.
///
/// A failure is final: the connection can no longer read or write. The `message` is text for a log or
/// a user. In code, switch on `code`.
public struct TLSError: LocalizedError, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure.
    public var code: Code
    /// A sentence fragment without a full stop that describes the failure.
    public var message: String
    /// The operation that failed: an OpenSSL function such as "SSL_do_handshake", or a step of this library.
    public var operation: String
    /// The fatal alert that the peer sent, if any.
    public var alert: TLSAlert?
    /// The fatal alert that this side sent, if any.
    public var sentAlert: TLSAlert?
    /// OpenSSL's `X509_V_ERR_*` code, if a certificate was rejected.
    public var verifyCode: Int32?
    /// On a client, the server's request for a certificate in the handshake that failed, if it arrived before
    /// the failure.
    public var clientCertificateRequest: TLSClientCertificateRequest?
    /// The details about a rejected peer: see `peerTrust`.
    var evidence: Evidence?
    /// OpenSSL's error queue, oldest entry first.
    public var openSSLStack: [String]

    /// Creates an error like the ones this library throws, for tests of error handling.
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

    /// The party that must change something before the operation can succeed.
    public var fault: TLSError.Fault { code.fault }

    /// The message, the operation, the alerts, the verification result and OpenSSL's error stack, without
    /// repetitions.
    public var description: String {
        var details = [operation]
        if let alert, !message.contains(alert.description) { details.append("received alert \(alert)") }
        if let sentAlert { details.append("sent alert \(sentAlert)") }
        if let verifyCode { details.append("verification result \(verifyCode)") }
        for reason in openSSLStack where !message.contains(reason) && !details.contains(reason) { details.append(reason) }
        return "\(message) [\(code), fault: \(fault); \(details.joined(separator: "; "))]"
    }

    /// The `description`, in English. `localizedDescription` returns it.
    public var errorDescription: String? { description }
}

extension TLSError {
    /// Stores a `PeerTrust` as an existential, because the initializers of `PeerTrust` throw this error.
    struct Evidence: Sendable, Hashable {
        let value: any Hashable & Sendable

        static func == (left: Evidence, right: Evidence) -> Bool { AnyHashable(left.value) == AnyHashable(right.value) }

        func hash(into hasher: inout Hasher) { hasher.combine(AnyHashable(value)) }
    }

    /// The kind of a TLS failure. New kinds may be added, so a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String
        let fault: TLSError.Fault

        init(_ name: String, fault: TLSError.Fault) {
            description = name
            self.fault = fault
        }

        /// The settings contradict each other or cannot be used.
        public static let invalidSettings = Code("invalidSettings", fault: .caller)
        /// A certificate or certificate revocation list supplied by the program cannot be read or used.
        public static let invalidCertificate = Code("invalidCertificate", fault: .caller)
        /// A private key supplied by the program cannot be read or used.
        public static let invalidPrivateKey = Code("invalidPrivateKey", fault: .caller)
        /// A session to resume cannot be read.
        public static let invalidSession = Code("invalidSession", fault: .caller)
        /// The requested channel binding or keying material is not available with the connection's TLS
        /// version, with the server's certificate or with this peer.
        public static let bindingUnavailable = Code("bindingUnavailable", fault: .caller)
        /// A private key does not match its certificate.
        public static let keyMismatch = Code("keyMismatch", fault: .caller)
        /// A certificate in the peer's chain has expired.
        public static let certificateExpired = Code("certificateExpired", fault: .certificate)
        /// A certificate in the peer's chain is not valid yet.
        public static let certificateNotYetValid = Code("certificateNotYetValid", fault: .certificate)
        /// The server's certificate is for a different host name or address.
        public static let hostNameMismatch = Code("hostNameMismatch", fault: .certificate)
        /// The peer's chain does not lead to a trusted root.
        public static let unknownIssuer = Code("unknownIssuer", fault: .certificate)
        /// A certificate in the peer's chain was revoked, according to its issuer's revocation list.
        public static let certificateRevoked = Code("certificateRevoked", fault: .certificate)
        /// OpenSSL rejected the peer's chain for another reason. See `verifyCode`.
        public static let certificateRejected = Code("certificateRejected", fault: .certificate)
        /// The peer's chain, or a key in it, is too large to verify. See
        /// `TLSSettings.maximumCertificateChainLength`.
        public static let certificateTooLarge = Code("certificateTooLarge", fault: .certificate)
        /// The trust callback rejected the peer.
        public static let trustRejected = Code("trustRejected", fault: .certificate)
        /// The trust callback did not decide in time.
        public static let trustTimeout = Code("trustTimeout", fault: .caller)
        /// The server requires a client certificate, and the client sent no certificate.
        public static let clientCertificateMissing = Code("clientCertificateMissing", fault: .peer)
        /// The peer closed the connection with a fatal alert. See `alert`.
        public static let peerAlert = Code("peerAlert", fault: .peer)
        /// The peer does not speak TLS.
        public static let notTLS = Code("notTLS", fault: .peer)
        /// The peer violated the TLS protocol, or its data was modified in transit.
        public static let protocolViolation = Code("protocolViolation", fault: .peer)
        /// The two sides have no version, cipher suite or application protocol in common.
        public static let noSharedParameters = Code("noSharedParameters", fault: .peer)
        /// The client requested a name that the server does not serve. See `TLSSettings.serverNames`.
        public static let unrecognizedName = Code("unrecognizedName", fault: .peer)
        /// The transport closed without a close_notify alert. The received data may be incomplete.
        public static let truncated = Code("truncated", fault: .peer)
        /// The transport closed before the handshake was complete.
        public static let closedDuringHandshake = Code("closedDuringHandshake", fault: .peer)
        /// The peer sent more non-data messages (KeyUpdate, tickets, renegotiation requests, warnings) than a
        /// legitimate peer needs.
        public static let tooManyKeyUpdates = Code("tooManyKeyUpdates", fault: .peer)
        /// OpenSSL, this machine or this library failed.
        public static let internalError = Code("internalError", fault: .system)
    }
}

extension TLSError {
    /// The party that must change something before the same attempt can succeed.
    @nonexhaustive
    public enum Fault: Sendable, Hashable, CustomStringConvertible {
        /// The program that uses this library: a setting, a file, or a trust callback that did not decide in
        /// time.
        case caller
        /// The program at the other end, or an attacker on the network path.
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
}

extension String {
    /// The string made safe for an error message: control and format characters are replaced, and long text
    /// is truncated.
    var printable: String {
        let limit = 120
        var shown = String.UnicodeScalarView()
        for scalar in unicodeScalars.prefix(limit) { shown.append(scalar.isPrintable ? scalar : "\u{FFFD}") }
        return String(shown) + (unicodeScalars.dropFirst(limit).isEmpty ? "" : "…")
    }

    /// The string with control and format characters escaped as in RFC 4514, section 2.4: a backslash and
    /// two hexadecimal digits for each byte of the character in UTF-8.
    var escapingUnprintable: String {
        guard !unicodeScalars.allSatisfy(\.isPrintable) else { return self }
        return unicodeScalars.map { scalar in
            scalar.isPrintable
                ? String(scalar)
                : scalar.utf8.map {
                    "\\" + String($0 >> 4, radix: 16, uppercase: true) + String($0 & 15, radix: 16, uppercase: true)
                }.joined()
        }.joined()
    }
}
