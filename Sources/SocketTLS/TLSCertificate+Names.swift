internal import COpenSSL
internal import Glibc

extension TLSCertificate {
    /// The subject's name in the format of RFC 4514, such as "CN=mail.example.org,O=Example".
    ///
    /// Control and format characters are escaped, such as `\0A` for a line break, so the text can be printed.
    public var subject: String { Self.text(of: X509_get_subject_name(handle.x509)) }

    /// The issuer's name in the format of RFC 4514, escaped like `subject`.
    public var issuer: String { Self.text(of: X509_get_issuer_name(handle.x509)) }

    /// The last common name (CN) of the subject, or `nil` if it has no common name. Never compare it with a
    /// host name: use `dnsNames`.
    ///
    /// The text is not escaped: it can contain line breaks and escape sequences. Print `subject` instead.
    public var commonName: String? {
        let subject = X509_get_subject_name(handle.x509)
        var index: Int32 = -1
        var last: String?
        while true {
            index = X509_NAME_get_index_by_NID(subject, NID_commonName, index)
            guard index >= 0, let entry = X509_NAME_get_entry(subject, index) else { return last }
            last = Self.text(of: X509_NAME_ENTRY_get_data(entry))
        }
    }

    /// The serial number in uppercase hexadecimal.
    public var serialNumber: String {
        guard let number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(handle.x509), nil) else { return "" }
        defer { BN_free(number) }
        guard let digits = BN_bn2hex(number) else { return "" }
        defer { COpenSSL_free(digits) }
        return String(cString: digits)
    }

    /// The host names that the certificate is valid for (subjectAltName dNSName), with wildcards unexpanded.
    /// Names that contain a NUL character are omitted: no host has such a name, and C code would compare only
    /// the part before the NUL.
    public var dnsNames: [String] {
        alternativeNames(ofType: GEN_DNS) { $0.contains(0) ? nil : String(decoding: $0, as: UTF8.self) }
    }

    /// The IP addresses that the certificate is valid for (subjectAltName iPAddress), in their usual
    /// notation.
    public var ipAddresses: [String] {
        alternativeNames(ofType: GEN_IPADD, Self.address)
    }

    /// The certificate's name in error messages: the common name or, if it has no common name, the first host
    /// name or the subject.
    var displayName: String {
        (commonName ?? dnsNames.first ?? (subject.isEmpty ? "serial number \(serialNumber)" : subject)).printable
    }

    private func alternativeNames(ofType wanted: Int32, _ convert: (UnsafeRawBufferPointer) -> String?) -> [String] {
        guard let names = X509_get_ext_d2i(handle.x509, NID_subject_alt_name, nil, nil) else { return [] }
        let stack = OpaquePointer(names)
        defer { GENERAL_NAMES_free(stack) }
        return (0..<COpenSSL_sk_GENERAL_NAME_num(stack)).compactMap { index in
            let name = COpenSSL_contentsOfGeneralName(COpenSSL_sk_GENERAL_NAME_value(stack, index))
            guard name.type == wanted else { return nil }
            return convert(UnsafeRawBufferPointer(start: name.bytes, count: name.count))
        }
    }

    private static func address(_ bytes: UnsafeRawBufferPointer) -> String? {
        let family: Int32
        switch bytes.count {
        case 4: family = AF_INET
        case 16: family = AF_INET6
        default: return nil
        }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        guard inet_ntop(family, bytes.baseAddress, &text, socklen_t(text.count)) != nil else { return nil }
        return text.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } }
    }

    /// Returns an `X509_NAME` in the format of RFC 4514, without control and format characters.
    static func text(of name: OpaquePointer?) -> String {
        (MemoryBIO.text { bio in COpenSSL_printName(bio, name) } ?? "").escapingUnprintable
    }

    private static func text(of string: COpenSSL_String?) -> String? {
        var utf8: UnsafeMutablePointer<UInt8>?
        let length = ASN1_STRING_to_UTF8(&utf8, string)
        guard length >= 0, let utf8 else { return nil }
        defer { COpenSSL_free(utf8) }
        return String(decoding: UnsafeBufferPointer(start: utf8, count: Int(length)), as: UTF8.self)
    }
}
