internal import COpenSSL
internal import Glibc

/// The name that a client expects its server to have, validated and without a trailing dot.
enum ServerName: Equatable {
    case hostName(String)
    /// The given text without brackets, and the 4 or 16 bytes of the address.
    case address(String, [UInt8])

    init(_ text: String) throws(TLSError) {
        let isBracketed = text.hasPrefix("[") && text.hasSuffix("]") && text.count > 2
        let name = isBracketed ? String(text.dropFirst().dropLast()) : text.hasSuffix(".") ? String(text.dropLast()) : text
        if let bytes = Self.bytesOfIPv6(name) {
            self = .address(name, bytes)
            return
        }
        if let complaint = isBracketed ? "has brackets that do not contain an IPv6 address" : Self.complaint(about: name) {
            throw TLSError(.invalidSettings, "the server name \"\(text.printable)\" \(complaint)", operation: "serverName")
        }
        self = Self.bytesOfIPv4(name).map { .address(name, $0) } ?? .hostName(name)
    }

    var text: String {
        switch self {
        case .hostName(let name), .address(let name, _): name
        }
    }

    func require(on parameters: OpaquePointer?) throws(TLSError) {
        X509_VERIFY_PARAM_set_hostflags(
            parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
        try OpenSSLCall.requireSuccess("X509_VERIFY_PARAM_set1_host") {
            switch self {
            case .hostName(let name): COpenSSL_setHost(parameters, name, name.utf8.count)
            case .address(_, let bytes): X509_VERIFY_PARAM_set1_ip(parameters, bytes, bytes.count)
            }
        }
    }

    func expect(on ssl: OpaquePointer, verifies: Bool) throws(TLSError) {
        if verifies { try require(on: SSL_get0_param(ssl)) }
        // Addresses are never sent (RFC 6066, section 3).
        if case .hostName(let host) = self {
            try OpenSSLCall.requireSuccess("SSL_set_tlsext_host_name") { COpenSSL_setServerNameIndication(ssl, host) }
        }
    }

    /// A zone ("%eth0") selects the link to use and never appears in a certificate.
    private static func bytesOfIPv6(_ text: String) -> [UInt8]? {
        let parts = text.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
        guard !text.utf8.contains(0), let address = parts.first, parts.count == 1 || !parts[1].isEmpty else { return nil }
        var bytes = [UInt8](repeating: 0, count: 16)
        return inet_pton(AF_INET6, String(address), &bytes) == 1 ? bytes : nil
    }

    /// Also accepts the forms that only inet_aton(3) parses, such as "127.1", because the resolver treats
    /// them as addresses too.
    private static func bytesOfIPv4(_ name: String) -> [UInt8]? {
        var address = in_addr()
        guard inet_aton(name, &address) != 0 else { return nil }
        return withUnsafeBytes(of: address.s_addr) { Array($0) }
    }

    private static func complaint(about name: String) -> String? {
        if name.isEmpty { return "is empty" }
        if name.utf8.contains(0) { return "contains a NUL character" }
        if !name.utf8.allSatisfy({ $0 < 0x80 }) { return "is not ASCII: use A-labels (\"xn--…\")" }
        if name.utf8.count > 253 { return "is longer than 253 characters" }
        // A leading dot would make OpenSSL accept every subdomain.
        let labels = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        if labels.contains(where: \.isEmpty) { return "has an empty label" }
        if labels.contains(where: { $0.count > 63 }) { return "has a label longer than 63 characters" }
        return name.utf8.allSatisfy(isNameCharacter) ? nil : "contains characters that are not allowed in a host name"
    }

    private static func isNameCharacter(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
            UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}
