internal import COpenSSL

/// An entry in a certificate's subjectAltName (RFC 5280, section 4.2.1.6).
enum AlternativeName {
    case dns(String)
    case address([UInt8])
    case email(String)

    /// Creates an IP address entry if `host` is an IP address, otherwise a DNS name entry.
    init(host: String) throws(CertificateAuthorityError) {
        if let address = Self.addressBytes(host) {
            self = .address(address)
        } else {
            self = .dns(try Self.checked(host))
        }
    }

    init(email: String) throws(CertificateAuthorityError) {
        self = .email(try Self.checked(email))
    }

    /// Adds the names to `certificate` in binary form. In OpenSSL's text form, a comma in a name would
    /// start another name.
    static func add(_ names: [AlternativeName], to certificate: OpaquePointer) throws(CertificateAuthorityError) {
        try withList(of: names) { list throws(CertificateAuthorityError) in
            try CertificateCall.requireSuccess("X509_add1_ext_i2d") {
                X509_add1_ext_i2d(certificate, NID_subject_alt_name, UnsafeMutableRawPointer(list), 0, 0)
            }
        }
    }

    /// Adds the names to a signing request. See `add(_:to:)`.
    static func add(_ names: [AlternativeName], toRequest request: OpaquePointer) throws(CertificateAuthorityError) {
        try withList(of: names) { list throws(CertificateAuthorityError) in
            try CertificateCall.requireSuccess("X509_REQ_add_extensions") {
                COpenSSL_addAlternativeNames(request, list)
            }
        }
    }

    private static func withList(
        of names: [AlternativeName], _ body: (OpaquePointer) throws(CertificateAuthorityError) -> Void
    ) throws(CertificateAuthorityError) {
        let list = try CertificateCall.require("GENERAL_NAMES_new") { GENERAL_NAMES_new() }
        defer { GENERAL_NAMES_free(list) }
        for name in names { try name.append(to: list) }
        try body(list)
    }

    private func append(to list: OpaquePointer) throws(CertificateAuthorityError) {
        let (type, bytes) = (generalNameType, bytes)
        let name = try CertificateCall.require("GENERAL_NAME_new") { COpenSSL_newGeneralName(type, bytes, Int32(bytes.count)) }
        guard COpenSSL_sk_GENERAL_NAME_push(list, name) > 0 else {
            GENERAL_NAME_free(name)
            throw CertificateAuthorityError(.openSSLFailed, "OpenSSL is out of memory", operation: "sk_GENERAL_NAME_push")
        }
    }

    private var bytes: [UInt8] {
        switch self {
        case .dns(let text), .email(let text): Array(text.utf8)
        case .address(let bytes): bytes
        }
    }

    private var generalNameType: Int32 {
        switch self {
        case .dns: GEN_DNS
        case .address: GEN_IPADD
        case .email: GEN_EMAIL
        }
    }

    private static func addressBytes(_ text: String) -> [UInt8]? {
        ERR_clear_error()
        defer { ERR_clear_error() }
        guard !text.utf8.contains(0), let octets = a2i_IPADDRESS(text) else { return nil }
        defer { ASN1_OCTET_STRING_free(octets) }
        return Array(UnsafeBufferPointer(start: ASN1_STRING_get0_data(octets), count: Int(ASN1_STRING_length(octets))))
    }

    private static func checked(_ text: String) throws(CertificateAuthorityError) -> String {
        guard !text.isEmpty, text.utf8.allSatisfy({ $0 < 0x80 }) else {
            throw CertificateAuthorityError(
                .invalidName, "the name \"\(text)\" cannot be part of a certificate: it is empty or not ASCII",
                operation: "subjectAltName")
        }
        return text
    }
}
