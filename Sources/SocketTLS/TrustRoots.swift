/// The roots that a peer's certificate chain must lead to.
public enum TrustRoots: Sendable, Hashable {
    /// The system's roots, found where OpenSSL finds them (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured).
    ///
    /// They are loaded once for the whole process, and again when the files have changed.
    case system
    /// The certificates of a PEM file, loaded again when the file has changed.
    case file(path: String)
    /// Exactly these certificates.
    case certificates([Certificate])
}
