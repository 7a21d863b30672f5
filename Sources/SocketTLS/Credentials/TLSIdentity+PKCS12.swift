extension TLSIdentity {
    /// Creates an identity from the bytes of a PKCS#12 file (RFC 7292), usually named `.p12` or `.pfx`.
    ///
    /// The chain starts with the key's certificate and continues upwards in order. The root and unrelated
    /// certificates are omitted.
    ///
    /// Files from old programs are encrypted with RC2 or 3DES. They are rejected unless
    /// `allowsLegacyAlgorithms` is true. If it is true, OpenSSL's legacy provider is loaded for this file
    /// only, and its algorithms are not available to the rest of the process.
    ///
    /// Throws `invalidCertificate` if the bytes are not PKCS#12 or contain no certificate for the key;
    /// `invalidPrivateKey` if they contain no key, if the passphrase is missing or wrong, or if the algorithm
    /// is too old; and `internalError` if the legacy provider is not installed.
    public init(pkcs12: [UInt8], passphrase: String?, allowsLegacyAlgorithms: Bool = false) throws(TLSError) {
        let archive = try Self.archive(pkcs12, allowsLegacyAlgorithms)
        self = try archive.identity(PassphraseSource(passphrase))
    }

    /// Creates an identity from the bytes of a PKCS#12 file, with a closure for the passphrase. See
    /// `init(pkcs12:passphrase:allowsLegacyAlgorithms:)`.
    public init(
        pkcs12: [UInt8], allowsLegacyAlgorithms: Bool = false, passphrase: () throws -> String
    ) throws(TLSError) {
        let archive = try Self.archive(pkcs12, allowsLegacyAlgorithms)
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try archive.identity(source) }
    }

    /// Creates an identity from a PKCS#12 file. See `init(pkcs12:passphrase:allowsLegacyAlgorithms:)`.
    ///
    /// Also throws `invalidCertificate` if the file cannot be read.
    public init(
        pkcs12File path: String, passphrase: String?, allowsLegacyAlgorithms: Bool = false
    ) throws(TLSError) {
        let archive = try Self.archive(path, allowsLegacyAlgorithms)
        self = try archive.identity(PassphraseSource(passphrase))
    }

    /// Creates an identity from a PKCS#12 file, with a closure for the passphrase. See
    /// `init(pkcs12File:passphrase:allowsLegacyAlgorithms:)`.
    public init(
        pkcs12File path: String, allowsLegacyAlgorithms: Bool = false, passphrase: () throws -> String
    ) throws(TLSError) {
        let archive = try Self.archive(path, allowsLegacyAlgorithms)
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try archive.identity(source) }
    }

    /// Returns the identity and the root in a PKCS#12 file, or `nil` if the file has no private key. Throws
    /// the same errors as `init(pkcs12:passphrase:allowsLegacyAlgorithms:)`.
    package static func contents(
        ofPKCS12 bytes: [UInt8], passphrase: String?, allowsLegacyAlgorithms: Bool = false
    ) throws(TLSError) -> PKCS12Contents? {
        try archive(bytes, allowsLegacyAlgorithms).contents(PassphraseSource(passphrase))
    }

    private static func archive(_ bytes: [UInt8], _ allowsLegacyAlgorithms: Bool) throws(TLSError) -> PKCS12Archive {
        try PKCS12Archive(
            SecretBytes(copying: bytes), source: "the PKCS#12 file", allowsLegacyAlgorithms: allowsLegacyAlgorithms)
    }

    private static func archive(_ path: String, _ allowsLegacyAlgorithms: Bool) throws(TLSError) -> PKCS12Archive {
        try PKCS12Archive(
            SecretBytes.contents(ofFile: path, or: .invalidCertificate), source: "the file \"\(path.printable)\"",
            allowsLegacyAlgorithms: allowsLegacyAlgorithms)
    }
}
