// Rules for the system's roots:
//  1. They are loaded on first use, once per process, which takes 4 to 28 ms.
//  2. They are reloaded if the bundle or directory changes, or if the environment names different paths.
//  3. A store in use never changes. A new store replaces it for later contexts.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

enum SystemTrustStore {
    private struct Loaded {
        let stamps: [FileStamp]
        let store: TrustStore
    }

    private static let loaded = Locked<Loaded?>(nil)

    static func currentStamps() -> [FileStamp] {
        [
            path(X509_get_default_cert_file_env(), or: X509_get_default_cert_file()),
            path(X509_get_default_cert_dir_env(), or: X509_get_default_cert_dir()),
        ].map { FileStamp(path: $0) }
    }

    static func store(for stamps: [FileStamp]) throws(TLSError) -> TrustStore {
        // The lock is held during loading, so that a second thread does not load the roots too.
        try loaded.withLock { loaded throws(TLSError) in
            if let loaded, loaded.stamps == stamps { return loaded.store }
            let store = try TrustStore.systemRoots()
            loaded = Loaded(stamps: stamps, store: store)
            return store
        }
    }

    /// If `store` is empty because an environment variable names a file or folders without readable roots, or
    /// because the system has no roots, returns an explanation for the error message.
    static func reasonForNoRoots(in store: OpaquePointer) -> String? {
        let roots = X509_STORE_get1_all_certs(store)
        defer { COpenSSL_sk_X509_free(roots) }
        let file = path(X509_get_default_cert_file_env(), or: X509_get_default_cert_file())
        guard let roots, COpenSSL_sk_X509_num(roots) == 0, access(file, R_OK) != 0 else { return nil }
        let reason = String(cString: strerror(errno))
        if let variable = X509_get_default_cert_file_env(), getenv(variable) != nil {
            return ": \(String(cString: variable)) names \"\(file.printable)\" (\(reason))"
        }
        // OpenSSL searches the folders for each issuer, so the store does not contain their roots.
        let folders = path(X509_get_default_cert_dir_env(), or: X509_get_default_cert_dir())
        guard folders.split(separator: ":").allSatisfy({ CertificateFolder(path: String($0)).isEmpty }) else { return nil }
        if let variable = X509_get_default_cert_dir_env(), getenv(variable) != nil {
            return ": \(String(cString: variable)) names \"\(folders.printable)\", where no certificates can be read"
        }
        return ": this system has no trusted authorities (\"\(file.printable)\": \(reason)), "
            + "so install ca-certificates or set trustRoots"
    }

    private static func path(_ variable: UnsafePointer<CChar>?, or standard: UnsafePointer<CChar>?) -> String {
        if let variable, let value = getenv(variable) { return String(cString: value) }
        return standard.map { String(cString: $0) } ?? ""
    }
}

/// Owns one reference to an `X509_STORE`, which many contexts share.
final class TrustStore: @unchecked Sendable {
    // Unchecked: the store is filled before it is shared, and never changes afterwards. OpenSSL locks its
    // lookups.
    private let store: OpaquePointer

    private init() throws(TLSError) {
        store = try OpenSSLCall.require("X509_STORE_new", or: .internalError, "OpenSSL is out of memory") {
            X509_STORE_new()
        }
    }

    deinit { X509_STORE_free(store) }

    convenience init(_ certificates: [TLSCertificate]) throws(TLSError) {
        try self.init()
        try add(certificates)
    }

    /// Creates a store with these roots, and optionally the system's roots.
    convenience init(_ certificates: [TLSCertificate], besideSystemRoots: Bool) throws(TLSError) {
        try self.init()
        if besideSystemRoots { try addSystemRoots() }
        try add(certificates)
    }

    func begin(_ verification: OpaquePointer, _ leaf: OpaquePointer, _ others: OpaquePointer?) throws(TLSError) {
        try OpenSSLCall.requireSuccess("X509_STORE_CTX_init") { X509_STORE_CTX_init(verification, store, leaf, others) }
    }

    private func add(_ certificates: [TLSCertificate]) throws(TLSError) {
        for certificate in certificates {
            try OpenSSLCall.requireSuccess(
                "X509_STORE_add_cert", or: .invalidCertificate, "the trusted root \"\(certificate.displayName)\" cannot be used"
            ) { X509_STORE_add_cert(store, certificate.handle.x509) }
        }
    }

    /// Adds a certificate revocation list, before the store is shared.
    func add(revocationList list: OpaquePointer, of source: String) throws(TLSError) {
        try OpenSSLCall.requireSuccess(
            "X509_STORE_add_crl", or: .invalidCertificate, "a certificate revocation list in \(source) cannot be used"
        ) { X509_STORE_add_crl(store, list) }
    }

    /// Sets the store of `context`, which retains its own reference.
    func share(with context: OpaquePointer) {
        withExtendedLifetime(self) { SSL_CTX_set1_cert_store(context, store) }
    }

    /// Loads the system's roots from OpenSSL's default paths, honoring `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    static func systemRoots() throws(TLSError) -> TrustStore {
        let roots = try TrustStore()
        try roots.addSystemRoots()
        return roots
    }

    private func addSystemRoots() throws(TLSError) {
        try OpenSSLCall.requireSuccess(
            "X509_STORE_set_default_paths", or: .internalError, "the system's trusted roots cannot be loaded"
        ) { X509_STORE_set_default_paths(store) }
    }
}
