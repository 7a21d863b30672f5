/// How one side of a connection uses TLS: `TLSSettings<TLSClient>`, in short `TLSClientSettings`, or
/// `TLSSettings<TLSServer>`, `TLSServerSettings`.
///
/// Start from `client`, `client(serverName:)` or `server(identity:)` and change what differs. The defaults
/// are safe: TLS 1.2 or newer, and a client verifies the server's certificate against the system's roots and
/// its name. Settings that are for one side only do not compile on the other.
public struct TLSSettings<Side: TLSSide>: Sendable, Hashable {
    /// For the code that serves both sides.
    package var values: TLSSettingValues

    /// - Parameter values: The role of these is what counts.
    package init(_ values: TLSSettingValues) {
        self.values = values
    }

    /// The side of the handshake.
    public var role: TLSRole { values.role }
    /// This side's certificate and key. A server requires one; a client shows it if it is asked.
    public var identity: TLSIdentity? {
        get { values.identity }
        set { values.identity = newValue }
    }
    /// The roots that the peer's certificate must lead to; on a server, the roots of client certificates.
    public var trustRoots: TrustRoots {
        get { values.trustRoots }
        set { values.trustRoots = newValue }
    }
    /// The algorithms that may be negotiated: cipher suites, groups, signatures. `.intermediate` by default.
    public var policy: TLSPolicy {
        get { values.policy }
        set { values.policy = newValue }
    }
    /// The oldest version that is accepted, unless `policy` wants a newer one.
    public var minimumVersion: TLSVersion {
        get { values.minimumVersion }
        set { values.minimumVersion = newValue }
    }
    /// The newest version that is accepted; nil for the newest that OpenSSL supports.
    public var maximumVersion: TLSVersion? {
        get { values.maximumVersion }
        set { values.maximumVersion = newValue }
    }
    /// Application protocols for ALPN (RFC 7301), the preferred one first; empty for none.
    ///
    /// A server that shares none with a client's list ends the handshake with `no_application_protocol`. A
    /// client goes on without one if the server chooses none: check `TLSSession.applicationProtocol`.
    public var applicationProtocols: [String] {
        get { values.applicationProtocols }
        set { values.applicationProtocols = newValue }
    }
    /// The most bytes that the peer's certificates may have in total: 1,024 to 1,048,576. A usual chain has
    /// 2,000 to 6,000.
    ///
    /// More than that ends the handshake with `certificateTooLarge`, before they are parsed. On a client this
    /// also limits the names of accepted issuers, which a server sends when it asks for a certificate.
    public var maximumCertificateChainBytes: Int {
        get { values.maximumCertificateChainBytes }
        set { values.maximumCertificateChainBytes = newValue }
    }
    /// The most certificates that the peer may show, including its own, and the most that may lie between its
    /// own and a root: 1 to 100.
    ///
    /// More than that ends the handshake with `certificateTooLarge`, before one of them is decoded. So does a
    /// key that is too expensive to verify with: RSA with more than 8,192 bits or an exponent of more than 64
    /// bits, a curve of more than 521 bits or one that the certificate describes itself, DSA, and DH.
    public var maximumCertificateChainLength: Int {
        get { values.maximumCertificateChainLength }
        set { values.maximumCertificateChainLength = newValue }
    }
    /// Whether OpenSSL, the trust callback, or both decide about the peer's certificate; on a
    /// server for each name of `serverNames` too.
    public var trustEvaluation: TLSTrustEvaluation {
        get { values.trustEvaluation }
        set { values.trustEvaluation = newValue }
    }
    /// How long the handshake may take from its beginning, without the time for the trust callback. A
    /// task's `startTLS` also gives the writes before it that long for each byte, and its `startDTLS` all
    /// that comes before it; a delegate's `beginTLS` and `beginDTLS` wait for what comes before them as long
    /// as that may take.
    public var handshakeTimeout: Duration {
        get { values.handshakeTimeout }
        set { values.handshakeTimeout = newValue }
    }
    /// How long the trust callback may take.
    public var trustTimeout: Duration {
        get { values.trustTimeout }
        set { values.trustTimeout = newValue }
    }
    /// A file to which the secrets of every connection are appended, in the format of NSS, which Wireshark
    /// reads; nil, the default, for none. The variable SSLKEYLOGFILE is not read.
    ///
    /// **Dangerous**: a reader of the file can read all that these connections carry, also when it was
    /// recorded earlier. Only for finding faults, and never in production.
    ///
    /// The file is made for its owner only (mode 0600). It stays open for as long as a connection, or the
    /// memory of settings, uses it: give a new path instead of moving it. `startTLS` throws `invalidSettings`
    /// if it cannot be opened. A line that cannot be written, because the disk is full, is lost.
    public var keyLogFile: String? {
        get { values.keyLogFile }
        set { values.keyLogFile = newValue }
    }
    /// The treatment of bytes that arrived before the upgrade to TLS began, and were not read.
    public var bytesBufferedAtUpgrade: TLSBytesBufferedAtUpgrade {
        get { values.bytesBufferedAtUpgrade }
        set { values.bytesBufferedAtUpgrade = newValue }
    }
}

/// A side of the handshake, as a type.
public protocol TLSSide: Sendable {}

/// The side that begins.
public enum TLSClient: TLSSide {}

/// The side that answers.
public enum TLSServer: TLSSide {}

/// Settings of a client.
public typealias TLSClientSettings = TLSSettings<TLSClient>

/// Settings of a server.
public typealias TLSServerSettings = TLSSettings<TLSServer>
