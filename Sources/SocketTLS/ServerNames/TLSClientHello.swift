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

    /// Whether it fits the settings that were chosen by `other`, the client's first message. Keys may be
    /// missing in the second one (RFC 8446, section 4.1.2), and count for nothing before they are proved.
    package func asksForTheSame(as other: TLSClientHello) -> Bool {
        serverName == other.serverName && applicationProtocols == other.applicationProtocols
    }
}

extension TLSClientHello {
    enum Reading {
        /// More bytes have to come, so many at least in all.
        case incomplete(minimum: Int)
        /// OpenSSL will say what is wrong.
        case unreadable
        case complete(TLSClientHello)
    }

    /// The most bytes of a message that is read: OpenSSL gets a longer one, and `ClientHelloMessage` refuses
    /// it.
    private static let limit = 16 * 1024
    /// The most records for one message. Clients use one or two.
    private static let recordLimit = 16

    /// Reads the message from the first records of a connection.
    static func read(_ records: UnsafeRawBufferPointer) -> Reading {
        var message: [UInt8] = []
        var rest = records[...]
        for _ in 0..<recordLimit {
            guard rest.count >= 5 else {
                return rest.isEmpty || rest.first == 22 ? .incomplete(minimum: records.count - rest.count + 5) : .unreadable
            }
            let header = Array(rest.prefix(5))
            let length = Int(header[3]) << 8 | Int(header[4])
            // A handshake record of some version 3 (RFC 8446, 5.1).
            guard header[0] == 22, header[1] == 3, length > 0, length <= 16_384 else { return .unreadable }
            let body = rest.dropFirst(5).prefix(length)
            message += body
            if message.count >= 4 {
                let size = 4 + Int(message[1]) << 16 + Int(message[2]) << 8 + Int(message[3])
                guard message[0] == 1, size <= limit else { return .unreadable }
                if message.count >= size { return message.withUnsafeBytes { parse($0[..<size]) } }
            }
            guard body.count == length else {
                return .incomplete(minimum: records.count - rest.count + 5 + length)
            }
            rest = rest.dropFirst(5 + length)
        }
        return .unreadable
    }

    private static func parse(_ message: Slice<UnsafeRawBufferPointer>) -> Reading {
        TLSClientHello(UnsafeRawBufferPointer(rebasing: message)).map { .complete($0) } ?? .unreadable
    }

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
