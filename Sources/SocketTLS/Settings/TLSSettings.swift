/// The TLS settings for one side of a connection: `TLSClientSettings` or `TLSServerSettings`.
///
/// Start from `client`, `client(serverName:)` or `server(identity:)` and change what differs. The defaults
/// are safe: TLS 1.2 or newer, and a client verifies the server's certificate against the system's roots and
/// the expected name. Using a setting that belongs to the other side is a compile-time error.
public struct TLSSettings<Side: TLSRole.Side>: Sendable, Hashable {
    /// The values, for code that serves both sides.
    package var values: TLSSettingValues

    /// - Parameter values: The role of these values must match `Side`.
    package init(_ values: TLSSettingValues) {
        self.values = values
    }

    /// This side's certificate and key. A client presents it if requested. A server requires an identity,
    /// unless it accepts only pre-shared keys.
    public var identity: TLSIdentity? {
        get { values.identity }
        set { values.identity = newValue }
    }
    /// Whether this side presents the public key of its `identity` without the certificate (RFC 7250), which
    /// the peer must know. Defaults to `false`. A peer that does not support raw public keys receives the
    /// certificate instead.
    ///
    /// Requires OpenSSL 3.2 or newer and an `identity`. Cannot be combined with `sessionTickets`, with
    /// pre-shared keys, or with requests for client certificates after the handshake. A client resumes no
    /// sessions.
    public var presentsRawPublicKey: Bool {
        get { values.certificateType == .rawPublicKey }
        set { values.certificateType = newValue ? .rawPublicKey : .x509 }
    }
    /// The roots that the peer's certificate chain must lead to. On a server, the roots for client
    /// certificates. Defaults to `.system`.
    ///
    /// Set this on a server that requires client certificates: with `.system`, a certificate from any of the
    /// system's authorities is accepted.
    public var trustRoots: TLSTrustRoots {
        get { values.trustRoots }
        set { values.trustRoots = newValue }
    }
    /// The algorithms that may be negotiated: cipher suites, groups and signatures. Defaults to
    /// `.intermediate`.
    public var policy: TLSPolicy {
        get { values.policy }
        set { values.policy = newValue }
    }
    /// The oldest version to accept, unless `policy` requires a newer version. Defaults to `.tls12`.
    /// Settings with pre-shared keys default to `.tls13` for streams and DTLS 1.2 for datagrams; a
    /// version that you set applies to both.
    public var minimumVersion: TLSProtocolVersion {
        get { values.minimumVersion }
        set { (values.minimumVersion, values.isMinimumForStreams) = (newValue, false) }
    }
    /// The newest version to accept, or `nil` for the newest version that OpenSSL supports.
    public var maximumVersion: TLSProtocolVersion? {
        get { values.maximumVersion }
        set { values.maximumVersion = newValue }
    }
    /// The application protocols for ALPN (RFC 7301), in order of preference. If empty, ALPN is not used.
    ///
    /// If a server and the client's list have no protocol in common, the handshake fails with
    /// `no_application_protocol`. If the server selects no protocol, a client continues without ALPN: check
    /// `TLSSession.applicationProtocol`.
    public var applicationProtocols: [String] {
        get { values.applicationProtocols }
        set { values.applicationProtocols = newValue }
    }
    /// The maximum total size of the peer's certificates in bytes, from 1,024 to 1,048,576. Defaults to
    /// 65,536. A typical chain has 2,000 to 6,000 bytes.
    ///
    /// Larger chains make the handshake fail with `certificateTooLarge` before they are parsed. On a client,
    /// this also limits the names of accepted issuers in a server's certificate request.
    public var maximumCertificateChainBytes: Int {
        get { values.maximumCertificateChainBytes }
        set { values.maximumCertificateChainBytes = newValue }
    }
    /// The maximum number of certificates that the peer may send, including its own, and the maximum number
    /// of intermediates between its own certificate and a root: 1 to 100. Defaults to 10.
    ///
    /// Longer chains make the handshake fail with `certificateTooLarge` before any certificate is decoded.
    /// The same error is reported for keys that are too expensive to verify with: RSA keys of more than 8,192
    /// bits or with an exponent of more than 64 bits, curves of more than 521 bits or with explicit
    /// parameters, DSA, and DH.
    public var maximumCertificateChainLength: Int {
        get { values.maximumCertificateChainLength }
        set { values.maximumCertificateChainLength = newValue }
    }
    /// Whether OpenSSL, the trust callback, or both decide about the peer's certificate. Defaults to
    /// `.builtIn`. On a server, this also applies to each name of `serverNames`.
    public var trustEvaluation: TLSTrustEvaluation {
        get { values.trustEvaluation }
        set { values.trustEvaluation = newValue }
    }
    /// The time limit for the handshake, not including the trust callback. Defaults to 30 seconds.
    ///
    /// The time before the handshake is limited separately. A task's `startTLS` fails if pending writes make
    /// no progress for this long. A task's `startDTLS` limits the total time before the handshake to the same
    /// value. A delegate's `beginTLS` and `beginDTLS` set no limit on earlier operations.
    public var handshakeTimeout: Duration {
        get { values.handshakeTimeout }
        set { values.handshakeTimeout = newValue }
    }
    /// The time limit for the trust callback. Defaults to 30 seconds.
    public var trustTimeout: Duration {
        get { values.trustTimeout }
        set { values.trustTimeout = newValue }
    }
    /// The path of a file to which the secrets of every connection are appended, in the NSS key log format,
    /// which Wireshark reads. `nil`, the default, disables logging. The variable SSLKEYLOGFILE is not read.
    ///
    /// **Dangerous**: whoever can read the file can decrypt all traffic of these connections, including
    /// traffic that was recorded earlier. Use it only for debugging, never in production.
    ///
    /// The file is created with access for its owner only (mode 0600). It stays open while a connection or a
    /// cached context uses it, so set a new path instead of moving the file. `startTLS` throws
    /// `invalidSettings` if the file cannot be opened. Lines that cannot be written, for example because the
    /// disk is full, are lost.
    public var keyLogFile: String? {
        get { values.keyLogFile }
        set { values.keyLogFile = newValue }
    }
    /// How to treat unread bytes that arrived before the upgrade to TLS started. Defaults to `.reject` on a
    /// client and `.feedToTLS` on a server.
    public var earlyPlaintext: TLSEarlyPlaintext {
        get { values.earlyPlaintext }
        set { values.earlyPlaintext = newValue }
    }
}

/// TLS settings for a client.
public typealias TLSClientSettings = TLSSettings<TLSRole.Client>

/// TLS settings for a server.
public typealias TLSServerSettings = TLSSettings<TLSRole.Server>
