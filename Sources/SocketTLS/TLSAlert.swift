/// A TLS alert, numbered as in RFC 8446, section 6, and the IANA registry "TLS Alerts".
public struct TLSAlert: Sendable, Hashable, CustomStringConvertible {
    /// The alert's number on the wire.
    public let rawValue: UInt8

    /// Creates an alert with this number, whether or not this library knows it.
    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// The sender will send no more data: an orderly close of one direction.
    public static let closeNotify = TLSAlert(rawValue: 0)
    /// A message that is not allowed at this point, or too many messages of one kind.
    public static let unexpectedMessage = TLSAlert(rawValue: 10)
    /// A record that could not be decrypted.
    public static let badRecordMAC = TLSAlert(rawValue: 20)
    /// A record longer than TLS allows.
    public static let recordOverflow = TLSAlert(rawValue: 22)
    /// The two sides have no acceptable set of parameters in common.
    public static let handshakeFailure = TLSAlert(rawValue: 40)
    /// A certificate that is corrupt or was rejected.
    public static let badCertificate = TLSAlert(rawValue: 42)
    /// A certificate of an unsupported kind.
    public static let unsupportedCertificate = TLSAlert(rawValue: 43)
    /// A certificate that was revoked by its issuer.
    public static let certificateRevoked = TLSAlert(rawValue: 44)
    /// A certificate outside its validity period.
    public static let certificateExpired = TLSAlert(rawValue: 45)
    /// A certificate that is unacceptable for another reason.
    public static let certificateUnknown = TLSAlert(rawValue: 46)
    /// A field that is out of range or inconsistent with another field.
    public static let illegalParameter = TLSAlert(rawValue: 47)
    /// A certificate chain that does not lead to a trusted root.
    public static let unknownCA = TLSAlert(rawValue: 48)
    /// A peer that is not allowed to connect, although its certificate is valid.
    public static let accessDenied = TLSAlert(rawValue: 49)
    /// A message that cannot be decoded.
    public static let decodeError = TLSAlert(rawValue: 50)
    /// A signature or a Finished message that failed verification.
    public static let decryptError = TLSAlert(rawValue: 51)
    /// A protocol version that is known but not supported.
    public static let protocolVersion = TLSAlert(rawValue: 70)
    /// Parameters weaker than the sender of the alert requires.
    public static let insufficientSecurity = TLSAlert(rawValue: 71)
    /// An internal failure that is unrelated to the other side.
    public static let internalError = TLSAlert(rawValue: 80)
    /// A client that fell back to an older version than necessary (RFC 7507).
    public static let inappropriateFallback = TLSAlert(rawValue: 86)
    /// A handshake that was canceled by the user.
    public static let userCanceled = TLSAlert(rawValue: 90)
    /// A rejected renegotiation (TLS 1.2).
    public static let noRenegotiation = TLSAlert(rawValue: 100)
    /// A missing mandatory extension.
    public static let missingExtension = TLSAlert(rawValue: 109)
    /// An extension that is not allowed in this message.
    public static let unsupportedExtension = TLSAlert(rawValue: 110)
    /// A requested server name that the server does not serve.
    public static let unrecognizedName = TLSAlert(rawValue: 112)
    /// An unacceptable stapled OCSP response.
    public static let badCertificateStatusResponse = TLSAlert(rawValue: 113)
    /// An unknown pre-shared key.
    public static let unknownPSKIdentity = TLSAlert(rawValue: 115)
    /// A missing client certificate that the server requires (TLS 1.3).
    public static let certificateRequired = TLSAlert(rawValue: 116)
    /// The two sides have no application protocol in common (RFC 7301).
    public static let noApplicationProtocol = TLSAlert(rawValue: 120)

    /// The alert's name from RFC 8446 and its number, as in "bad_certificate (42)".
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
