import AsyncSocketsTesting
import COpenSSL
import SocketTLS

/// A certificate and key with arbitrary extensions, valid or not.
final class HandmadeCertificate {
    let x509: OpaquePointer
    let key: OpaquePointer
    private let issuer: HandmadeCertificate?

    /// Extensions in the syntax of x509v3_config(5).
    typealias Extensions = [(Int32, String)]

    static let authority: Extensions = [
        (NID_basic_constraints, "critical,CA:TRUE"), (NID_key_usage, "critical,keyCertSign,cRLSign,digitalSignature"),
        (NID_subject_key_identifier, "hash"), (NID_authority_key_identifier, "keyid:always"),
    ]

    static func server(_ names: [String] = [Fixture.host], isAuthority: Bool = false) -> Extensions {
        [
            (NID_basic_constraints, isAuthority ? "critical,CA:TRUE" : "critical,CA:FALSE"),
            (NID_key_usage, "critical,digitalSignature" + (isAuthority ? ",keyCertSign" : "")), (NID_ext_key_usage, "serverAuth"),
            (NID_subject_key_identifier, "hash"), (NID_authority_key_identifier, "keyid:always"),
            (NID_subject_alt_name, names.map { "DNS:\($0)" }.joined(separator: ",")),
        ]
    }

    /// - Parameters:
    ///   - days: From when until when it is valid, counted from today.
    ///   - seconds: Until when, counted from now; nil for the end of `days`.
    ///   - curve: That of its key; nil: an RSA key.
    init(
        _ name: String, _ extensions: Extensions, raw: [(String, [UInt8])] = [], days: Range<Int> = -1..<30,
        endingIn seconds: Int? = nil, signedBy issuer: HandmadeCertificate? = nil, curve: String? = "P-256"
    ) throws {
        guard let certificate = X509_new(),
            let key = curve.map({ COpenSSL_EVP_EC_generate($0) }) ?? COpenSSL_EVP_RSA_generate(2048)
        else { throw TestFailure(what: name) }
        (x509, self.key, self.issuer) = (certificate, key, issuer)
        X509_set_version(certificate, Int(X509_VERSION_3))
        ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), .random(in: 1...(.max)))
        X509_gmtime_adj(X509_getm_notBefore(certificate), days.lowerBound * 86_400)
        X509_gmtime_adj(X509_getm_notAfter(certificate), seconds ?? days.upperBound * 86_400)
        X509_NAME_add_entry_by_NID(
            X509_get_subject_name(certificate), NID_commonName, MBSTRING_UTF8, Array(name.utf8), Int32(name.utf8.count), -1, 0)
        X509_set_issuer_name(certificate, X509_get_subject_name(issuer?.x509 ?? certificate))
        X509_set_pubkey(certificate, key)
        var context = X509V3_CTX()
        X509V3_set_ctx(&context, issuer?.x509 ?? certificate, certificate, nil, nil, 0)
        for (nid, value) in extensions {
            let part = X509V3_EXT_conf_nid(nil, &context, nid, value)
            defer { X509_EXTENSION_free(part) }
            guard X509_add_ext(certificate, part, -1) == 1 else { throw TestFailure(what: "\(value): \(OpenSSLCallQueue.texts)") }
        }
        for (identifier, value) in raw { try Self.add(identifier, value, to: certificate) }
        guard X509_sign(certificate, issuer?.key ?? key, EVP_sha256()) > 0 else { throw TestFailure(what: "X509_sign") }
    }

    deinit {
        X509_free(x509)
        EVP_PKEY_free(key)
    }

    static func add(_ identifier: String, _ value: [UInt8], isCritical: Bool = false, to certificate: OpaquePointer) throws {
        let object = OBJ_txt2obj(identifier, 1)
        let contents = ASN1_OCTET_STRING_new()
        defer {
            ASN1_OBJECT_free(object)
            ASN1_OCTET_STRING_free(contents)
        }
        ASN1_OCTET_STRING_set(contents, value, Int32(value.count))
        let part = X509_EXTENSION_create_by_OBJ(nil, object, isCritical ? 1 : 0, contents)
        defer { X509_EXTENSION_free(part) }
        guard X509_add_ext(certificate, part, -1) == 1 else { throw TestFailure(what: identifier) }
    }

    var certificate: TLSCertificate {
        get throws { try TLSCertificate(der: MemoryBytes.written { i2d_X509_bio($0, x509) }) }
    }

    /// With the chain up to, but not including, the root.
    var identity: TLSIdentity {
        get throws {
            var chain = [try certificate]
            var next = issuer
            while let authority = next, authority.issuer != nil {
                chain.append(try authority.certificate)
                next = authority.issuer
            }
            return try TLSIdentity(
                certificateChain: chain, privateKey: TLSPrivateKey(der: MemoryBytes.written { i2d_PrivateKey_bio($0, key) }))
        }
    }

    /// Returns a root, an intermediate and a server certificate.
    static func chain(
        root: Extensions = authority, intermediate: Extensions = authority, leaf: Extensions = server(),
        raw: [(String, [UInt8])] = []
    ) throws -> (root: HandmadeCertificate, intermediate: HandmadeCertificate, leaf: HandmadeCertificate) {
        let top = try HandmadeCertificate("Root", root)
        let middle = try HandmadeCertificate("Intermediate", intermediate, raw: raw, signedBy: top)
        return (top, middle, try HandmadeCertificate("Server", leaf, signedBy: middle))
    }
}

extension Fixture {
    /// The client trusts `roots`, and the server sends `leaf` with its chain.
    init(_ version: TLSProtocolVersion = .tls13, leaf: HandmadeCertificate, roots: [HandmadeCertificate]) throws {
        try self.init(version)
        client.trustRoots = try .certificates(roots.map { try $0.certificate })
        server.identity = try leaf.identity
    }

    /// Returns the client's error after a handshake, or nil if it completes.
    func clientError() throws -> TLSError? {
        let pair = try pair()
        pair.shakeHands()
        if pair.clientError == nil, !pair.isComplete {
            throw TestFailure(what: "incomplete: \(pair.serverError?.description ?? "")")
        }
        return pair.clientError
    }
}

extension HandmadeCertificate {
    /// Returns this CA's certificate revocation list in DER.
    ///
    /// - Parameters:
    ///   - days: From when until when it is valid, counted from today.
    ///   - seconds: Until when, counted from now; nil for what `days` says.
    ///   - isDelta: Whether it says that it has only what has changed since another one.
    func revocationList(
        of revoked: [HandmadeCertificate] = [], days: Range<Int> = -1..<7, endingIn seconds: Int? = nil,
        isDelta: Bool = false
    ) throws -> [UInt8] {
        guard let list = X509_CRL_new() else { throw TestFailure(what: "X509_CRL_new") }
        defer { X509_CRL_free(list) }
        let begin = X509_gmtime_adj(nil, days.lowerBound * 86_400)
        let end = X509_gmtime_adj(nil, seconds ?? days.upperBound * 86_400)
        defer {
            ASN1_STRING_free(begin)
            ASN1_STRING_free(end)
        }
        X509_CRL_set_version(list, 1)
        X509_CRL_set_issuer_name(list, X509_get_subject_name(x509))
        X509_CRL_set1_lastUpdate(list, begin)
        X509_CRL_set1_nextUpdate(list, end)
        if isDelta {
            let base = ASN1_INTEGER_new()
            defer { ASN1_STRING_free(base) }
            ASN1_INTEGER_set(base, 1)
            X509_CRL_add1_ext_i2d(list, NID_delta_crl, UnsafeMutableRawPointer(base), 1, 0)
        }
        for certificate in revoked {
            let entry = X509_REVOKED_new()
            X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(certificate.x509))
            X509_REVOKED_set_revocationDate(entry, begin)
            X509_CRL_add0_revoked(list, entry)
        }
        guard X509_CRL_sign(list, key, EVP_sha256()) > 0 else { throw TestFailure(what: "X509_CRL_sign") }
        return try MemoryBytes.written { i2d_X509_CRL_bio($0, list) }
    }

    /// Returns the revocation list in PEM.
    func revocationListPEM(of revoked: [HandmadeCertificate] = []) throws -> String {
        let der = try revocationList(of: revoked)
        let list = der.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            return d2i_X509_CRL(nil, &cursor, bytes.count)
        }
        defer { X509_CRL_free(list) }
        return MemoryBIO.text { PEM_write_bio_X509_CRL($0, list) } ?? ""
    }
}
