/// A TLS alert, as numbered by RFC 8446, section 6, and the IANA registry "TLS Alerts".
public struct TLSAlert: Sendable, Hashable, CustomStringConvertible {
    /// The number on the wire.
    public let rawValue: UInt8

    /// The alert with this number, known or not.
    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// The orderly end of one direction.
    public static let closeNotify = TLSAlert(rawValue: 0)
    /// A message that was not legal at this point, or too many of one kind.
    public static let unexpectedMessage = TLSAlert(rawValue: 10)
    /// A record that cannot be decrypted.
    public static let badRecordMAC = TLSAlert(rawValue: 20)
    /// A record longer than TLS allows.
    public static let recordOverflow = TLSAlert(rawValue: 22)
    /// No set of parameters suits both sides.
    public static let handshakeFailure = TLSAlert(rawValue: 40)
    /// A certificate that is corrupt, or that was refused.
    public static let badCertificate = TLSAlert(rawValue: 42)
    /// A certificate of a kind that is not supported.
    public static let unsupportedCertificate = TLSAlert(rawValue: 43)
    /// A certificate that its issuer revoked.
    public static let certificateRevoked = TLSAlert(rawValue: 44)
    /// A certificate outside its period of validity.
    public static let certificateExpired = TLSAlert(rawValue: 45)
    /// A certificate that is not acceptable for some other reason.
    public static let certificateUnknown = TLSAlert(rawValue: 46)
    /// A field outside its range, or at odds with another.
    public static let illegalParameter = TLSAlert(rawValue: 47)
    /// A chain that does not end at a trusted root.
    public static let unknownCA = TLSAlert(rawValue: 48)
    /// A valid certificate without permission to connect.
    public static let accessDenied = TLSAlert(rawValue: 49)
    /// A message that cannot be decoded.
    public static let decodeError = TLSAlert(rawValue: 50)
    /// A signature or a Finished message that cannot be verified.
    public static let decryptError = TLSAlert(rawValue: 51)
    /// A protocol version that is known but not supported.
    public static let protocolVersion = TLSAlert(rawValue: 70)
    /// Parameters weaker than the peer demands.
    public static let insufficientSecurity = TLSAlert(rawValue: 71)
    /// A failure that has nothing to do with the other side.
    public static let internalError = TLSAlert(rawValue: 80)
    /// A client that retries with an older version than it needs (RFC 7507).
    public static let inappropriateFallback = TLSAlert(rawValue: 86)
    /// The handshake was cancelled by the user.
    public static let userCanceled = TLSAlert(rawValue: 90)
    /// A renegotiation that was refused (TLS 1.2).
    public static let noRenegotiation = TLSAlert(rawValue: 100)
    /// A mandatory extension is missing.
    public static let missingExtension = TLSAlert(rawValue: 109)
    /// An extension that is not allowed here.
    public static let unsupportedExtension = TLSAlert(rawValue: 110)
    /// The server does not serve the name that the client asks for.
    public static let unrecognizedName = TLSAlert(rawValue: 112)
    /// A stapled OCSP response that is not acceptable.
    public static let badCertificateStatusResponse = TLSAlert(rawValue: 113)
    /// The pre-shared key is unknown.
    public static let unknownPSKIdentity = TLSAlert(rawValue: 115)
    /// The client sent no certificate, but one is required (TLS 1.3).
    public static let certificateRequired = TLSAlert(rawValue: 116)
    /// No application protocol suits both sides (RFC 7301).
    public static let noApplicationProtocol = TLSAlert(rawValue: 120)

    /// The name of RFC 8446 and the number, as in "bad_certificate (42)".
    public var description: String {
        "\(Self.names[rawValue] ?? "unknown_alert") (\(rawValue))"
    }

    private static let names: [UInt8: String] = [
        0: "close_notify", 10: "unexpected_message", 20: "bad_record_mac", 21: "decryption_failed", 22: "record_overflow",
        30: "decompression_failure", 40: "handshake_failure", 41: "no_certificate", 42: "bad_certificate",
        43: "unsupported_certificate", 44: "certificate_revoked", 45: "certificate_expired", 46: "certificate_unknown",
        47: "illegal_parameter", 48: "unknown_ca", 49: "access_denied", 50: "decode_error", 51: "decrypt_error",
        60: "export_restriction", 70: "protocol_version", 71: "insufficient_security", 80: "internal_error",
        86: "inappropriate_fallback", 90: "user_canceled", 100: "no_renegotiation", 109: "missing_extension",
        110: "unsupported_extension", 111: "certificate_unobtainable", 112: "unrecognized_name",
        113: "bad_certificate_status_response", 114: "bad_certificate_hash_value", 115: "unknown_psk_identity",
        116: "certificate_required", 120: "no_application_protocol",
    ]
}
