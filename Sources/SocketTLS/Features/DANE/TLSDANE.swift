internal import COpenSSL

/// Authentication of a server by TLSA records (DANE; RFC 6698, 7671, 7672 and 7673).
///
/// ```swift
/// settings.proof = .dane(TLSDANE(records, policy: .required))
/// ```
///
/// If at least one record is usable, the server must match a usable record, and the policy has no effect.
/// If the server does not match, the connection fails with `tlsaMismatch`, or with the error about a chain
/// that matches but is not valid. A server that matches a `daneEE` record is authenticated, whatever the
/// names, dates and issuer of its certificate are. For other usages, the chain must be valid, and the
/// certificate must be for `TLSSettings.serverName` or one of `additionalNames`.
///
/// **Records require a secure source**: pass only records that DNSSEC has validated, on this machine
/// or by a resolver with a trusted path to it (RFC 7672, section 2.1.1). Set `serverName` to the TLSA base
/// domain, which must be a host name.
///
/// - `TLSSession.dane` is the record that matched.
/// - Pins and limits apply in addition, and a trust callback (`.delegate`) can only reject more servers.
///   `trustEvaluation` set to `.manual`, and `verifiesHostName` set to `false`, are errors.
/// - With a `daneEE` record, the issuer of the certificate is unknown and cannot revoke it. A server that
///   matches such a record is rejected if the settings have `revocationLists` or require OCSP stapling.
///   Otherwise its OCSP response is not checked.
/// - As without records, the key usage of the server's certificate must allow signing.
/// - Sessions are resumed only with the same records.
public struct TLSDANE: Sendable, Hashable {
    var source: Source
    /// How the connection continues if no record is usable.
    public var policy: Policy
    /// Names that the certificate may have instead of `TLSSettings.serverName`, such as the domain of the
    /// mail address (RFC 7672, section 3.2.2) or of the service (RFC 7673, section 4).
    ///
    /// Pass only names that the user entered or that DNSSEC has validated. `daneEE` records need no name.
    public var additionalNames: [String]
    /// Whether `pkixTA` and `pkixEE` records are usable. The initializers set this to `false` if the policy
    /// is `.opportunistic`, and otherwise to `true`. An SMTP client must not use them, because mail servers
    /// have no common list of roots (RFC 7672, section 3.1.3).
    public var usesPKIXRecords: Bool
    /// Whether the server may send its public key without a certificate (RFC 7250) if a `daneEE` record
    /// contains the key. Defaults to `false`.
    ///
    /// OpenSSL supports this since version 3.2. With an older version, the server sends its certificate. A
    /// client that accepts raw public keys resumes no sessions.
    public var acceptsRawPublicKeys: Bool

    /// Creates a rule with records that are known.
    ///
    /// - Parameters:
    ///   - records: All TLSA records of the server's host and port. The list may be empty.
    ///   - policy: How the connection continues if no record is usable.
    ///   - additionalNames: See the property.
    public init(_ records: [TLSARecord], policy: Policy, additionalNames: [String] = []) {
        self.init(source: .records(records), policy: policy, additionalNames: additionalNames)
    }

    init(
        source: Source, policy: Policy, additionalNames: [String], usesPKIXRecords: Bool? = nil,
        acceptsRawPublicKeys: Bool = false
    ) {
        self.source = source
        self.policy = policy
        self.additionalNames = additionalNames
        self.usesPKIXRecords = usesPKIXRecords ?? (policy != .opportunistic)
        self.acceptsRawPublicKeys = acceptsRawPublicKeys
    }

    /// How a connection continues if the server has no records, or if all records have unknown
    /// numbers or malformed data. Usable records must match with every policy.
    public enum Policy: Int, Sendable, Hashable {
        /// The connection fails with `noUsableTLSARecord`, before a byte of TLS is sent ("mandatory DANE").
        case required = 1
        /// The server's certificate must be valid as without DANE: it leads to `TLSSettings.trustRoots`, and
        /// is for `TLSSettings.serverName`.
        case certificates = 2
        /// The connection is encrypted, and the server is **not authenticated** ("opportunistic security",
        /// RFC 7435; RFC 7672, section 2.2). An attacker on the network can read and change everything.
        /// `TLSSession.dane` is then `.unauthenticated`.
        ///
        /// Only for protocols in which the alternative is plaintext, such as mail between servers.
        case opportunistic = 3
    }

    enum Source: Sendable, Hashable {
        case records([TLSARecord])
        case lookUp(LookUp)
        /// Removed, because a context is shared by connections with different records.
        case removed
    }

    /// The records, or `nil` if they are looked up when the connection starts TLS.
    public var records: [TLSARecord]? {
        if case .records(let records) = source { records } else { nil }
    }

    /// The part that connections with other records have in common.
    var withoutRecords: TLSDANE {
        var rest = self
        (rest.source, rest.additionalNames) = (.removed, [])
        return rest
    }

    /// The maximum number of records, because each is compared with each certificate.
    static let recordLimit = 100
    /// The maximum number of bytes in all records. A DNS message is not longer.
    static let sizeLimit = 65_535
    /// The maximum number of records with a whole certificate or key, because each is decoded.
    static let fullRecordLimit = 10
}

extension TLSDANE {
    /// Prepares a context, which connections with different records share.
    static func prepare(_ context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess("SSL_CTX_dane_enable") { SSL_CTX_dane_enable(context) }
    }
}

extension TLSDANE: Digestible {
    func append(to fields: inout DigestFields) {
        _ = TLSDANE(
            source: fields.add(source), policy: fields.add(policy), additionalNames: fields.add(additionalNames),
            usesPKIXRecords: fields.add(usesPKIXRecords), acceptsRawPublicKeys: fields.add(acceptsRawPublicKeys))
    }
}

extension TLSDANE.Policy: Digestible {
    func append(to fields: inout DigestFields) { fields.append(rawValue) }
}

extension TLSDANE.Source: Digestible {
    /// The order of the records has no meaning, and a resolver may change it.
    func append(to fields: inout DigestFields) {
        switch self {
        case .records(let records):
            fields.append(1)
            records.sorted { $0.precedes($1) }.append(to: &fields)
        // No session is offered before the look-up.
        case .lookUp, .removed: fields.append(2)
        }
    }
}

/// How TLSA records contributed to the authentication of a server: see `TLSDANE`.
public enum TLSDANEResult: Sendable, Hashable {
    /// The settings use no TLSA records.
    case notUsed
    /// The server matched this record.
    case matched(TLSARecord)
    /// The session was resumed. The server matched one of the same records, or the policy applied, in the
    /// original handshake.
    case resumed
    /// No record was usable, and the server's certificate is valid without DANE
    /// (`TLSDANE.Policy.certificates`).
    case certificates
    /// No record was usable, and the server was **not authenticated** (`TLSDANE.Policy.opportunistic`).
    case unauthenticated

    /// Whether a record authenticated the server's own certificate.
    var needsNoIssuer: Bool {
        if case .matched(let record) = self { record.usage == .daneEE } else { false }
    }
}

extension TLSError.Code {
    /// The server has no usable TLSA record, and the policy is `TLSDANE.Policy.required`.
    public static let noUsableTLSARecord = TLSError.Code("noUsableTLSARecord", fault: .peer)
}
