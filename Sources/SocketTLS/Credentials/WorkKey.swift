internal import SocketBuffers

/// The private key that a handshake needs; for tests, any number.
package struct WorkKey: Hashable, Sendable {
    private let number: Int

    package init(_ number: Int) {
        self.number = number
    }

    /// Equal for certificates with the same public key.
    init(_ certificate: Certificate?) {
        var fields = DigestFields()
        fields.append(certificate?.publicKeySHA256 ?? [])
        number = fields.digest.prefix(8).reduce(0) { $0 << 8 | Int($1) }
    }
}
