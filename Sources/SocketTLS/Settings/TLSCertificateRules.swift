public import FoundationEssentials

/// Rules for the certificates of the peer, beside `TLSSettings.trustRoots`, its name and the policy. The
/// defaults ask for nothing more.
///
/// They are a part of the proof that takes certificates (`TLSServerProof`, `TLSClients`), so that they cannot
/// be set where none count:
///
/// ```swift
/// settings.proof = .certificates(TLSCertificateRules(pins: [digest]))
/// ```
public struct TLSCertificateRules: Sendable, Hashable {
    /// SHA-256 digests of public keys (`Certificate.publicKeySHA256`): one of them must be in the peer's
    /// verified chain, root included (RFC 7469, section 2.6); empty for no such rule.
    ///
    /// Put in a backup pin too, of a key that you keep elsewhere: without it a lost key locks every client
    /// out. Pins add a rule to the verification: a chain that is not trusted stays so. A chain without a
    /// pinned key fails with `pinMismatch`, and the trust callback cannot overrule that. If the callback
    /// accepts a chain without a trusted root, the peer's own key has to be a pinned one.
    public var pins: Set<[UInt8]>
    /// Whether `pins` are reported and not enforced: `TLSSession.matchesPins` shows what they would do.
    public var onlyReportsPins: Bool
    /// Lists of revoked certificates (CRL, RFC 5280, section 5); empty for no check.
    ///
    /// With any, each certificate that is checked needs a list of its issuer that has not expired: without
    /// one the peer is refused with `certificateRejected`, and with `certificateRevoked` if the list names
    /// the certificate. The library loads no list by itself. It reads files again when they change: replace
    /// them by renaming, so that half a list is never read.
    public var revocationLists: [TLSRevocationSource]
    /// Which certificates `revocationLists` are for.
    public var revocationScope: TLSRevocationScope
    /// Whether a chain may end at any certificate of `trustRoots`, and not only at one that signed itself.
    ///
    /// With it an intermediate is a root of its own, and so is a server's certificate: every
    /// certificate in `trustRoots` is trusted, whether or not its issuer is.
    public var acceptsPartialChains: Bool
    /// Whether chains must obey RFC 5280 to the letter.
    ///
    /// OpenSSL then refuses, for instance, authorities without key identifiers or critical basic constraints
    /// (`X509_V_FLAG_X509_STRICT`). This library also refuses a peer whose own certificate is an
    /// authority's (CA:TRUE).
    public var isStrict: Bool
    /// The time at which the peer's certificates must be valid; nil for the present.
    ///
    /// For tests, and for machines whose clock is wrong. **Dangerous to set to the past**: a certificate that
    /// has expired since then is accepted.
    public var verificationTime: Date?

    /// Rules, of which those that are left out ask for nothing more.
    public init(
        pins: Set<[UInt8]> = [], onlyReportsPins: Bool = false, revocationLists: [TLSRevocationSource] = [],
        revocationScope: TLSRevocationScope = .chain, acceptsPartialChains: Bool = false, isStrict: Bool = false,
        verificationTime: Date? = nil
    ) {
        self.pins = pins
        self.onlyReportsPins = onlyReportsPins
        self.revocationLists = revocationLists
        self.revocationScope = revocationScope
        self.acceptsPartialChains = acceptsPartialChains
        self.isStrict = isStrict
        self.verificationTime = verificationTime
    }
}

/// Where lists of revoked certificates come from.
public enum TLSRevocationSource: Sendable, Hashable {
    /// A file with any number of lists in PEM, or one in DER.
    case file(path: String)
    /// Every file of a folder whose name ends in `.crl` or `.pem`, and those that c_rehash(1) has named
    /// by hash.
    case folder(path: String)
}

/// Which certificates are looked up in `revocationLists`.
public enum TLSRevocationScope: Sendable, Hashable {
    /// The peer's own.
    case leaf
    /// All but the root.
    case chain
}

/// The roots that a peer's certificate chain must lead to.
public enum TrustRoots: Sendable, Hashable {
    /// The system's roots, where OpenSSL finds them (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured).
    ///
    /// They are loaded once for the whole process, and again when the files change.
    case system
    /// The certificates of a PEM file, loaded again when the file changes.
    case file(path: String)
    /// The certificates of a folder: of all files in it whose names end in `.pem`, `.crt` or `.cer`, and of
    /// those that c_rehash(1) has named by hash. Files without a certificate are skipped.
    ///
    /// They are loaded again when the folder or one of the files changes. Each new connection looks at each
    /// file's date for that: keep the folder small.
    case folder(path: String)
    /// Exactly these certificates.
    case certificates([Certificate])
}
