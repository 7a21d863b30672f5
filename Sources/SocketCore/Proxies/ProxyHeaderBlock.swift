/// Version 2 of the PROXY protocol: a binary block (section 2.2).
enum ProxyHeaderBlock {
    static let signature: [UInt8] = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]
    /// The length of the fixed part: the signature, the version and command, the family and transport, and
    /// the length of the rest.
    static let fixedCount = 16
    static let version: UInt8 = 2

    enum Command: UInt8 {
        case local = 0
        case proxy = 1
    }

    enum Family: UInt8 {
        case unspecified = 0
        case ipv4 = 1
        case ipv6 = 2
        case unix = 3

        /// The encoded length of one host: an address, or a fixed-size path.
        var hostCount: Int {
            switch self {
            case .unspecified: 0
            case .ipv4: 4
            case .ipv6: 16
            case .unix: 108
            }
        }

        var hasPorts: Bool { self == .ipv4 || self == .ipv6 }

        var addressCount: Int { 2 * (hostCount + (hasPorts ? 2 : 0)) }
    }

    enum Transport: UInt8 {
        case unspecified = 0
        case stream = 1
        case datagram = 2
    }

    /// Whether the bytes are a prefix of the signature or start with the whole signature.
    static func isBeginning(_ bytes: UnsafeRawBufferPointer) -> Bool {
        zip(bytes, signature).allSatisfy(==)
    }

    /// - Parameter bytes: Must start with the signature, or be an incomplete signature.
    /// - Throws: `.malformed`, `.tooLong` or `.wrongChecksum`.
    static func parse(
        _ bytes: UnsafeRawBufferPointer, maximumCount: Int
    ) throws(ProxyHeaderError) -> ProxyHeader.ParsingAnswer {
        let fixed = UnsafeRawBufferPointer(rebasing: bytes.prefix(fixedCount))
        guard fixed.count > signature.count else { return .incomplete(minimumCount: fixedCount) }
        let command = try command(fixed[12])
        guard fixed.count > 13 else { return .incomplete(minimumCount: fixedCount) }
        // For LOCAL, the family and transport are ignored, even if they are invalid.
        let (family, transport) = command == .local ? (.unspecified, .unspecified) : try kind(fixed[13])
        guard fixed.count == fixedCount else { return .incomplete(minimumCount: fixedCount) }
        let length = Int(fixed[14]) << 8 | Int(fixed[15])
        guard fixedCount + length <= maximumCount else {
            throw ProxyHeaderError(
                .tooLong, "the peer's PROXY header has \(fixedCount + length) bytes, but at most \(maximumCount) are allowed"
            )
        }
        guard length >= family.addressCount else {
            throw .malformed(
                "the peer's PROXY header has \(length) bytes, but its addresses need \(family.addressCount)")
        }
        guard bytes.count >= fixedCount + length else { return .incomplete(minimumCount: fixedCount + length) }
        let block = UnsafeRawBufferPointer(rebasing: bytes.prefix(fixedCount + length))
        let header = command == .local ? .local : try header(in: block, family, transport)
        return .complete(header, consumedCount: block.count)
    }

    private static func command(_ byte: UInt8) throws(ProxyHeaderError) -> Command {
        guard byte >> 4 == version else { throw .malformed("the peer's PROXY header has version \(byte >> 4) instead of 2") }
        guard let command = Command(rawValue: byte & 0x0f) else {
            throw .malformed("the peer's PROXY header has the unknown command \(byte & 0x0f)")
        }
        return command
    }

    private static func kind(_ byte: UInt8) throws(ProxyHeaderError) -> (Family, Transport) {
        guard let family = Family(rawValue: byte >> 4) else {
            throw .malformed("the peer's PROXY header has the unknown address family \(byte >> 4)")
        }
        guard let transport = Transport(rawValue: byte & 0x0f) else {
            throw .malformed("the peer's PROXY header has the unknown transport protocol \(byte & 0x0f)")
        }
        return (family, transport)
    }

    // MARK: - Addresses

    private static func header(
        in block: UnsafeRawBufferPointer, _ family: Family, _ transport: Transport
    ) throws(ProxyHeaderError) -> ProxyHeader {
        guard transport != .unspecified, let source = address(in: block, family, isSource: true),
            let destination = address(in: block, family, isSource: false)
        else { return .unknown }
        var header = ProxyHeader(
            source: source, destination: destination, transport: transport == .datagram ? .datagram : .stream)
        let fields = try ProxyHeaderFields(in: block, from: fixedCount + family.addressCount)
        try fields.checkChecksum()
        try fields.fill(&header)
        return header
    }

    private static func address(in block: UnsafeRawBufferPointer, _ family: Family, isSource: Bool) -> SocketEndpoint? {
        let hosts = block.dropFirst(fixedCount)
        let host = Array(hosts.dropFirst(isSource ? 0 : family.hostCount).prefix(family.hostCount))
        let ports = fixedCount + 2 * family.hostCount + (isSource ? 0 : 2)
        let port = family.hasPorts ? UInt16(block[ports]) << 8 | UInt16(block[ports + 1]) : 0
        switch family {
        case .unspecified: return nil
        case .ipv4: return SocketEndpoint(ipv4Bytes: host, port: port)
        case .ipv6: return SocketEndpoint(ipv6Bytes: host, port: port)
        case .unix: return SocketEndpoint(pathRoom: host)
        }
    }
}
