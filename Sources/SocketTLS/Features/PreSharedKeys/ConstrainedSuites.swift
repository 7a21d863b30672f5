internal import COpenSSL

/// The TLS 1.2 suites with a pre-shared key and without an ephemeral key exchange, for constrained devices
/// (`TLSPolicy.constrainedDevices`).
enum ConstrainedSuites {
    /// Strongest first, by OpenSSL's names (RFC 5487, section 2; RFC 6655, section 4).
    static let names = ["PSK-AES128-GCM-SHA256", "PSK-AES128-CCM8"]

    /// Makes the security level accept the suites. OpenSSL 3.2 and later count a tag of 8 bytes as 64 bits of
    /// security, and level 2 requires 112.
    static func allow(on context: OpaquePointer) { COpenSSL_CTX_allowConstrainedSuites(context) }
}
