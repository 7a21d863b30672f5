/// The initial handshake packet of a MySQL or MariaDB server (protocol version 10). A client needs it after
/// the upgrade to log in.
///
/// The server sends it before TLS, so an attacker may have changed it. Log in with it only after
/// `startTLS` has succeeded, and do not choose an authentication method that sends the password in
/// plaintext because this message requests it.
public struct MySQLGreeting: Sendable, Hashable {
    /// The server's version, such as `8.0.36` or `5.5.5-10.11.6-MariaDB`.
    public let serverVersion: String
    /// The server's ID for the connection.
    public let connectionID: UInt32
    /// The capability flags of the server.
    public let capabilities: UInt32
    /// The server's default collation ID.
    public let characterSet: UInt8
    /// The random bytes for the authentication method, usually 20.
    public let nonce: [UInt8]
    /// The name of the default authentication method, such as `caching_sha2_password`. Empty if the server
    /// did not name one.
    public let authenticationMethod: String

    /// Creates a greeting, for a server.
    ///
    /// - Parameters:
    ///   - serverVersion: The server's version.
    ///   - connectionID: The server's ID for the connection.
    ///   - capabilities: The capability flags of the server. The flags for TLS and for protocol 4.1 are
    ///     added.
    ///   - characterSet: The default collation ID: 45 is utf8mb4.
    ///   - nonce: 20 random bytes without zeros, new for each connection.
    ///   - authenticationMethod: The name of the default authentication method.
    public init(
        serverVersion: String, connectionID: UInt32, capabilities: UInt32 = 0, characterSet: UInt8 = 45, nonce: [UInt8],
        authenticationMethod: String
    ) {
        self.serverVersion = serverVersion
        self.connectionID = connectionID
        self.capabilities = capabilities | MySQL.tlsFlag | MySQL.requiredFlags
        self.characterSet = characterSet
        self.nonce = nonce
        self.authenticationMethod = authenticationMethod
    }

    /// Returns `nil` if the bytes are not a greeting.
    init?(payload: ArraySlice<UInt8>) {
        guard payload.first == 10, let versionEnd = payload.firstIndex(of: 0) else { return nil }
        let fields = payload[(versionEnd + 1)...]
        guard let connectionID = fields.littleEndian(bytes: 4), let lower = fields.dropFirst(13).littleEndian(bytes: 2),
            let upper = fields.dropFirst(18).littleEndian(bytes: 2), let characterSet = fields.dropFirst(15).first,
            let nonceLength = fields.dropFirst(20).first
        else { return nil }
        // The length of the nonce includes a terminating zero byte. Servers before MySQL 4.1 send only
        // its first part.
        let more = fields.dropFirst(31)
        let secondLength = UInt32(lower) & MySQL.secureConnectionFlag == 0 ? 0 : max(12, Int(nonceLength) - 9)
        let second = more.prefix(secondLength)
        guard second.count == secondLength else { return nil }
        let method = more.dropFirst(max(13, Int(nonceLength) - 8)).prefix { $0 != 0 }
        serverVersion = String(decoding: payload[..<versionEnd].dropFirst(), as: UTF8.self)
        self.connectionID = UInt32(connectionID)
        capabilities = UInt32(lower | upper << 16)
        self.characterSet = characterSet
        nonce = Array(fields.dropFirst(4).prefix(8)) + second
        authenticationMethod = String(decoding: method, as: UTF8.self)
    }

    fileprivate var payload: [UInt8] {
        var bytes: [UInt8] = [10] + Array(serverVersion.utf8) + [0]
        bytes += [UInt8](littleEndian: Int(connectionID), bytes: 4) + nonce.prefix(8) + [0]
        bytes += [UInt8](littleEndian: Int(capabilities & 0xFFFF), bytes: 2) + [characterSet, 2, 0]
        bytes += [UInt8](littleEndian: Int(capabilities >> 16), bytes: 2) + [UInt8(nonce.count + 1)]
        bytes += [UInt8](repeating: 0, count: 10) + nonce.dropFirst(8) + [0]
        return bytes + Array(authenticationMethod.utf8) + [0]
    }
}

/// The client side of MySQL and MariaDB (the MySQL source documentation, "Connection Phase").
struct MySQLClient: ProtocolSide {
    let capabilities: UInt32
    let characterSet: UInt8
    let onGreeting: (@Sendable (MySQLGreeting) -> Void)?

    var name: String { "MySQL" }
    var isClient: Bool { true }

    /// A packet starts with its length, which can look like a TLS record.
    func isTLS(_ rest: ArraySlice<UInt8>) -> Bool { false }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let (number, payload) = try MySQL.takePacket(from: &input, for: self) else { return nil }
        if payload.first == 0xFF { throw refusedConnection(String(decoding: payload.dropFirst(3), as: UTF8.self)) }
        guard number == 0, let greeting = MySQLGreeting(payload: payload) else {
            throw unexpected(String(decoding: payload, as: UTF8.self))
        }
        guard greeting.capabilities & MySQL.tlsFlag != 0 else { throw notOffered(greeting.serverVersion) }
        guard input.isEmpty else { throw injected(input.count) }
        onGreeting?(greeting)
        return .startTLS(MySQL.encodePacket(1, request(to: greeting)))
    }

    /// An SSLRequest: the fixed part of a HandshakeResponse41.
    private func request(to greeting: MySQLGreeting) -> [UInt8] {
        let flags = MySQL.tlsFlag | (greeting.capabilities & (capabilities | MySQL.requiredFlags))
        return [UInt8](littleEndian: Int(flags), bytes: 4) + [UInt8](littleEndian: 1 << 24, bytes: 4) + [characterSet]
            + [UInt8](repeating: 0, count: 23)
    }
}

/// The server side of MySQL. A client that continues without TLS is rejected.
struct MySQLServer: ProtocolSide {
    let greeting: MySQLGreeting

    var name: String { "MySQL" }
    var isClient: Bool { false }

    func quotablePart(of message: String) -> String? { nil }

    /// A packet starts with its length, which can look like a TLS record.
    func isTLS(_ rest: ArraySlice<UInt8>) -> Bool { false }

    func validate() throws(StartTLSError) {
        try check(greeting.serverVersion, "the server's version")
        try check(greeting.authenticationMethod, "the authentication method")
        guard greeting.nonce.count == 20, !greeting.nonce.contains(0) else {
            throw error(.invalidParameter, "the nonce must be 20 bytes long and contain no zero bytes")
        }
    }

    mutating func start() -> DialogueAction { .send(MySQL.encodePacket(0, greeting.payload)) }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let (number, payload) = try MySQL.takePacket(from: &input, for: self) else { return nil }
        guard number == 1, let flags = payload.littleEndian(bytes: 4) else {
            throw unexpected(String(decoding: payload, as: UTF8.self))
        }
        guard UInt32(flags) & MySQL.tlsFlag != 0 else {
            throw error(
                .tlsRequired, "the client started to log in without TLS", reply: MySQL.encodePacket(2, MySQL.tlsRequired))
        }
        guard payload.count == 32 else { throw error(.unexpectedMessage, "the request for TLS has a wrong length") }
        return .startTLSImmediately([])
    }
}

enum MySQL {
    /// CLIENT_SSL.
    static let tlsFlag: UInt32 = 1 << 11
    /// CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION and CLIENT_PLUGIN_AUTH.
    static let requiredFlags: UInt32 = 1 << 9 | secureConnectionFlag | 1 << 19
    /// CLIENT_SECURE_CONNECTION: the nonce has a second part.
    static let secureConnectionFlag: UInt32 = 1 << 15

    /// Removes a packet and returns its number and its payload.
    static func takePacket(
        from input: inout MessageInput, for side: some ProtocolSide
    ) throws(StartTLSError) -> (number: UInt8, payload: ArraySlice<UInt8>)? {
        guard let length = input.rest.littleEndian(bytes: 3) else { return nil }
        guard length <= MessageInput.limit else {
            throw side.error(.unexpectedMessage, "the \(side.peer) announced a packet of \(length) bytes before TLS")
        }
        guard let number = input.rest.dropFirst(3).first, input.count >= length + 4 else { return nil }
        _ = input.take(4)
        return input.take(length).map { (number, $0) }
    }

    static func encodePacket(_ number: UInt8, _ payload: [UInt8]) -> [UInt8] {
        [UInt8](littleEndian: payload.count, bytes: 3) + [number] + payload
    }

    /// An error packet: ER_SECURE_TRANSPORT_REQUIRED.
    static let tlsRequired: [UInt8] = [0xFF, 0x57, 0x0C] + Array("#08004TLS is required".utf8)
}
