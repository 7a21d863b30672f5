// Name constraints (RFC 5280, section 4.2.1.10) that OpenSSL handles incorrectly:
//  1. A wildcard may reach into an excluded subtree: "*.example.org" also matches "secret.example.org".
//     OpenSSL compares the wildcard as if it were a literal name (CVE-2025-61727 is the same bug in another
//     library). This library rejects such a wildcard.
//  2. OpenSSL checks a constraint only if the certificate has a name of the same type. This library first
//     rejects any constraint that is empty or cannot be understood.

internal import COpenSSL

extension VerifiedChain {
    /// The fault of the first CA certificate with malformed constraints, or with constraints that exclude one
    /// of the peer's wildcards.
    var constraintFault: PeerTrust.Verdict? {
        for (depth, authority) in certificates.enumerated().dropFirst() {
            switch NameConstraints(of: authority) {
            case .absent: continue
            case .malformed:
                return .untrusted(
                    reason: "the certificate of \"\(name(authority))\" has malformed name constraints",
                    code: X509_V_ERR_UNSUPPORTED_CONSTRAINT_SYNTAX, depth: depth)
            case .excluded(let domains):
                guard let wildcard = wildcards.first(where: { wildcard in domains.contains { wildcard.reaches($0) } }) else {
                    continue
                }
                return .untrusted(
                    reason:
                        "the certificate of \"\(certificates.first.map(name) ?? "")\" is for \"*.\(wildcard.parent.printable)\", but its issuer \"\(name(authority))\" is not allowed to certify all of these names",
                    code: X509_V_ERR_EXCLUDED_VIOLATION, depth: 0)
            }
        }
        return nil
    }

    private var wildcards: [Wildcard] {
        certificates.first.map { TLSCertificate(sharing: $0).dnsNames.compactMap(Wildcard.init) } ?? []
    }

    private struct Wildcard {
        let parent: String

        init?(_ name: String) {
            guard name.hasPrefix("*.") else { return nil }
            parent = name.dropFirst(2).lowercased()
        }

        /// Whether the wildcard matches `domain`, which must be exactly one label longer than the parent.
        /// OpenSSL itself rejects wildcards that are entirely inside the subtree.
        func reaches(_ domain: String) -> Bool {
            guard domain.hasSuffix("." + parent) else { return false }
            let label = domain.dropLast(parent.utf8.count + 1)
            return !label.isEmpty && !label.contains(".")
        }
    }
}

private enum NameConstraints {
    case absent
    case malformed
    /// The excluded domains in lowercase, without a leading dot.
    case excluded([String])

    init(of certificate: OpaquePointer) {
        guard X509_get_ext_by_NID(certificate, NID_name_constraints, -1) >= 0 else {
            self = .absent
            return
        }
        let decoded = OpenSSLCall.attempt { X509_get_ext_d2i(certificate, NID_name_constraints, nil, nil) }.value
        guard let constraints = decoded?.assumingMemoryBound(to: NAME_CONSTRAINTS.self) else {
            self = .malformed
            return
        }
        defer { NAME_CONSTRAINTS_free(constraints) }
        let permitted = Self.subtrees(constraints.pointee.permittedSubtrees)
        let excluded = Self.subtrees(constraints.pointee.excludedSubtrees)
        let all = permitted + excluded
        guard !all.isEmpty, all.allSatisfy(\.isWellFormed) else {
            self = .malformed
            return
        }
        self = .excluded(excluded.compactMap(\.domain))
    }

    private static func subtrees(_ stack: OpaquePointer?) -> [Subtree] {
        (0..<COpenSSL_sk_GENERAL_SUBTREE_num(stack)).compactMap { index in
            COpenSSL_sk_GENERAL_SUBTREE_value(stack, index).map { Subtree($0.pointee) }
        }
    }

    private struct Subtree {
        private let type: Int32
        private let bytes: [UInt8]
        /// Whether the subtree has a minimum or a maximum, which RFC 5280, section 4.2.1.10, forbids.
        private let hasDistances: Bool

        init(_ subtree: GENERAL_SUBTREE) {
            let name = COpenSSL_contentsOfGeneralName(subtree.base)
            type = name.type
            bytes = Array(UnsafeBufferPointer(start: name.bytes, count: name.count))
            hasDistances = (subtree.minimum.map { ASN1_INTEGER_get($0) != 0 } ?? false) || subtree.maximum != nil
        }

        var isWellFormed: Bool {
            guard !hasDistances else { return false }
            return switch type {
            case GEN_DNS: isDomain
            case GEN_EMAIL, GEN_URI: bytes.allSatisfy { (0x21..<0x7F).contains($0) }
            case GEN_IPADD: isNetwork
            default: true
            }
        }

        var domain: String? {
            guard type == GEN_DNS else { return nil }
            let name = String(decoding: bytes, as: UTF8.self).lowercased()
            return name.hasPrefix(".") ? String(name.dropFirst()) : name
        }

        /// Whether the bytes are empty, which matches every name, or labels of letters, digits, hyphens and
        /// underscores. A leading dot is not standard, but is used in practice.
        private var isDomain: Bool {
            if bytes.isEmpty { return true }
            // Lowercasing turns some non-ASCII letters into different letters.
            guard bytes.allSatisfy({ $0 < 0x80 }) else { return false }
            let labels = (domain ?? "").split(separator: ".", omittingEmptySubsequences: false)
            return labels.allSatisfy { label in
                (1...63).contains(label.utf8.count) && label.utf8.allSatisfy(Self.isLabelCharacter)
            }
        }

        private static func isLabelCharacter(_ byte: UInt8) -> Bool {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"),
                UInt8(ascii: "_"):
                true
            default: false
            }
        }

        /// Whether the bytes are an address and a contiguous mask (RFC 4632).
        private var isNetwork: Bool {
            guard bytes.count == 8 || bytes.count == 32 else { return false }
            let mask = bytes.dropFirst(bytes.count / 2)
            let bits = mask.flatMap { byte in (0..<8).map { byte >> (7 - $0) & 1 } }
            return !bits.drop { $0 == 1 }.contains(1)
        }
    }
}
