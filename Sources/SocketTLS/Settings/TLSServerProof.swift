/// How a server proves to a client who it is.
///
/// ```swift
/// settings.proof = .certificates(TLSCertificateRules(pins: [digest]), ocspStapling: .required)
/// settings.proof = .rawPublicKeys(try TLSRawPublicKeys(expected: [keyOfTheHub]))
/// ```
public enum TLSServerProof: Sendable, Hashable {
    /// By certificates, which must also obey these rules.
    case certificates(TLSCertificateRules, ocspStapling: TLSOCSPStapling = .none)
    /// By certificates, while the client shows the public key of its `identity` without the certificate (RFC
    /// 7250), if it is asked. A server that does not take raw public keys gets the certificate nevertheless.
    ///
    /// It needs OpenSSL 3.2 or newer, as the two cases after it do.
    case certificatesWithOwnRawPublicKey(
        TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)
    /// By one of these public keys, and not by a certificate: one is refused before it is verified, with
    /// `rawPublicKeyMissing` and the alert `unsupported_certificate`.
    case rawPublicKeys(TLSRawPublicKeys)
    /// By one of these public keys, or by a certificate. A server that has an expected key need not obey any
    /// rule for certificates, names among them.
    case rawPublicKeysOrCertificates(
        TLSRawPublicKeys, TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)
    /// By this key, which both sides have, and by nothing else: see `TLSPreSharedKey`, and
    /// `client(serverName:preSharedKey:)`, which sets `minimumVersion` too. The client neither shows nor
    /// accepts a certificate, so it needs no roots.
    ///
    /// The trust callback is not asked about a server that has proved to have the key: it has shown no
    /// certificate, so `trustEvaluation` means nothing then. The connection brings no session tickets.
    case preSharedKey(TLSPreSharedKey)
    /// By this key, or else by a certificate. A server that has the key need not obey any rule for
    /// certificates, so the connection is as safe as the weaker of the two ways.
    case preSharedKeyOrCertificates(
        TLSPreSharedKey, TLSCertificateRules = TLSCertificateRules(), ocspStapling: TLSOCSPStapling = .none)

    /// By certificates, without further rules.
    public static var certificates: TLSServerProof { .certificates(TLSCertificateRules()) }
}

extension TLSSettingValues {
    /// The proof that a client asks of the server. A case sets all of its parts: no rule is left over from
    /// the proof before.
    var serverProof: TLSServerProof {
        get {
            switch proof {
            case .certificates: .certificates(rules, ocspStapling: ocspStapling)
            case .rawPublicKeys(let keys) where !keys.expectsKeys:
                .certificatesWithOwnRawPublicKey(rules, ocspStapling: ocspStapling)
            case .rawPublicKeys(let keys):
                keys.use == .required
                    ? .rawPublicKeys(keys)
                    : .rawPublicKeysOrCertificates(keys.used(.required), rules, ocspStapling: ocspStapling)
            case .preSharedKeys(let keys):
                // A client has no list of keys.
                keys.only.map {
                    keys.use == .required
                        ? .preSharedKey($0) : .preSharedKeyOrCertificates($0, rules, ocspStapling: ocspStapling)
                } ?? .certificates(rules, ocspStapling: ocspStapling)
            }
        }
        set {
            (rules, ocspStapling) = (TLSCertificateRules(), .none)
            switch newValue {
            case .certificates(let rules, let stapling): (proof, self.rules, ocspStapling) = (.certificates, rules, stapling)
            case .certificatesWithOwnRawPublicKey(let rules, let stapling):
                (proof, self.rules, ocspStapling) = (.rawPublicKeys(.ownKey), rules, stapling)
            case .rawPublicKeys(let keys): proof = .rawPublicKeys(keys.used(.required))
            case .rawPublicKeysOrCertificates(let keys, let rules, let stapling):
                (proof, self.rules, ocspStapling) = (.rawPublicKeys(keys.used(.preferred)), rules, stapling)
            case .preSharedKey(let key): proof = .preSharedKeys(TLSPreSharedKeys(key))
            case .preSharedKeyOrCertificates(let key, let rules, let stapling):
                proof = .preSharedKeys(TLSPreSharedKeys(key).used(.preferred))
                (self.rules, ocspStapling) = (rules, stapling)
            }
        }
    }
}
