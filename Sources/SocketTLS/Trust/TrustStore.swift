internal import COpenSSL

/// Owns one reference to an `X509_STORE`, which many contexts share.
final class TrustStore: @unchecked Sendable {
    // Unchecked: the store is filled before it is shared and never changed after; OpenSSL locks the lookups
    // inside.
    private let store: OpaquePointer

    private init() throws(TLSError) {
        store = try OpenSSLCall.require("X509_STORE_new", or: .internalError, "OpenSSL has no memory for trusted roots.") {
            X509_STORE_new()
        }
    }

    deinit { X509_STORE_free(store) }

    convenience init(_ certificates: [Certificate]) throws(TLSError) {
        try self.init()
        for certificate in certificates {
            try OpenSSLCall.requireSuccess("X509_STORE_add_cert", or: .invalidCertificate, "A trusted root cannot be used.") {
                X509_STORE_add_cert(store, certificate.handle.x509)
            }
        }
    }

    /// The context adds a reference of its own.
    func share(with context: OpaquePointer) {
        withExtendedLifetime(self) { SSL_CTX_set1_cert_store(context, store) }
    }

    /// Loads what OpenSSL takes for the system's roots, honouring `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    static func systemRoots() throws(TLSError) -> TrustStore {
        let roots = try TrustStore()
        try OpenSSLCall.requireSuccess(
            "X509_STORE_set_default_paths", or: .internalError, "The system's trusted roots cannot be loaded."
        ) { X509_STORE_set_default_paths(roots.store) }
        return roots
    }
}
