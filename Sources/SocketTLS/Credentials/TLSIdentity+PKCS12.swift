extension TLSIdentity {
    /// An identity from the bytes of a PKCS#12 file (RFC 7292), often named `.p12` or `.pfx`.
    ///
    /// The chain begins with the certificate of the key, and goes up in order. A root is left out, and so are
    /// certificates that do not belong to the chain.
    ///
    /// Files of old programs are encrypted with RC2 or 3DES. They are refused unless
    /// `allowsLegacyAlgorithms` is true. Then OpenSSL's legacy provider is loaded for this file alone: the
    /// rest of the process does not get its algorithms.
    ///
    /// Throws `invalidCertificate` if the bytes are not PKCS#12 or have no certificate for the key;
    /// `invalidPrivateKey` if they have no key, if the passphrase is missing or wrong, or if the algorithm is
    /// too old; and `internalError` if the legacy provider is missing.
    public init(pkcs12: [UInt8], passphrase: String?, allowsLegacyAlgorithms: Bool = false) throws(TLSError) {
        let archive = try Self.archive(pkcs12, allowsLegacyAlgorithms)
        self = try archive.identity(PassphraseSource(passphrase))
    }

    /// An identity from the bytes of a PKCS#12 file, with a closure for the passphrase; see
    /// `init(pkcs12:passphrase:allowsLegacyAlgorithms:)`.
    public init(
        pkcs12: [UInt8], allowsLegacyAlgorithms: Bool = false, passphrase: () throws -> String
    ) throws(TLSError) {
        let archive = try Self.archive(pkcs12, allowsLegacyAlgorithms)
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try archive.identity(source) }
    }

    /// An identity from a PKCS#12 file; see `init(pkcs12:passphrase:allowsLegacyAlgorithms:)`.
    ///
    /// Throws `invalidCertificate` if the file cannot be read, too.
    public init(
        pkcs12File path: String, passphrase: String?, allowsLegacyAlgorithms: Bool = false
    ) throws(TLSError) {
        let archive = try Self.archive(path, allowsLegacyAlgorithms)
        self = try archive.identity(PassphraseSource(passphrase))
    }

    /// An identity from a PKCS#12 file, with a closure for the passphrase; see
    /// `init(pkcs12File:passphrase:allowsLegacyAlgorithms:)`.
    public init(
        pkcs12File path: String, allowsLegacyAlgorithms: Bool = false, passphrase: () throws -> String
    ) throws(TLSError) {
        let archive = try Self.archive(path, allowsLegacyAlgorithms)
        self = try PassphraseSource.asking(passphrase) { source throws(TLSError) in try archive.identity(source) }
    }

    /// The identity and the root of a PKCS#12 file; nil without a private key. It throws the errors of
    /// `init(pkcs12:passphrase:allowsLegacyAlgorithms:)`.
    package static func contents(
        ofPKCS12 bytes: [UInt8], passphrase: String?, allowsLegacyAlgorithms: Bool = false
    ) throws(TLSError) -> PKCS12Contents? {
        try archive(bytes, allowsLegacyAlgorithms).contents(PassphraseSource(passphrase))
    }

    private static func archive(_ bytes: [UInt8], _ allowsLegacyAlgorithms: Bool) throws(TLSError) -> PKCS12Archive {
        try PKCS12Archive(
            SecretBytes(copying: bytes), source: "The PKCS#12 file", allowsLegacyAlgorithms: allowsLegacyAlgorithms)
    }

    private static func archive(_ path: String, _ allowsLegacyAlgorithms: Bool) throws(TLSError) -> PKCS12Archive {
        try PKCS12Archive(
            SecretBytes.contents(ofFile: path, or: .invalidCertificate), source: "The file \"\(path.printable)\"",
            allowsLegacyAlgorithms: allowsLegacyAlgorithms)
    }
}
