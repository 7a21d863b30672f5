import COpenSSL
import Glibc

@testable import SocketTLS

extension FuzzTarget {
    /// OCSP responses for a fixed certificate.
    static let ocspResponses = FuzzTarget(name: "ocsp-responses", maximumLength: 4096) { input in
        let bytes = Array(input.rest)
        let status = StapledStatus(
            of: FixedIdentity.certificate, issuer: FixedIdentity.root, isRequired: true, at: 1_800_000_000)
        let fault = bytes.withUnsafeBufferPointer { status.fault(in: $0) }
        let end = status.end(of: bytes)
        if fault == nil {
            try require(end > 1_800_000_000 - 300, "an expired response is accepted")
            try require(OpenSSLVerification.accepts(response: bytes), "OpenSSL does not accept the response")
        }
        _ = try? FixedIdentity.identity.stapling(ocspResponse: bytes, issuer: FixedIdentity.root)
    }

    /// Names in certificates and name constraints, compared with OpenSSL's own verification. The library may
    /// reject more than OpenSSL, but never accepts more.
    static let chains = FuzzTarget(name: "chains", maximumLength: 1024) { input in
        var input = input
        let flags = input.byte()
        let serverName = input.text()
        let issuer = try IssuedByInput(constraints: flags & 1 == 0 ? nil : input.part(), isDER: flags & 2 != 0)
        var names: [[UInt8]] = []
        while !input.isEmpty, names.count < 8 { names.append(input.part()) }
        guard let leaf = try issuer.leaf(names, isDER: flags & 4 != 0), let authority = issuer.certificate else { return }
        let evaluation = ChainEvaluation(
            [leaf, authority], of: .server, serverName: serverName, anchors: [authority], trustsSystemRoots: false)
        guard let verdict = try? evaluation.verdict(), case .trusted = verdict else { return }
        try require(
            OpenSSLVerification.accepts(leaf, authority, serverName), "OpenSSL rejects this chain for \"\(serverName)\"")
        try require(
            leaf.dnsNames.contains { OpenSSLVerification.matches($0, serverName) } || ServerName.isAddress(serverName),
            "no name of \(leaf.dnsNames) matches \"\(serverName)\"")
    }
}

extension ServerName {
    fileprivate static func isAddress(_ text: String) -> Bool {
        if case .address = try? ServerName(text) { true } else { false }
    }
}

/// What OpenSSL decides without this library's rules.
private enum OpenSSLVerification {
    static func accepts(_ leaf: TLSCertificate, _ authority: TLSCertificate, _ name: String) -> Bool {
        guard let store = X509_STORE_new(), let context = X509_STORE_CTX_new() else { return true }
        defer {
            X509_STORE_CTX_free(context)
            X509_STORE_free(store)
            ERR_clear_error()
        }
        X509_STORE_add_cert(store, authority.handle.x509)
        X509_STORE_CTX_init(context, store, leaf.handle.x509, nil)
        X509_STORE_CTX_set_flags(context, UInt(X509_V_FLAG_PARTIAL_CHAIN))
        guard X509_verify_cert(context) == 1 else { return false }
        switch try? ServerName(name) {
        case .hostName(let host):
            let flags = UInt32(X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)
            return X509_check_host(leaf.handle.x509, host, host.utf8.count, flags, nil) == 1
        case .address(_, let bytes): return X509_check_ip(leaf.handle.x509, bytes, bytes.count, 0) == 1
        case nil: return false
        }
    }

    /// Whether the root of the fixed identity signed the response, and the response states that a certificate
    /// is good. The certificates in the response are not used.
    static func accepts(response bytes: [UInt8]) -> Bool {
        defer { ERR_clear_error() }
        return bytes.withUnsafeBufferPointer { buffer in
            var cursor = buffer.baseAddress
            guard let response = d2i_OCSP_RESPONSE(nil, &cursor, buffer.count) else { return false }
            defer { OCSP_RESPONSE_free(response) }
            guard let basic = OCSP_response_get1_basic(response) else { return false }
            defer { OCSP_BASICRESP_free(basic) }
            let certificates = OPENSSL_sk_new_null()
            defer { OPENSSL_sk_free(certificates) }
            OPENSSL_sk_push(certificates, UnsafeRawPointer(FixedIdentity.root.handle.x509))
            let flags = UInt(OCSP_NOINTERN | OCSP_NOVERIFY)
            guard OCSP_basic_verify(basic, certificates, nil, flags) == 1 else { return false }
            return (0..<max(0, OCSP_resp_count(basic))).contains { index in
                OCSP_single_get0_status(OCSP_resp_get0(basic, index), nil, nil, nil, nil) == V_OCSP_CERTSTATUS_GOOD
            }
        }
    }

    /// RFC 6125, section 6.4.3, with a wildcard as the whole first label.
    static func matches(_ pattern: String, _ name: String) -> Bool {
        let (pattern, name) = (pattern.lowercased(), (name.hasSuffix(".") ? String(name.dropLast()) : name).lowercased())
        if pattern == name { return true }
        guard pattern.hasPrefix("*."), let dot = name.firstIndex(of: ".") else { return false }
        return name[dot...] == pattern.dropFirst()
    }
}

/// A CA certificate and leaf certificates with names from the input.
private final class IssuedByInput {
    private let authority: OpaquePointer
    let certificate: TLSCertificate?

    private nonisolated(unsafe) static let key: OpaquePointer = {
        guard let key = COpenSSL_EVP_EC_generate("P-256") else { fatalError("EVP_EC_gen") }
        return key
    }()

    init(constraints: [UInt8]?, isDER: Bool) throws {
        var extensions: [(Int32, String)] = [
            (NID_basic_constraints, "critical,CA:TRUE"), (NID_key_usage, "critical,keyCertSign"),
        ]
        if let constraints, !isDER { extensions.append((NID_name_constraints, Self.printable(constraints))) }
        authority = try Self.make("authority", extensions, raw: isDER ? constraints.map { (NID_name_constraints, $0) } : nil, nil)
        certificate = try? TLSCertificate(der: Self.der(authority))
    }

    deinit { X509_free(authority) }

    /// Text names are DNS names. In DER, the first name is the whole extension.
    func leaf(_ names: [[UInt8]], isDER: Bool) throws(FuzzFailure) -> TLSCertificate? {
        var extensions: [(Int32, String)] = [
            (NID_basic_constraints, "critical,CA:FALSE"), (NID_key_usage, "critical,digitalSignature"),
            (NID_ext_key_usage, "serverAuth"),
        ]
        let list = names.map { "DNS:" + Self.printable($0).filter { $0 != "," } }.joined(separator: ",")
        if !isDER, !list.isEmpty { extensions.append((NID_subject_alt_name, list)) }
        let raw = isDER ? names.first.map { (NID_subject_alt_name, $0) } : nil
        let leaf = try Self.make("leaf", extensions, raw: raw, authority)
        defer { X509_free(leaf) }
        return try? TLSCertificate(der: Self.der(leaf))
    }

    private static func printable(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.map { (0x20..<0x7F).contains($0) ? $0 : UInt8(ascii: ".") }, as: UTF8.self)
    }

    private static func der(_ certificate: OpaquePointer) -> [UInt8] {
        var start: UnsafeMutablePointer<UInt8>?
        let count = i2d_X509(certificate, &start)
        defer { COpenSSL_free(start) }
        return Array(UnsafeBufferPointer(start: start, count: Int(max(0, count))))
    }

    private static func make(
        _ name: String, _ extensions: [(Int32, String)], raw: (Int32, [UInt8])?, _ issuer: OpaquePointer?
    ) throws(FuzzFailure) -> OpaquePointer {
        guard let certificate = X509_new() else { throw FuzzFailure(description: "OpenSSL is out of memory") }
        X509_set_version(certificate, Int(X509_VERSION_3))
        ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1)
        X509_gmtime_adj(X509_getm_notBefore(certificate), -86_400)
        X509_gmtime_adj(X509_getm_notAfter(certificate), 86_400)
        X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, name, -1, -1, 0)
        X509_set_issuer_name(certificate, X509_get_subject_name(issuer ?? certificate))
        X509_set_pubkey(certificate, key)
        for (nid, value) in extensions {
            guard let part = X509V3_EXT_conf_nid(nil, nil, nid, value) else { continue }
            X509_add_ext(certificate, part, -1)
            X509_EXTENSION_free(part)
        }
        if let (nid, value) = raw {
            let contents = ASN1_OCTET_STRING_new()
            ASN1_OCTET_STRING_set(contents, value, Int32(value.count))
            let part = X509_EXTENSION_create_by_NID(nil, nid, 0, contents)
            X509_add_ext(certificate, part, -1)
            X509_EXTENSION_free(part)
            ASN1_OCTET_STRING_free(contents)
        }
        X509_sign(certificate, key, EVP_sha256())
        ERR_clear_error()
        return certificate
    }
}
