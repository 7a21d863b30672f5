// Rules of the system's roots:
//  1. They are loaded when first needed, once for the process: it takes 4 to 28 ms.
//  2. They are loaded again when the bundle or the directory has changed, or the environment names others.
//  3. A store that is in use is never changed; the new one takes its place for later contexts.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

enum SystemTrustStore {
    private struct Loaded {
        let stamps: [FileStamp]
        let store: TrustStore
    }

    private static let loaded = Locked<Loaded?>(nil)

    /// What the roots depend on, as it is now.
    static func currentStamps() -> [FileStamp] {
        [
            path(X509_get_default_cert_file_env(), or: X509_get_default_cert_file()),
            path(X509_get_default_cert_dir_env(), or: X509_get_default_cert_dir()),
        ].map { FileStamp(path: $0) }
    }

    /// The shared store for `stamps`.
    static func store(for stamps: [FileStamp]) throws(TLSError) -> TrustStore {
        // Loading happens inside the lock: a second thread that needs the roots would otherwise load them
        // too.
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
