// Rules of DANE:
//  1. OpenSSL compares the records with the chain, and applies digest agility (RFC 7671, section 9). This
//     file passes the records, sets the names, and explains the result.
//  2. Records belong to one connection, and a context is shared: nothing here changes a context.
//  3. With at least one usable record, a chain must match one. OpenSSL then ignores the trusted roots, except
//     for the PKIX usages. Without a usable record, OpenSSL verifies as usual, and the policy decides.
//  4. A record that this library considers unusable is not passed to OpenSSL, and a record that OpenSSL
//     rejects is treated as unusable. A record with a key that exceeds a limit is not passed either, but is
//     usable: if no other record is, the connection fails under every policy.
//  5. The scope of sessions contains the records (`ExpectedPeer`), because OpenSSL verifies nothing when it
//     resumes a session.

internal import COpenSSL

/// The TLSA records of one connection.
final class DANEVerification {
    let policy: TLSDANE.Policy
    /// The records that the server must match, if there are any.
    private(set) var usable: [TLSARecord] = []
    /// The other records, and why they cannot match.
    private var remarksOnOthers: [String] = []
    private let additionalNames: [String]

    /// Passes the records to OpenSSL.
    init(_ dane: TLSDANE, on ssl: OpaquePointer, serverName: String) throws(TLSError) {
        policy = dane.policy
        additionalNames = dane.additionalNames
        guard let records = dane.records else {
            throw TLSError(.invalidSettings, "the TLSA records have not been looked up", operation: "TLSDANE")
        }
        try OpenSSLCall.requireSuccess("SSL_dane_enable") { SSL_dane_enable(ssl, serverName) }
        // RFC 7671, 5.1: the record connects the key with the name.
        SSL_dane_set_flags(ssl, COpenSSL_withoutNameChecks())
        for record in Set(records).sorted(by: { $0.precedes($1) }) {
            switch dane.use(of: record) {
            case .comparable:
                if try Self.add(record, to: ssl) {
                    usable.append(record)
                } else {
                    remarksOnOthers.append("\(record.shortText) (unusable: OpenSSL cannot use it)")
                }
            case .matchesNothing(let reason): remarksOnOthers.append("\(record.shortText) (cannot match: \(reason))")
            case .unusable(let reason): remarksOnOthers.append("\(record.shortText) (unusable: \(reason))")
            }
        }
        if usable.isEmpty { try dane.requirePolicy(without: records, serverName) }
        guard !usable.isEmpty else { return }
        for name in dane.additionalNames {
            let name = try ServerName(name).text
            try OpenSSLCall.requireSuccess("X509_VERIFY_PARAM_add1_host") {
                COpenSSL_addHost(SSL_get0_param(ssl), name, name.utf8.count)
            }
        }
        if dane.acceptsRawPublicKeys, usable.contains(where: { $0.usage == .daneEE && $0.selector == .publicKey }) {
            try TLSProof.acceptRawPublicKeys(on: ssl)
        }
    }

    /// Returns false if OpenSSL considers the record unusable.
    private static func add(_ record: TLSARecord, to ssl: OpaquePointer) throws(TLSError) -> Bool {
        var result: Int32 = -1
        let (_, entries) = OpenSSLCall.attempt { () -> Bool? in
            result = SSL_dane_tlsa_add(
                ssl, record.usage.rawValue, record.selector.rawValue, record.matchingType.rawValue, record.data,
                record.data.count)
            return result > 0 ? true : nil
        }
        guard result >= 0 else {
            throw TLSError(
                .internalError, "OpenSSL cannot store a TLSA record", operation: "SSL_dane_tlsa_add",
                openSSLStack: entries.map(\.text))
        }
        return result > 0
    }

    /// Whether the policy accepts any server, because no record is usable.
    var acceptsAnyone: Bool { usable.isEmpty && policy == .opportunistic }

    // MARK: - Results

    /// Returns the record that matched in OpenSSL's verification, which must have succeeded.
    func match(on ssl: OpaquePointer) -> TLSARecord? {
        guard !usable.isEmpty else { return nil }
        var (usage, selector, matchingType): (UInt8, UInt8, UInt8) = (0, 0, 0)
        var data: UnsafePointer<UInt8>?
        var count = 0
        guard SSL_get0_dane_tlsa(ssl, &usage, &selector, &matchingType, &data, &count) >= 0, let data else { return nil }
        return TLSARecord(
            usage: TLSARecord.Usage(rawValue: usage), selector: TLSARecord.Selector(rawValue: selector),
            matchingType: TLSARecord.MatchingType(rawValue: matchingType),
            data: Array(UnsafeBufferPointer(start: data, count: count)))
    }

    func result(on ssl: OpaquePointer) -> TLSDANEResult {
        if usable.isEmpty { return policy == .opportunistic ? .unauthenticated : .certificates }
        if SSL_session_reused(ssl) == 1 { return .resumed }
        return match(on: ssl).map { .matched($0) } ?? .notUsed
    }

    // MARK: - Explanations

    /// Adds the records to the reason for which a chain is rejected.
    func explain(_ fault: PeerTrust.Verdict, _ chain: [TLSCertificate]) -> PeerTrust.Verdict {
        guard case .untrusted(let reason, let code, let depth) = fault, !usable.isEmpty else { return fault }
        if code == X509_V_ERR_DANE_NO_MATCH { return mismatch(chain) }
        let names = additionalNames.prefix(Self.shownNames).map { ", \"\($0.printable)\"" }.joined()
        let reasonAndNames = code == X509_V_ERR_HOSTNAME_MISMATCH ? reason + names : reason
        return .untrusted(
            reason: "\(reasonAndNames); TLSA records: \(remarks(about: chain, isMismatch: false))", code: code, depth: depth)
    }

    /// The fault of a chain that does not match the records. A raw public key has no chain.
    func mismatch(_ chain: [TLSCertificate]) -> PeerTrust.Verdict {
        let subject = chain.first.map { "the certificate of \"\($0.displayName)\"" } ?? "the server's raw public key"
        return .untrusted(
            reason: "no TLSA record matches \(subject); TLSA records: \(remarks(about: chain, isMismatch: true))",
            code: X509_V_ERR_DANE_NO_MATCH, depth: 0)
    }

    private static let shownRecords = 4
    private static let shownNames = 4

    /// Describes the first records, and whether each of them matches.
    private func remarks(about chain: [TLSCertificate], isMismatch: Bool) -> String {
        let compared = usable.map { record in
            record.shortText + (remark(about: record, chain, isMismatch: isMismatch).map { " (\($0))" } ?? "")
        }
        return [compared, remarksOnOthers].filter { !$0.isEmpty }.map(Self.first).joined(separator: ", ")
    }

    private static func first(_ remarks: [String]) -> String {
        let shown = remarks.prefix(shownRecords).joined(separator: ", ")
        return remarks.count > shownRecords ? "\(shown) and \(remarks.count - shownRecords) more" : shown
    }

    private func remark(about record: TLSARecord, _ chain: [TLSCertificate], isMismatch: Bool) -> String? {
        if isSuperseded(record) { return "ignored, because there is a record with a stronger digest" }
        switch record.usage {
        case .pkixEE, .daneEE: return chain.first.map(record.matches) == true ? "matches" : "does not match the server's own"
        default:
            if chain.dropFirst().contains(where: record.matches) { return "matches" }
            // A record may match an authority that the server did not send: a root, or the contents of the
            // record.
            return isMismatch ? "matches no authority that the server sent" : nil
        }
    }

    /// Digest agility: of the digests of one usage and selector, only the strongest counts.
    private func isSuperseded(_ record: TLSARecord) -> Bool {
        record.matchingType == .sha256
            && usable.contains {
                $0.usage == record.usage && $0.selector == record.selector && $0.matchingType == .sha512
            }
    }
}
