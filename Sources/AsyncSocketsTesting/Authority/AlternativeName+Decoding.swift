internal import COpenSSL
internal import Glibc

extension AlternativeName {
    /// Returns the DNS names, IP addresses and email addresses in a `GENERAL_NAMES`, in order.
    static func names(in list: OpaquePointer) -> [AlternativeName] {
        (0..<COpenSSL_sk_GENERAL_NAME_num(list)).compactMap { index in
            let name = COpenSSL_contentsOfGeneralName(COpenSSL_sk_GENERAL_NAME_value(list, index))
            let bytes = Array(UnsafeBufferPointer(start: name.bytes, count: name.count))
            switch name.type {
            case GEN_DNS: return .dns(String(decoding: bytes, as: UTF8.self))
            case GEN_IPADD: return .address(bytes)
            case GEN_EMAIL: return .email(String(decoding: bytes, as: UTF8.self))
            default: return nil
            }
        }
    }

    /// The DNS name, or the IP address in its usual notation. `nil` for an email address.
    var host: String? {
        switch self {
        case .dns(let name): name
        case .address(let bytes): Self.text(ofAddress: bytes)
        case .email: nil
        }
    }

    var email: String? {
        switch self {
        case .email(let address): address
        case .dns, .address: nil
        }
    }

    private static func text(ofAddress bytes: [UInt8]) -> String? {
        let family: Int32
        switch bytes.count {
        case 4: family = AF_INET
        case 16: family = AF_INET6
        default: return nil
        }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        guard inet_ntop(family, bytes, &text, socklen_t(text.count)) != nil else { return nil }
        return text.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } }
    }
}
