public import FoundationEssentials

/// Rules for the peer's certificates, in addition to `TLSSettings.trustRoots`, the expected name and the
/// policy. The defaults add no requirements.
///
/// The rules are part of each proof that accepts certificates (`TLSServerProof`, `TLSClients`), so they
/// cannot be set where they would have no effect:
///
/// ```swift
/// settings.proof = .certificates(TLSCertificateRules(pins: [digest]))
/// ```
public struct TLSCertificateRules: Sendable, Hashable {
    /// SHA-256 digests of public keys (`TLSCertificate.publicKeySHA256`). The peer's verified chain,
    /// including the root, must contain at least one of these keys (RFC 7469, section 2.6). If `nil`, any key
    /// is accepted. An empty set is an error.
    ///
    /// Include a backup pin for a key that you store elsewhere: without a backup, losing the key locks out
    /// every client. Pins are an additional check: a chain that is not trusted stays untrusted. A chain
    /// without a pinned key fails with `pinMismatch`, and the trust callback cannot override that. If the
    /// callback accepts a chain without a trusted root, the peer's own key must be pinned.
    public var pins: Set<[UInt8]>?
    /// Whether a pin mismatch is only reported and not enforced. `TLSSession.matchesPins` contains the result
    /// of the check.
    public var onlyReportsPins: Bool
    /// Lists of revoked certificates (CRLs; RFC 5280, section 5). If empty, revocation is not checked.
    ///
    /// If any list is given, every checked certificate requires an unexpired list from its issuer. If that
    /// list is missing, the peer is rejected with `certificateRejected`. If the list contains the
    /// certificate, the peer is rejected with `certificateRevoked`. The library does not download lists. It
    /// reloads files when they change: replace a file by renaming, so that a partially written list is never
    /// read.
    public var revocationLists: [TLSRevocationSource]
    /// Which certificates are checked against `revocationLists`.
    public var revocationScope: TLSRevocationScope
    /// Whether a chain may end at any certificate in `trustRoots`, and not only at a self-signed certificate.
    ///
    /// If this is set, every certificate in `trustRoots` is trusted, including intermediates and server
    /// certificates, whether or not its issuer is trusted.
    public var acceptsPartialChains: Bool
    /// Whether chains must strictly comply with RFC 5280.
    ///
    /// OpenSSL then rejects, for example, authorities without key identifiers or critical basic constraints
    /// (`X509_V_FLAG_X509_STRICT`). This library also rejects a peer whose own certificate is marked as an
    /// authority (CA:TRUE).
    public var isStrict: Bool
    /// The time at which the peer's certificates must be valid, or `nil` for the current time.
    ///
    /// For tests, and for machines with a wrong clock. **Setting a time in the past is dangerous**: a
    /// certificate that has expired since then is accepted.
    public var verificationTime: Date?

    /// Creates rules. Omitted arguments add no requirements.
    public init(
        pins: Set<[UInt8]>? = nil, onlyReportsPins: Bool = false, revocationLists: [TLSRevocationSource] = [],
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

/// A source of certificate revocation lists.
public enum TLSRevocationSource: Sendable, Hashable {
    /// A file with any number of lists in PEM, or one list in DER.
    case file(path: String)
    /// All files in a folder with names that end in `.crl` or `.pem`, and all files with hash names from
    /// c_rehash(1).
    case folder(path: String)
}

/// Which certificates are checked against `revocationLists`.
public enum TLSRevocationScope: Sendable, Hashable {
    /// Only the peer's own certificate.
    case leaf
    /// All certificates except the root.
    case chain
}

/// The roots that a peer's certificate chain must lead to.
public enum TLSTrustRoots: Sendable, Hashable {
    /// The system's roots, from OpenSSL's default locations (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honored).
    ///
    /// They are loaded once for the whole process, and again when the files change.
    case system
    /// The certificates in a PEM file, which is reloaded when it changes.
    case file(path: String)
    /// The certificates in all files of a folder with names that end in `.pem`, `.crt` or `.cer`, and in all
    /// files with hash names from c_rehash(1). Files without a certificate are skipped.
    ///
    /// The certificates are reloaded when the folder or one of the files changes. To detect changes, every
    /// new connection checks the modification time of each file, so keep the folder small.
    case folder(path: String)
    /// Exactly these certificates.
    case certificates([TLSCertificate])
}
