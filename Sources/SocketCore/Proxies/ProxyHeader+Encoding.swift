extension ProxyHeader {
    /// Encodes the header. Send the bytes before any other data, in one write.
    ///
    /// Version 1 supports only TCP and has no fields. Neither version can encode the zone of an IPv6
    /// address, which is omitted.
    ///
    /// - Throws: `.notEncodable` if the version cannot represent the header. No other part of the header is
    ///   ever omitted silently.
    public func encoded(as version: Version) throws(ProxyHeaderError) -> [UInt8] {
        switch version {
        case .version1: try encodedLine()
        case .version2: try encodedBlock()
        }
    }

    // MARK: - Version 1

    private func encodedLine() throws(ProxyHeaderError) -> [UInt8] {
        guard !hasChecksum, try encodedFields().isEmpty else { throw .notEncodable("version 1 does not support fields") }
        guard let source, let destination else { return Array("PROXY UNKNOWN\r\n".utf8) }
        let name: String
        switch try commonFamily(source, destination) {
        case .ipv4: name = "TCP4"
        case .ipv6: name = "TCP6"
        case .unix, .unspecified: throw .notEncodable("version 1 supports only IPv4 and IPv6 addresses, not \(source)")
        }
        guard transport == .stream else { throw .notEncodable("version 1 supports only TCP, not datagrams") }
        guard let sourceHost = source.hostWithoutZone, let destinationHost = destination.hostWithoutZone,
            let sourcePort = source.port, let destinationPort = destination.port
        else {
            throw .notEncodable("version 1 requires two hosts and two ports, not \(source) and \(destination)")
        }
        return Array("PROXY \(name) \(sourceHost) \(destinationHost) \(sourcePort) \(destinationPort)\r\n".utf8)
    }

    // MARK: - Version 2

    private func encodedBlock() throws(ProxyHeaderError) -> [UInt8] {
        let fields = try encodedFields()
        let (kind, addresses) = try encodedAddresses()
        guard kind != 0 || fields.isEmpty && !hasChecksum else {
            throw .notEncodable("a header without addresses cannot contain fields: receivers skip them")
        }
        let checksum = hasChecksum ? try Self.field(ProxyHeaderFields.FieldType.checksum.rawValue, [0, 0, 0, 0]) : []
        let rest = addresses + checksum + fields
        guard let length = UInt16(exactly: rest.count) else {
            throw .notEncodable("the header has \(rest.count) bytes, but at most 65535 are allowed")
        }
        let command: ProxyHeaderBlock.Command = isLocal ? .local : .proxy
        let versionAndCommand = ProxyHeaderBlock.version << 4 | command.rawValue
        var block = ProxyHeaderBlock.signature + [versionAndCommand, kind] + length.bigEndianBytes + rest
        if hasChecksum {
            let value = ProxyHeaderBlock.fixedCount + addresses.count + ProxyHeaderFields.headCount
            block.replaceSubrange(
                value..<value + ProxyHeaderFields.checksumCount, with: CRC32C.checksum(of: block).bigEndianBytes)
        }
        return block
    }

    /// Returns the family and transport byte and the encoded addresses. Without addresses, the byte is zero.
    private func encodedAddresses() throws(ProxyHeaderError) -> (kind: UInt8, bytes: [UInt8]) {
        guard let source, let destination else { return (0, []) }
        let family = try commonFamily(source, destination)
        let transport: ProxyHeaderBlock.Transport = transport == .stream ? .stream : .datagram
        var bytes: [UInt8] = []
        for address in [source, destination] {
            let host = address.sunPath ?? address.hostBytes
            // The kernel accepts paths of 108 bytes without a terminating zero.
            bytes += host.prefix(family.hostCount) + repeatElement(0, count: max(0, family.hostCount - host.count))
        }
        if family.hasPorts {
            for address in [source, destination] { bytes += (address.port ?? 0).bigEndianBytes }
        }
        return (family.rawValue << 4 | transport.rawValue, bytes)
    }

    private func commonFamily(
        _ source: SocketEndpoint, _ destination: SocketEndpoint
    ) throws(ProxyHeaderError) -> ProxyHeaderBlock.Family {
        switch (source.family, destination.family) {
        case (.ipv4, .ipv4): return .ipv4
        case (.ipv6, .ipv6): return .ipv6
        case (.unix, .unix): return .unix
        case (.vsock, .vsock): throw .notEncodable("the PROXY protocol does not support vsock addresses")
        case (.ipv4, _), (.ipv6, _), (.unix, _), (.vsock, _):
            throw .notEncodable("\(source) and \(destination) belong to different address families")
        }
    }

    // MARK: - Fields

    /// Encodes all fields except the checksum.
    private func encodedFields() throws(ProxyHeaderError) -> [UInt8] {
        typealias FieldType = ProxyHeaderFields.FieldType
        var bytes: [UInt8] = []
        if let applicationProtocol { bytes += try Self.field(FieldType.applicationProtocol.rawValue, applicationProtocol) }
        if let authority { bytes += try Self.field(FieldType.authority.rawValue, Self.text(authority)) }
        if let uniqueID {
            guard uniqueID.count <= Self.maximumUniqueIDBytes else {
                throw .notEncodable(
                    "the unique ID has \(uniqueID.count) bytes, but at most \(Self.maximumUniqueIDBytes) are allowed")
            }
            bytes += try Self.field(FieldType.uniqueID.rawValue, uniqueID)
        }
        if let clientTLS { bytes += try Self.field(FieldType.clientTLS.rawValue, Self.encoded(clientTLS)) }
        if let networkNamespace {
            bytes += try Self.field(FieldType.networkNamespace.rawValue, Self.text(networkNamespace))
        }
        return bytes + (try Self.encoded(otherFields) { FieldType(rawValue: $0) != nil })
    }

    private static func encoded(_ tls: ClientTLS) throws(ProxyHeaderError) -> [UInt8] {
        typealias FieldType = ProxyHeaderFields.TLSFieldType
        var bytes = [tls.flags.rawValue] + tls.verifyResult.bigEndianBytes
        for type in FieldType.allCases {
            if let value = tls[keyPath: type.property] { bytes += try field(type.rawValue, text(value)) }
        }
        return bytes + (try encoded(tls.otherFields) { FieldType(rawValue: $0) != nil })
    }

    private static func encoded(
        _ fields: [Field], isRegistered: (UInt8) -> Bool
    ) throws(ProxyHeaderError) -> [UInt8] {
        var bytes: [UInt8] = []
        for other in fields {
            guard !isRegistered(other.type) else {
                throw .notEncodable("otherFields cannot contain field \(other.type): set its own property")
            }
            bytes += try field(other.type, other.value)
        }
        return bytes
    }

    private static func field(_ type: UInt8, _ value: [UInt8]) throws(ProxyHeaderError) -> [UInt8] {
        guard let length = UInt16(exactly: value.count) else {
            throw .notEncodable("field \(type) has \(value.count) bytes, but at most 65535 are allowed")
        }
        return [type] + length.bigEndianBytes + value
    }

    private static func text(_ text: String) throws(ProxyHeaderError) -> [UInt8] {
        guard ProxyHeaderFields.isPlain(text) else {
            throw .notEncodable("\(ProxyFailure.quote(text.utf8)) contains a control character")
        }
        return Array(text.utf8)
    }
}

extension ProxyHeaderError {
    fileprivate static func notEncodable(_ message: String) -> ProxyHeaderError {
        ProxyHeaderError(.notEncodable, message)
    }
}

extension SocketEndpoint {
    fileprivate var hostWithoutZone: Substring? { host?.prefix { $0 != "%" } }
}
