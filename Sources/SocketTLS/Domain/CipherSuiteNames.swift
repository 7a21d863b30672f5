/// Cipher suites by their OpenSSL names.
struct CipherSuiteNames {
    var tls13: [String]
    var tls12: [String]
    let allowsTLS13: Bool
    let allowsTLS12: Bool
}
