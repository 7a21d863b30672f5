import COpenSSL
import SocketTLS

/// A certificate authority that lives for one test run and makes what a test asks for.
struct TestAuthority {
    let name: String
    let pem: String
    private let key: TestKey
    private let parent: X509Box

    init(name: String = "Test Root") throws {
        self.name = name
        key = try TestKey()
        parent = try X509Box.make(CertificateRequest(commonName: name, isAuthority: true), key: key, issuer: nil, issuerKey: key)
        pem = parent.pem
    }

    private init(name: String, key: TestKey, certificate: X509Box) {
        self.name = name
        self.key = key
        parent = certificate
        pem = certificate.pem
    }

    var certificate: Certificate {
        get throws { try Certificate(pem: pem) }
    }

    func intermediate(name: String) throws -> TestAuthority {
        let key = try TestKey()
        let box = try X509Box.make(
            CertificateRequest(commonName: name, isAuthority: true), key: key, issuer: parent, issuerKey: self.key)
        return TestAuthority(name: name, key: key, certificate: box)
    }

    func issue(_ request: CertificateRequest, includingIssuer: Bool = false) throws -> Issued {
        let leafKey = try TestKey()
        let leaf = try X509Box.make(request, key: leafKey, issuer: parent, issuerKey: key)
        return Issued(certificatePEM: leaf.pem + (includingIssuer ? pem : ""), key: leafKey)
    }

    static func selfSigned(_ request: CertificateRequest) throws -> Issued {
        let key = try TestKey()
        return try Issued(certificatePEM: X509Box.make(request, key: key, issuer: nil, issuerKey: key).pem, key: key)
    }

    func identity(_ request: CertificateRequest, includingIssuer: Bool = false) throws -> TLSIdentity {
        let issued = try issue(request, includingIssuer: includingIssuer)
        return try TLSIdentity(pem: issued.certificatePEM + issued.key.pem())
    }
}

struct Issued {
    let certificatePEM: String
    let key: TestKey
}

struct CertificateRequest {
    var commonName: String
    /// In OpenSSL's notation: "DNS:mail.example.org,IP:127.0.0.1".
    var alternativeNames: String?
    var validFrom = -3600
    var validTo = 86_400
    var isAuthority = false

    static func host(_ name: String, from: Int = -3600, to: Int = 86_400) -> CertificateRequest {
        CertificateRequest(commonName: name, alternativeNames: "DNS:\(name)", validFrom: from, validTo: to)
    }

    static func person(_ name: String) -> CertificateRequest {
        CertificateRequest(commonName: name)
    }
}

struct TestFailure: Error {
    let what: String
}

/// An EC P-256 key.
final class TestKey {
    let key: OpaquePointer

    init() throws {
        let context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil)
        defer { EVP_PKEY_CTX_free(context) }
        var made: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1, EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1,
            EVP_PKEY_keygen(context, &made) == 1, let made
        else { throw TestFailure(what: "key") }
        key = made
    }

    deinit { EVP_PKEY_free(key) }

    func pem(passphrase: String? = nil) -> String {
        pemText { bio in
            guard let passphrase else { return PEM_write_bio_PrivateKey(bio, key, nil, nil, 0, nil, nil) }
            return Array(passphrase.utf8).withUnsafeBufferPointer { bytes in
                PEM_write_bio_PrivateKey(bio, key, EVP_aes_256_cbc(), bytes.baseAddress, Int32(bytes.count), nil, nil)
            }
        }
    }
}

final class X509Box {
    let x509: OpaquePointer

    private init(_ x509: OpaquePointer) {
        self.x509 = x509
    }

    deinit { X509_free(x509) }

    var pem: String { pemText { PEM_write_bio_X509($0, x509) } }

    static func make(_ request: CertificateRequest, key: TestKey, issuer: X509Box?, issuerKey: TestKey) throws -> X509Box {
        guard let x509 = X509_new() else { throw TestFailure(what: "X509_new") }
        let box = X509Box(x509)
        X509_set_version(x509, 2)
        ASN1_INTEGER_set(X509_get_serialNumber(x509), Int.random(in: 1...Int(Int32.max)))
        X509_gmtime_adj(X509_getm_notBefore(x509), request.validFrom)
        X509_gmtime_adj(X509_getm_notAfter(x509), request.validTo)
        X509_set_pubkey(x509, key.key)
        let subject = X509_get_subject_name(x509)
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, request.commonName, -1, -1, 0)
        X509_set_issuer_name(x509, X509_get_subject_name(issuer?.x509 ?? x509))
        try box.addExtensions(request, issuer: issuer)
        guard X509_sign(x509, issuerKey.key, EVP_sha256()) > 0 else { throw TestFailure(what: "X509_sign") }
        return box
    }

    private func addExtensions(_ request: CertificateRequest, issuer: X509Box?) throws {
        try add(NID_basic_constraints, request.isAuthority ? "critical,CA:TRUE" : "critical,CA:FALSE", issuer)
        try add(NID_subject_key_identifier, "hash", issuer)
        if issuer != nil { try add(NID_authority_key_identifier, "keyid", issuer) }
        if request.isAuthority { try add(NID_key_usage, "critical,keyCertSign,cRLSign", issuer) }
        if let names = request.alternativeNames { try add(NID_subject_alt_name, names, issuer) }
    }

    private func add(_ identifier: Int32, _ value: String, _ issuer: X509Box?) throws {
        var context = X509V3_CTX()
        X509V3_set_ctx(&context, issuer?.x509 ?? x509, x509, nil, nil, 0)
        guard let ext = X509V3_EXT_conf_nid(nil, &context, identifier, value) else { throw TestFailure(what: value) }
        X509_add_ext(x509, ext, -1)
        X509_EXTENSION_free(ext)
    }
}

func pemText(_ print: (OpaquePointer) -> Int32) -> String {
    guard let bio = BIO_new(BIO_s_mem()) else { return "" }
    defer { BIO_free(bio) }
    _ = print(bio)
    var start: UnsafeMutablePointer<CChar>?
    let length = COpenSSL_BIO_memoryData(bio, &start)
    guard let start, length > 0 else { return "" }
    return String(decoding: UnsafeRawBufferPointer(start: start, count: length), as: UTF8.self)
}
