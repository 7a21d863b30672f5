// Rules of the system's roots:
//  1. They are loaded when first needed, once for the process. This takes 4 to 28 ms.
//  2. They are loaded again when the bundle or the directory changes, or the environment names others.
//  3. A store in use never changes; the new one takes its place for later contexts.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

/// The roots that a peer's certificate chain must lead to.
public enum TrustRoots: Sendable, Hashable {
    /// The system's roots, where OpenSSL finds them (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured).
    ///
    /// They are loaded once for the whole process, and again when the files change.
    case system
    /// The certificates of a PEM file, loaded again when the file changes.
    case file(path: String)
    /// Exactly these certificates.
    case certificates([Certificate])
}

enum SystemTrustStore {
    private struct Loaded {
        let stamps: [FileStamp]
        let store: TrustStore
    }

    private static let loaded = Locked<Loaded?>(nil)

    /// The current stamps of the files that hold the roots.
    static func currentStamps() -> [FileStamp] {
        [
            path(X509_get_default_cert_file_env(), or: X509_get_default_cert_file()),
            path(X509_get_default_cert_dir_env(), or: X509_get_default_cert_dir()),
        ].map { FileStamp(path: $0) }
    }

    /// The shared store for `stamps`.
    static func store(for stamps: [FileStamp]) throws(TLSError) -> TrustStore {
        // The lock is held while loading: otherwise a second thread that needs the roots would load them too.
        try loaded.withLock { loaded throws(TLSError) in
            if let loaded, loaded.stamps == stamps { return loaded.store }
            let store = try TrustStore.systemRoots()
            loaded = Loaded(stamps: stamps, store: store)
            return store
        }
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
        store = try OpenSSLCall.require("X509_STORE_new", or: .internalError, "OpenSSL has no memory for trusted roots.") {
            X509_STORE_new()
        }
    }

    deinit { X509_STORE_free(store) }

    convenience init(_ certificates: [Certificate]) throws(TLSError) {
        try self.init()
        for certificate in certificates {
            try OpenSSLCall.requireSuccess(
                "X509_STORE_add_cert", or: .invalidCertificate, "The trusted root \"\(certificate.displayName)\" cannot be used."
            ) { X509_STORE_add_cert(store, certificate.handle.x509) }
        }
    }

    /// Gives the store to `context`, which adds a reference of its own.
    func share(with context: OpaquePointer) {
        withExtendedLifetime(self) { SSL_CTX_set1_cert_store(context, store) }
    }

    /// Loads the system's roots as OpenSSL finds them, honouring `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    static func systemRoots() throws(TLSError) -> TrustStore {
        let roots = try TrustStore()
        try OpenSSLCall.requireSuccess(
            "X509_STORE_set_default_paths", or: .internalError, "The system's trusted roots cannot be loaded."
        ) { X509_STORE_set_default_paths(roots.store) }
        return roots
    }
}

/// Shows that a file or directory has changed: its inode, size and time. A missing file has a stamp too.
package struct FileStamp: Hashable, Sendable {
    private let path: String
    private var device: UInt = 0
    private var inode: UInt = 0
    private var size = 0
    private var seconds = 0
    private var nanoseconds = 0

    package init(path: String) {
        self.path = path
        var facts = stat()
        guard stat(path, &facts) == 0 else { return }
        device = UInt(facts.st_dev)
        inode = UInt(facts.st_ino)
        size = Int(facts.st_size)
        seconds = facts.st_mtim.tv_sec
        nanoseconds = facts.st_mtim.tv_nsec
    }

    func append(to fields: inout DigestFields) {
        fields.append(Array(path.utf8))
        for number in [Int(bitPattern: device), Int(bitPattern: inode), size, seconds, nanoseconds] { fields.append(number) }
    }
}
