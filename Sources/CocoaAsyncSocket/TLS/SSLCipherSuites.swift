// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// The number of a cipher suite (IANA).
public typealias SSLCipherSuite = UInt16

/// 0x1301, of TLS 1.3.
public let TLS_AES_128_GCM_SHA256: SSLCipherSuite = 0x1301
/// 0x1302, of TLS 1.3.
public let TLS_AES_256_GCM_SHA384: SSLCipherSuite = 0x1302
/// 0x1303, of TLS 1.3.
public let TLS_CHACHA20_POLY1305_SHA256: SSLCipherSuite = 0x1303
/// 0x1304, of TLS 1.3.
public let TLS_AES_128_CCM_SHA256: SSLCipherSuite = 0x1304
/// 0xC009, of TLS 1.2.
public let TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: SSLCipherSuite = 0xC009
/// 0xC00A, of TLS 1.2.
public let TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: SSLCipherSuite = 0xC00A
/// 0xC013, of TLS 1.2.
public let TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: SSLCipherSuite = 0xC013
/// 0xC014, of TLS 1.2.
public let TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: SSLCipherSuite = 0xC014
/// 0xC023, of TLS 1.2.
public let TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256: SSLCipherSuite = 0xC023
/// 0xC024, of TLS 1.2.
public let TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384: SSLCipherSuite = 0xC024
/// 0xC027, of TLS 1.2.
public let TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256: SSLCipherSuite = 0xC027
/// 0xC028, of TLS 1.2.
public let TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384: SSLCipherSuite = 0xC028
/// 0xC02B, of TLS 1.2.
public let TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: SSLCipherSuite = 0xC02B
/// 0xC02C, of TLS 1.2.
public let TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: SSLCipherSuite = 0xC02C
/// 0xC02F, of TLS 1.2.
public let TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: SSLCipherSuite = 0xC02F
/// 0xC030, of TLS 1.2.
public let TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: SSLCipherSuite = 0xC030
/// 0xCCA8, of TLS 1.2.
public let TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: SSLCipherSuite = 0xCCA8
/// 0xCCA9, of TLS 1.2.
public let TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: SSLCipherSuite = 0xCCA9

// These may stand in a list, and are never negotiated: they have no forward secrecy.

/// 0x002F: never negotiated.
public let TLS_RSA_WITH_AES_128_CBC_SHA: SSLCipherSuite = 0x002F
/// 0x0035: never negotiated.
public let TLS_RSA_WITH_AES_256_CBC_SHA: SSLCipherSuite = 0x0035
/// 0x003C: never negotiated.
public let TLS_RSA_WITH_AES_128_CBC_SHA256: SSLCipherSuite = 0x003C
/// 0x003D: never negotiated.
public let TLS_RSA_WITH_AES_256_CBC_SHA256: SSLCipherSuite = 0x003D
/// 0x009C: never negotiated.
public let TLS_RSA_WITH_AES_128_GCM_SHA256: SSLCipherSuite = 0x009C
/// 0x009D: never negotiated.
public let TLS_RSA_WITH_AES_256_GCM_SHA384: SSLCipherSuite = 0x009D

/// The numbers that this library negotiates, and their names.
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

    /// The number of a suite that was negotiated; 0 for one without a name here.
    static func number(of name: String) -> SSLCipherSuite {
        (ofTLS13.first { $0.value == name } ?? ofTLS12.first { $0.value == name })?.key ?? 0
    }
}
