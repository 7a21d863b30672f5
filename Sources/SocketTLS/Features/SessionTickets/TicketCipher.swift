internal import COpenSSL

/// AES-256-CBC for tickets, from the provider that the policy requires.
final class TicketCipher: Sendable {
    private let address: UInt

    /// - Throws: `invalidSettings` if OpenSSL does not provide the cipher.
    init(requiresFIPS: Bool) throws(TLSError) {
        let method = try OpenSSLCall.require(
            "EVP_CIPHER_fetch", or: .invalidSettings, "session tickets require AES-256-CBC, but the policy disables it"
        ) {
            EVP_CIPHER_fetch(nil, "AES-256-CBC", requiresFIPS ? "fips=yes" : nil)
        }
        address = UInt(bitPattern: method)
    }

    deinit { EVP_CIPHER_free(method) }

    var method: OpaquePointer? { OpaquePointer(bitPattern: address) }
}
