// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// The IANA number of a cipher suite.
public typealias SSLCipherSuite = UInt16

/// The TLS 1.3 suite 0x1301.
public let TLS_AES_128_GCM_SHA256: SSLCipherSuite = 0x1301
/// The TLS 1.3 suite 0x1302.
public let TLS_AES_256_GCM_SHA384: SSLCipherSuite = 0x1302
/// The TLS 1.3 suite 0x1303.
public let TLS_CHACHA20_POLY1305_SHA256: SSLCipherSuite = 0x1303
/// The TLS 1.3 suite 0x1304.
public let TLS_AES_128_CCM_SHA256: SSLCipherSuite = 0x1304
/// The TLS 1.2 suite 0xC009.
public let TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: SSLCipherSuite = 0xC009
/// The TLS 1.2 suite 0xC00A.
public let TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: SSLCipherSuite = 0xC00A
/// The TLS 1.2 suite 0xC013.
public let TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: SSLCipherSuite = 0xC013
/// The TLS 1.2 suite 0xC014.
public let TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: SSLCipherSuite = 0xC014
/// The TLS 1.2 suite 0xC023.
public let TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256: SSLCipherSuite = 0xC023
/// The TLS 1.2 suite 0xC024.
public let TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384: SSLCipherSuite = 0xC024
/// The TLS 1.2 suite 0xC027.
public let TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256: SSLCipherSuite = 0xC027
/// The TLS 1.2 suite 0xC028.
public let TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384: SSLCipherSuite = 0xC028
/// The TLS 1.2 suite 0xC02B.
public let TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: SSLCipherSuite = 0xC02B
/// The TLS 1.2 suite 0xC02C.
public let TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: SSLCipherSuite = 0xC02C
/// The TLS 1.2 suite 0xC02F.
public let TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: SSLCipherSuite = 0xC02F
/// The TLS 1.2 suite 0xC030.
public let TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: SSLCipherSuite = 0xC030
/// The TLS 1.2 suite 0xCCA8.
public let TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: SSLCipherSuite = 0xCCA8
/// The TLS 1.2 suite 0xCCA9.
public let TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: SSLCipherSuite = 0xCCA9

// These suites may be listed, but are never negotiated, because they have no forward secrecy.

/// The suite 0x002F, which is never negotiated.
public let TLS_RSA_WITH_AES_128_CBC_SHA: SSLCipherSuite = 0x002F
/// The suite 0x0035, which is never negotiated.
public let TLS_RSA_WITH_AES_256_CBC_SHA: SSLCipherSuite = 0x0035
/// The suite 0x003C, which is never negotiated.
public let TLS_RSA_WITH_AES_128_CBC_SHA256: SSLCipherSuite = 0x003C
/// The suite 0x003D, which is never negotiated.
public let TLS_RSA_WITH_AES_256_CBC_SHA256: SSLCipherSuite = 0x003D
/// The suite 0x009C, which is never negotiated.
public let TLS_RSA_WITH_AES_128_GCM_SHA256: SSLCipherSuite = 0x009C
/// The suite 0x009D, which is never negotiated.
public let TLS_RSA_WITH_AES_256_GCM_SHA384: SSLCipherSuite = 0x009D

/// The names of the cipher suites that this library negotiates.
enum CipherSuiteNames {
    static let ofTLS13: [SSLCipherSuite: String] = [
        TLS_AES_128_GCM_SHA256: "TLS_AES_128_GCM_SHA256", TLS_AES_256_GCM_SHA384: "TLS_AES_256_GCM_SHA384",
        TLS_CHACHA20_POLY1305_SHA256: "TLS_CHACHA20_POLY1305_SHA256", TLS_AES_128_CCM_SHA256: "TLS_AES_128_CCM_SHA256",
    ]

    static let ofTLS12: [SSLCipherSuite: String] = [
        TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",
        TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ]

    /// Returns the number of a negotiated suite, or 0 if the suite has no constant in this file.
    static func number(of name: String) -> SSLCipherSuite {
        (ofTLS13.first { $0.value == name } ?? ofTLS12.first { $0.value == name })?.key ?? 0
    }
}
