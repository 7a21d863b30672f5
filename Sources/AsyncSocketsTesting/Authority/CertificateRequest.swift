internal import COpenSSL
internal import SocketTLS

/// A certificate signing request (CSR; PKCS #10, RFC 2986): a public key and the names for which its owner
/// requests a certificate, signed with the private key.
public struct CertificateRequest: Sendable, Hashable {
    /// The request as PEM text.
    public let pem: String
    /// The last common name of the subject, or `nil` if the subject has no common name.
    public let commonName: String?
    /// The requested DNS names and IP addresses. Other kinds of names are not included.
    public let names: [String]
    /// The requested email addresses.
    public let emails: [String]

    /// Decodes a request and verifies that its owner has the private key.
    ///
    /// - Throws: `CertificateAuthorityError` if the text is not a request, or if its signature is invalid.
    public init(pem: String) throws(CertificateAuthorityError) {
        try self.init(RequestHandle(pem: pem))
    }

    /// Generates a key and a request for a certificate with this key.
    ///
    /// - Returns: The request, and the private key as unencrypted PKCS #8 in PEM.
    /// - Throws: `CertificateAuthorityError` if a name is not allowed in a certificate.
    public static func generate(
        _ purpose: CertificateAuthority.Purpose, keyType: CertificateAuthority.KeyType = .p256
    ) throws(CertificateAuthorityError) -> (request: CertificateRequest, privateKeyPEM: String) {
        let key = try SigningKey(keyType)
        let template = try CertificateTemplate.leaf(for: purpose, validity: .current, keyType: keyType)
        return (try CertificateRequest(RequestHandle(template, key: key)), try key.pem)
    }

    /// Returns the purpose that has the requested names.
    public func purpose(isClient: Bool) -> CertificateAuthority.Purpose {
        isClient
            ? .client(commonName: commonName ?? emails.first ?? names.first ?? "Client", email: emails.first)
            : .server(names: names.isEmpty ? [commonName].compactMap(\.self) : names, commonName: commonName)
    }

    private init(_ handle: RequestHandle) throws(CertificateAuthorityError) {
        pem = try handle.pem
        commonName = handle.commonName
        let alternatives = handle.alternativeNames
        names = alternatives.compactMap(\.host)
        emails = alternatives.compactMap(\.email)
    }

    func publicKey() throws(CertificateAuthorityError) -> SigningKey {
        try RequestHandle(pem: pem).publicKey()
    }
}

/// Owns an `X509_REQ`.
private final class RequestHandle {
    private let pointer: OpaquePointer

    init(_ template: CertificateTemplate, key: SigningKey) throws(CertificateAuthorityError) {
        let request = try CertificateCall.require("X509_REQ_new") { X509_REQ_new() }
        pointer = request
        try CertificateCall.requireSuccess("X509_REQ_set_version") { X509_REQ_set_version(request, 0) }
        try CertificateCall.requireSuccess("X509_REQ_set_pubkey") { X509_REQ_set_pubkey(request, key.pointer) }
        try X509Certificate.setCommonName(template.commonName, of: X509_REQ_get_subject_name(request))
        if !template.alternativeNames.isEmpty { try AlternativeName.add(template.alternativeNames, toRequest: request) }
        try CertificateCall.requireSuccess("X509_REQ_sign") { X509_REQ_sign(request, key.pointer, EVP_sha256()) }
    }

    init(pem: String) throws(CertificateAuthorityError) {
        let request = try CertificateCall.require(
            "PEM_read_bio_X509_REQ", or: .unreadable, "the text is not a certificate signing request in PEM form"
        ) { MemoryBIO.reading(pem) { PEM_read_bio_X509_REQ($0, nil, nil, nil) } }
        pointer = request
        try CertificateCall.requireSuccess(
            "X509_REQ_verify", or: .unreadable,
            "the signature of the certificate signing request is invalid: its owner has not proved possession of the key"
        ) { X509_REQ_verify(request, X509_REQ_get0_pubkey(request)) }
    }

    deinit { X509_REQ_free(pointer) }

    var pem: String {
        get throws(CertificateAuthorityError) {
            try CertificateCall.require("PEM_write_bio_X509_REQ") { MemoryBIO.text { PEM_write_bio_X509_REQ($0, pointer) } }
        }
    }

    func publicKey() throws(CertificateAuthorityError) -> SigningKey {
        SigningKey(owning: try CertificateCall.require("X509_REQ_get_pubkey") { X509_REQ_get_pubkey(pointer) })
    }

    /// The last common name, which is the most specific.
    var commonName: String? {
        let subject = X509_REQ_get_subject_name(pointer)
        var (index, last): (Int32, String?) = (-1, nil)
        while true {
            index = X509_NAME_get_index_by_NID(subject, NID_commonName, index)
            guard index >= 0, let entry = X509_NAME_get_entry(subject, index) else { return last }
            last = Self.text(of: X509_NAME_ENTRY_get_data(entry))
        }
    }

    var alternativeNames: [AlternativeName] {
        guard let extensions = X509_REQ_get_extensions(pointer) else { return [] }
        defer { COpenSSL_freeExtensions(extensions) }
        guard let names = X509V3_get_d2i(extensions, NID_subject_alt_name, nil, nil) else { return [] }
        let list = OpaquePointer(names)
        defer { GENERAL_NAMES_free(list) }
        return AlternativeName.names(in: list)
    }

    private static func text(of string: COpenSSL_String?) -> String? {
        var utf8: UnsafeMutablePointer<UInt8>?
        let length = ASN1_STRING_to_UTF8(&utf8, string)
        guard length >= 0, let utf8 else { return nil }
        defer { COpenSSL_free(utf8) }
        return String(decoding: UnsafeBufferPointer(start: utf8, count: Int(length)), as: UTF8.self)
    }
}
