/// The kinds of cipher suites that a server should or should not accept, from the weakest to the strongest.
struct SuiteTier: Sendable {
    let kind: String
    /// Whether a server that accepts a suite of this kind has a problem.
    let isWeak: Bool
    /// The suites, weakest first.
    let suites: [Suite]

    /// A suite by its number and its name in the IANA registry "TLS Cipher Suites".
    typealias Suite = (number: UInt16, name: String)

    static func isWeak(_ kind: String) -> Bool { all.contains { $0.kind == kind && $0.isWeak } }

    /// Returns the name of a suite, or its number in hexadecimal.
    static func name(of number: UInt16) -> String {
        for tier in all {
            if let suite = tier.suites.first(where: { $0.number == number }) { return suite.name }
        }
        return "0x" + String(number, radix: 16, uppercase: true)
    }

    /// Returns the number of a suite with a name in the table.
    static func number(of name: String) -> UInt16? {
        all.lazy.flatMap(\.suites).first { $0.name == name }?.number
    }

    /// The numbers of all suites that versions up to TLS 1.2 can use, weakest first.
    static let numbersUpToTLS12 = all.dropLast().flatMap { $0.suites.map(\.number) }

    /// The numbers of all suites that a server should not accept, weakest first.
    static let weakNumbers = all.filter(\.isWeak).flatMap { $0.suites.map(\.number) }

    static var numbersOfTLS13: [UInt16] { tls13.suites.map(\.number) }

    static let all = [null, anonymous, export, broken, tripleDES, staticRSA, cbc, aead, tls13]

    static let null = SuiteTier(
        kind: "no encryption", isWeak: true,
        suites: [
            (0x0001, "TLS_RSA_WITH_NULL_MD5"), (0x0002, "TLS_RSA_WITH_NULL_SHA"), (0x003B, "TLS_RSA_WITH_NULL_SHA256"),
            (0xC006, "TLS_ECDHE_ECDSA_WITH_NULL_SHA"), (0xC010, "TLS_ECDHE_RSA_WITH_NULL_SHA"),
        ])
    static let anonymous = SuiteTier(
        kind: "no authentication", isWeak: true,
        suites: [
            (0x0018, "TLS_DH_anon_WITH_RC4_128_MD5"), (0x001B, "TLS_DH_anon_WITH_3DES_EDE_CBC_SHA"),
            (0x0034, "TLS_DH_anon_WITH_AES_128_CBC_SHA"), (0x003A, "TLS_DH_anon_WITH_AES_256_CBC_SHA"),
            (0x006C, "TLS_DH_anon_WITH_AES_128_CBC_SHA256"), (0x006D, "TLS_DH_anon_WITH_AES_256_CBC_SHA256"),
            (0x00A6, "TLS_DH_anon_WITH_AES_128_GCM_SHA256"), (0x00A7, "TLS_DH_anon_WITH_AES_256_GCM_SHA384"),
            (0xC016, "TLS_ECDH_anon_WITH_RC4_128_SHA"), (0xC018, "TLS_ECDH_anon_WITH_AES_128_CBC_SHA"),
            (0xC019, "TLS_ECDH_anon_WITH_AES_256_CBC_SHA"),
        ])
    static let export = SuiteTier(
        kind: "export strength", isWeak: true,
        suites: [
            (0x0003, "TLS_RSA_EXPORT_WITH_RC4_40_MD5"), (0x0006, "TLS_RSA_EXPORT_WITH_RC2_CBC_40_MD5"),
            (0x0008, "TLS_RSA_EXPORT_WITH_DES40_CBC_SHA"), (0x0011, "TLS_DHE_DSS_EXPORT_WITH_DES40_CBC_SHA"),
            (0x0014, "TLS_DHE_RSA_EXPORT_WITH_DES40_CBC_SHA"),
        ])
    static let broken = SuiteTier(
        kind: "RC4 or DES", isWeak: true,
        suites: [
            (0x0004, "TLS_RSA_WITH_RC4_128_MD5"), (0x0005, "TLS_RSA_WITH_RC4_128_SHA"), (0x0009, "TLS_RSA_WITH_DES_CBC_SHA"),
            (0x0015, "TLS_DHE_RSA_WITH_DES_CBC_SHA"), (0xC007, "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA"),
            (0xC011, "TLS_ECDHE_RSA_WITH_RC4_128_SHA"),
        ])
    static let tripleDES = SuiteTier(
        kind: "3DES", isWeak: true,
        suites: [
            (0x000A, "TLS_RSA_WITH_3DES_EDE_CBC_SHA"), (0x0016, "TLS_DHE_RSA_WITH_3DES_EDE_CBC_SHA"),
            (0xC008, "TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA"), (0xC012, "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
        ])
    static let staticRSA = SuiteTier(
        kind: "no forward secrecy", isWeak: true,
        suites: [
            (0x002F, "TLS_RSA_WITH_AES_128_CBC_SHA"), (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
            (0x003C, "TLS_RSA_WITH_AES_128_CBC_SHA256"), (0x003D, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
            (0x0041, "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA"), (0x0084, "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA"),
            (0x0096, "TLS_RSA_WITH_SEED_CBC_SHA"), (0x009C, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
            (0x009D, "TLS_RSA_WITH_AES_256_GCM_SHA384"), (0xC09C, "TLS_RSA_WITH_AES_128_CCM"),
            (0xC09D, "TLS_RSA_WITH_AES_256_CCM"), (0xC0A0, "TLS_RSA_WITH_AES_128_CCM_8"),
        ])
    static let cbc = SuiteTier(
        kind: "CBC mode", isWeak: true,
        suites: [
            (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"), (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
            (0x0045, "TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA"), (0x0088, "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA"),
            (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"), (0x006B, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
            (0xC009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"), (0xC00A, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
            (0xC013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"), (0xC014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
            (0xC023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"), (0xC024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
            (0xC027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"), (0xC028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
        ])
    static let aead = SuiteTier(
        kind: "authenticated encryption", isWeak: false,
        suites: [
            (0xC0AE, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8"), (0xC0AC, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM"),
            (0xC0AD, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM"), (0xC09E, "TLS_DHE_RSA_WITH_AES_128_CCM"),
            (0xC09F, "TLS_DHE_RSA_WITH_AES_256_CCM"), (0x009E, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
            (0x009F, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"), (0xCCAA, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
            (0xC02B, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"), (0xC02F, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            (0xC02C, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"), (0xC030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
            (0xCCA9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"), (0xCCA8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
        ])
    static let tls13 = SuiteTier(
        kind: "TLS 1.3", isWeak: false,
        suites: [
            (0x1305, "TLS_AES_128_CCM_8_SHA256"), (0x1304, "TLS_AES_128_CCM_SHA256"), (0x1301, "TLS_AES_128_GCM_SHA256"),
            (0x1302, "TLS_AES_256_GCM_SHA384"), (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
        ])
}
