/// How one side of a connection does TLS.
///
/// Start from `client(serverName:)` or `server(identity:)` and change what differs. What is not changed is
/// safe: TLS 1.2 or newer, and a client verifies the server's certificate and name against the system's
/// roots.
public struct TLSSettings: Sendable, Hashable {
    /// The side, and what belongs to it.
    public let role: Role
    /// The own certificate and key: required for a server; for a client, what it shows if it is asked.
    public var identity: TLSIdentity?
    /// The roots that the peer's certificate must lead to. For a server: those of client certificates.
    public var trustRoots: TrustRoots = .system
    /// Whether the server's certificate must be for the name in `role`.
    ///
    /// **Dangerous to turn off**: anybody with a valid certificate for *any* name can then pose as the
    /// server.
    public var verifiesHostName = true
    /// The oldest version that is accepted.
    public var minimumVersion: TLSVersion = .tls12
    /// The newest version that is accepted; nil for the newest there is.
    public var maximumVersion: TLSVersion?
    /// Application protocols for ALPN (RFC 7301), the preferred first; empty for none.
    ///
    /// A server that shares none with a client's list ends the handshake with `no_application_protocol`. A
    /// client goes on without one when the server chooses none: look at `TLSSession.applicationProtocol`.
    public var applicationProtocols: [String] = []
    /// Whether a server asks for a client certificate. Anything but `.none` is an error on a client.
    public var clientCertificates: ClientCertificates = .none
    /// How many session tickets a server sends after a full handshake (RFC 8446, section 4.6.1): 0 to 8; none
    /// unless it is set.
    ///
    /// A client that comes back with one resumes its session: no certificate and no signature, but a key
    /// exchange of its own. One is enough for clients that open one connection at a time. A resumed handshake
    /// brings one new ticket. A session ends an hour after its full handshake. Only with TLS 1.3; there is no
    /// early data. A server that asks for client certificates issues none: with both, `startTLS` throws
    /// `invalidSettings`, as it does on a client.
    ///
    /// The keys of the tickets are random, and belong to this process and to connections whose settings
    /// agree. A key makes tickets for an hour from its first one, and opens them for one more; it is wiped
    /// when a ticket is next made or shown after that. A ticket whose key is gone costs a full handshake.
    /// That happens early to a process with more than 64 different settings that issue tickets: it keeps the
    /// keys of those 64 that were used last.
    public var sessionTicketCount = 0
    /// The most bytes that the peer's certificates may have together: 1,024 to 1,048,576. A good chain has
    /// 2,000 to 6,000.
    ///
    /// More than that ends the handshake with `certificateTooLarge`, before they are parsed. For a client it
    /// is also the bound on the names of the issuers that a server accepts, which it sends when it asks for a
    /// certificate.
    public var maximumCertificateChainBytes = 64 * 1024
    /// The most certificates that the peer may show, its own among them, and the most that may lie between
    /// that and a root: 1 to 100.
    ///
    /// More than that ends the handshake with `certificateTooLarge`, before one of them is decoded. So does a
    /// key that is too expensive to verify with: RSA with more than 8,192 bits or an exponent of more than
    /// 64, a curve of more than 521 bits or one that the certificate describes itself, DSA, and DH.
    public var maximumCertificateChainLength = 10
    /// Who decides about the peer's certificate.
    public var trustEvaluation: TrustEvaluation = .builtIn
    /// The seconds that the handshake may take, without the time in which the trust callback thinks.
    public var handshakeTimeout: Double = 30
    /// The seconds that the trust callback may think.
    public var trustTimeout: Double = 30
    /// What happens to bytes that had arrived, and were not read, when the upgrade to TLS began.
    public var bytesBufferedAtUpgrade: BytesBufferedAtUpgrade

    /// A client that expects `serverName`, a host name or an IP address.
    ///
    /// The server's certificate is verified for it, and it is sent by SNI unless it is an address. Names
    /// outside ASCII must be given as A-labels ("xn--…"). One dot at the end is ignored.
    public static func client(serverName: String) -> TLSSettings {
        TLSSettings(role: .client(serverName: serverName), identity: nil, bytesBufferedAtUpgrade: .reject)
    }

    /// A server that shows `identity`.
    public static func server(identity: TLSIdentity) -> TLSSettings {
        TLSSettings(role: .server, identity: identity, bytesBufferedAtUpgrade: .feedToTLS)
    }

    private init(role: Role, identity: TLSIdentity?, bytesBufferedAtUpgrade: BytesBufferedAtUpgrade) {
        self.role = role
        self.identity = identity
        self.bytesBufferedAtUpgrade = bytesBufferedAtUpgrade
    }
}

extension TLSSettings {
    /// A side of the handshake.
    public enum Role: Sendable, Hashable {
        /// The side that begins, and the name or address it expects.
        case client(serverName: String)
        /// The side that answers.
        case server
    }

    /// Whether a server asks for a client certificate.
    public enum ClientCertificates: Sendable, Hashable {
        /// It does not ask.
        case none
        /// It asks; a client without one is let in, a client with a bad one is not.
        case optional
        /// It asks, and no one is let in without a good one.
        case required
    }

    /// Who decides about the peer's certificate.
    public enum TrustEvaluation: Sendable, Hashable {
        /// OpenSSL alone.
        case builtIn
        /// OpenSSL, and then the trust callback, which may only narrow: it is asked when OpenSSL said yes.
        case delegate
        /// The trust callback alone, which is told what OpenSSL found.
        ///
        /// **Dangerous**: a callback that says yes to everything lets anybody pose as the peer.
        case manual
    }

    /// What happens to bytes that had arrived when the upgrade to TLS began.
    public enum BytesBufferedAtUpgrade: Sendable, Hashable {
        /// They end the connection: a peer that never speaks first in TLS cannot have sent them honestly.
        case reject
        /// They are the beginning of the TLS handshake, or it fails.
        case feedToTLS
    }
}

/// A version of the TLS protocol.
public struct TLSVersion: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The number on the wire, 0x0303 for TLS 1.2.
    let wireValue: UInt16

    /// TLS 1.2 (RFC 5246).
    public static let tls12 = TLSVersion(wireValue: 0x0303)
    /// TLS 1.3 (RFC 8446).
    public static let tls13 = TLSVersion(wireValue: 0x0304)

    /// The older version is the smaller one.
    public static func < (left: TLSVersion, right: TLSVersion) -> Bool {
        left.wireValue < right.wireValue
    }

    /// The name OpenSSL uses, such as "TLSv1.3".
    public var description: String {
        switch self {
        case .tls12: "TLSv1.2"
        case .tls13: "TLSv1.3"
        default: "TLS version \(wireValue)"
        }
    }
}
