/// A version of the TLS protocol.
public struct TLSVersion: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The number on the wire, 0x0303 for TLS 1.2.
    let wireValue: UInt16

    /// TLS 1.2 (RFC 5246).
    public static let tls12 = TLSVersion(wireValue: 0x0303)
    /// TLS 1.3 (RFC 8446).
    public static let tls13 = TLSVersion(wireValue: 0x0304)

    /// An older version is smaller.
    public static func < (left: TLSVersion, right: TLSVersion) -> Bool {
        left.wireValue < right.wireValue
    }

    /// OpenSSL's name, such as "TLSv1.3".
    public var description: String {
        switch self {
        case .tls12: "TLSv1.2"
        case .tls13: "TLSv1.3"
        default: "TLS version \(wireValue)"
        }
    }
}
