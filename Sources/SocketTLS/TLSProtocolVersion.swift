/// A version of TLS, or of DTLS (TLS over datagrams).
public struct TLSProtocolVersion: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The minor version: 2 for TLS 1.2 and DTLS 1.2. Wire numbers cannot be compared, because DTLS numbers
    /// count down.
    private let minor: Int
    let isForDatagrams: Bool

    /// TLS 1.2 (RFC 5246).
    public static let tls12 = TLSProtocolVersion(minor: 2)
    /// DTLS 1.2, which is TLS 1.2 over datagrams (RFC 6347).
    public static let dtls12 = TLSProtocolVersion(minor: 2, isForDatagrams: true)
    /// TLS 1.3 (RFC 8446).
    public static let tls13 = TLSProtocolVersion(minor: 3)

    private init(minor: Int, isForDatagrams: Bool = false) {
        self.minor = minor
        self.isForDatagrams = isForDatagrams
    }

    /// Returns whether `left` is older than `right`. DTLS 1.2 is ordered between TLS 1.2 and TLS 1.3.
    public static func < (left: TLSProtocolVersion, right: TLSProtocolVersion) -> Bool {
        (left.minor, left.isForDatagrams ? 1 : 0) < (right.minor, right.isForDatagrams ? 1 : 0)
    }

    /// OpenSSL's name for the version, such as "TLSv1.3" or "DTLSv1.2".
    public var description: String { "\(isForDatagrams ? "D" : "")TLSv1.\(minor)" }
}

extension TLSProtocolVersion {
    /// Creates a version from OpenSSL's wire number: 0x0303 for TLS 1.2, 0xFEFD for DTLS 1.2. DTLS numbers
    /// count down.
    init(wireNumber: Int32) {
        let isForDatagrams = wireNumber > Int32(Self.lowestOfDTLS)
        self.init(
            minor: isForDatagrams ? Self.numberOfDTLS10 - Int(wireNumber) : Int(wireNumber) - Self.numberOfTLS10,
            isForDatagrams: isForDatagrams)
    }

    var wireNumber: Int32 { Int32(isForDatagrams ? Self.numberOfDTLS10 - minor : Self.numberOfTLS10 + minor) }

    private static let numberOfTLS10 = 0x0301
    private static let numberOfDTLS10 = 0xFEFF
    private static let lowestOfDTLS = 0xFE00

    func append(to fields: inout DigestFields) {
        fields.append(isForDatagrams ? Self.numberOfDTLS10 - minor : minor)
    }
}

/// The kind of transport under TLS: an ordered byte stream or datagrams.
package enum TLSTransport: Sendable, Hashable {
    case stream
    case datagrams
}
