/// What a client offers in its first message (RFC 8446, section 4.1.2).
public struct TLSClientHello: Sendable, Hashable {
    /// The name that it asks for (SNI); nil if it asks for none. It has not proved anything.
    public let serverName: String?
    /// The application protocols that it offers (ALPN), the preferred one first.
    public let applicationProtocols: [String]
    /// The identities of the pre-shared keys and the tickets that it offers in TLS 1.3 (RFC 8446, section
    /// 4.2.11), in order and eight at most. It has not proved anything.
    ///
    /// A function of `TLSServerNames` may wait for a database to find the key of one, and return
    /// `TLSSettings.server(preSharedKeys:)` with it.
    public let preSharedKeyIdentities: [[UInt8]]

    /// An offer: for tests of code that chooses by it.
    public init(serverName: String?, applicationProtocols: [String] = [], preSharedKeyIdentities: [[UInt8]] = []) {
        self.preSharedKeyIdentities = preSharedKeyIdentities
        self.serverName = serverName
        self.applicationProtocols = applicationProtocols
    }

    /// The name as names are compared: in lower case, and without the dot at its end.
    var comparedName: String? {
        guard let serverName else { return nil }
        let name = serverName.hasSuffix(".") ? String(serverName.dropLast()) : serverName
        // Outside ASCII some letters become others in lower case; no name of a list is there.
        return name.utf8.allSatisfy { $0 < 0x80 } ? name.lowercased() : name
    }

    /// Tells names apart in tickets; never 0.
    var nameDigest: Int {
        var fields = DigestFields()
        fields.append(Array((comparedName ?? "").utf8))
        return fields.digest.prefix(8).reduce(0) { $0 << 8 | Int($1) } | 1
    }

    /// Whether it fits the settings that were chosen by `other`, the client's first message. Keys may be
    /// missing in the second one (RFC 8446, section 4.1.2), and count for nothing before they are proved.
    package func asksForTheSame(as other: TLSClientHello) -> Bool {
        serverName == other.serverName && applicationProtocols == other.applicationProtocols
    }
}

/// Reads a ClientHello from the first records of a connection, before OpenSSL does.
struct ClientHelloReader {
    enum Reading {
        /// More bytes have to come, so many at least in all.
        case incomplete(minimum: Int)
        /// Not a ClientHello, or not one that we read: see rule 4 of `TLSServerNames`.
        case unreadable
        case complete(TLSClientHello)
    }

    /// The most bytes of the records of one message: more would not fit into what is read ahead. A client may
    /// cut the message into any number of them (RFC 8446, 5.1), and OpenSSL takes empty ones too.
    private static let limit = 48 * 1024

    private var message: [UInt8] = []
    /// The records of so many bytes are read.
    private var offset = 0

    /// - Parameter records: All bytes that have come. It reads none of them twice.
    mutating func read(_ records: UnsafeRawBufferPointer) -> Reading {
        while offset < Self.limit {
            let rest = UnsafeRawBufferPointer(rebasing: records[offset...])
            guard rest.isEmpty || rest[0] == 22 else { return .unreadable }
            guard rest.count >= 5 else { return .incomplete(minimum: offset + 5) }
            let length = Int(rest[3]) << 8 | Int(rest[4])
            // A handshake record of some version 3 (RFC 8446, 5.1).
            guard rest[1] == 3, length <= 16_384 else { return .unreadable }
            guard rest.count >= 5 + length else { return .incomplete(minimum: offset + 5 + length) }
            message += rest[5..<5 + length]
            offset += 5 + length
            if let reading = finish() { return reading }
        }
        return .unreadable
    }

    /// Nil when bytes are missing.
    private func finish() -> Reading? {
        guard message.count >= 4 else { return nil }
        let size = 4 + Int(message[1]) << 16 + Int(message[2]) << 8 + Int(message[3])
        guard message[0] == 1, size <= ClientHelloMessage.bytesOfMessage else { return .unreadable }
        guard message.count >= size else { return nil }
        return message.withUnsafeBytes {
            TLSClientHello(UnsafeRawBufferPointer(rebasing: $0[..<size])).map { .complete($0) } ?? .unreadable
        }
    }
}

extension TLSClientHello {
    /// Nil for a message that is not well formed.
    ///
    /// - Parameter message: The message with its header of four bytes.
    init?(_ message: UnsafeRawBufferPointer) {
        var (name, protocols): (String?, [String]) = (nil, [])
        var keys: [[UInt8]] = []
        let isWhole = ClientHelloMessage(message).forEachExtension { type, contents in
            switch type {
            case 0: name = Self.serverName(in: contents)
            case 16: protocols = Self.applicationProtocols(in: contents)
            case 41: keys = PreSharedKeyList(contents).identities
            default: break
            }
        }
        guard isWhole else { return nil }
        self.init(serverName: name, applicationProtocols: protocols, preSharedKeyIdentities: keys)
    }

    /// The list has one name of the type host_name (0), without NUL, as OpenSSL takes it. What it takes is a
    /// name, even if no host can have it: a server must not treat its client as one that asks for none.
    private static func serverName(in contents: Slice<UnsafeRawBufferPointer>) -> String? {
        let bytes = Array(contents)
        guard bytes.count >= 5, Int(bytes[0]) << 8 | Int(bytes[1]) == bytes.count - 2, bytes[2] == 0,
            Int(bytes[3]) << 8 | Int(bytes[4]) == bytes.count - 5
        else { return nil }
        let name = bytes.dropFirst(5)
        guard name.count <= 255, !name.contains(0) else { return nil }
        return String(decoding: name, as: UTF8.self)
    }

    private static func applicationProtocols(in contents: Slice<UnsafeRawBufferPointer>) -> [String] {
        var rest = Array(contents.dropFirst(2))[...]
        var names: [String] = []
        while let length = rest.first, length > 0, rest.count > Int(length) {
            names.append(String(decoding: rest.dropFirst().prefix(Int(length)), as: UTF8.self))
            rest = rest.dropFirst(1 + Int(length))
        }
        return names
    }
}
