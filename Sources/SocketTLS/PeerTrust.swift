internal import COpenSSL

/// A certificate chain or a raw public key, with OpenSSL's verdict, for the trust callback to decide on.
///
/// On a client, the trust callback runs before the server has proved that it holds the private key: do not
/// store anything about the certificate until the handshake is complete. On a server, it runs after the
/// client has proved that it holds the private key.
public struct PeerTrust: Sendable, Hashable {
    /// The side that is being evaluated: `.server` on a client, `.client` on a server.
    public let peer: TLSRole
    /// The certificates as the peer sent them, starting with its own. Empty if the peer sent a raw public
    /// key.
    ///
    /// The certificates are known to form a chain only if the `verdict` is `.trusted` and no `daneEE` record
    /// matched (see `TLSDANE`).
    public let chain: [TLSCertificate]
    /// OpenSSL's verdict on the chain, its validity dates, its purpose and, if enabled, the host name. If
    /// TLSA records are usable, `.trusted` also means that one of them matched.
    public let verdict: Verdict
    /// All faults other than the one in `verdict`, if the trust callback may overrule the verdict
    /// (`TLSTrustEvaluation.manual`). Otherwise empty, because verification stops at the first fault.
    public let otherFaults: [Verdict]
    /// The name or address that a client expects, or `nil` on a server.
    public let serverName: String?
    /// The raw public key that the peer sent instead of certificates, as a DER SubjectPublicKeyInfo (RFC
    /// 7250, section 3), or `nil` if it sent certificates.
    ///
    /// The key is one of the keys in the settings: the trust callback is never called for an unexpected key.
    public let publicKey: [UInt8]?
    /// The chain that OpenSSL built before it found the fault in `verdict`, to which the fault's depth
    /// refers.
    let path: [TLSCertificate]

    /// Creates a value with a given chain and verdict, for tests of a trust callback.
    public init(
        peer: TLSRole = .server, chain: [TLSCertificate], verdict: Verdict = .trusted, otherFaults: [Verdict] = [],
        serverName: String? = nil, publicKey: [UInt8]? = nil
    ) {
        self.init(peer, chain, verdict, otherFaults, path: [], serverName: serverName, publicKey: publicKey)
    }

    init(
        _ peer: TLSRole, _ chain: [TLSCertificate], _ verdict: Verdict, _ otherFaults: [Verdict], path: [TLSCertificate],
        serverName: String?, publicKey: [UInt8]?
    ) {
        self.path = path
        self.otherFaults = otherFaults
        self.peer = peer
        self.chain = chain
        self.verdict = verdict
        self.serverName = serverName
        self.publicKey = publicKey
    }

    /// Whether the certificates, the key, the faults and the expected peer are equal.
    public static func == (left: PeerTrust, right: PeerTrust) -> Bool {
        // A resumed session has no path.
        left.peer == right.peer && left.chain == right.chain && left.verdict == right.verdict
            && left.otherFaults == right.otherFaults && left.serverName == right.serverName && left.publicKey == right.publicKey
    }

    /// Hashes the certificates, the key and the verdict.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(chain)
        hasher.combine(publicKey)
        hasher.combine(verdict)
    }

    /// The peer's own certificate.
    public var leaf: TLSCertificate? { chain.first }

    /// The certificate that the fault in `verdict` is about. `nil` if the chain is trusted, or if the
    /// certificate was not read, for example because the peer sent too many certificates.
    ///
    /// It may be missing from `chain`: for example, an expired root is in your trust store.
    public var rejectedCertificate: TLSCertificate? {
        guard case .untrusted(_, _, let depth) = verdict else { return nil }
        let certificates = path.isEmpty ? chain : path
        return certificates.indices.contains(depth) ? certificates[depth] : nil
    }

    /// OpenSSL's verdict.
    @nonexhaustive
    public enum Verdict: Sendable, Hashable {
        /// The chain leads to a trusted root and passed all other checks.
        case trusted
        /// The chain is not trusted. The values describe the first fault that OpenSSL found or, if a
        /// certificate was revoked, the revocation. `reason` is a sentence, `code` is OpenSSL's
        /// `X509_V_ERR_*` code, and `depth` is the certificate's position in the chain (0 is the leaf).
        case untrusted(reason: String, code: Int32, depth: Int)

        var isRevocation: Bool {
            if case .untrusted(_, X509_V_ERR_CERT_REVOKED, _) = self { true } else { false }
        }
    }
}

extension TLSError {
    /// The certificates that the peer sent and the verdict on them, if the peer was rejected because of
    /// them, otherwise `nil`.
    ///
    /// `peerTrust.rejectedCertificate` is the certificate at fault, with its names, dates and issuer, and
    /// `peerTrust.leaf` is the peer's own. The peer has not necessarily proved that it holds the private key.
    public var peerTrust: PeerTrust? {
        get { evidence?.value as? PeerTrust }
        set { evidence = newValue.map { Evidence(value: $0) } }
    }
}
