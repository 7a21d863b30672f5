/// The keys that a server accepts instead of certificates: a list, or a function that finds the key of an
/// identity. A client has one key.
///
/// ```swift
/// let key = try TLSPreSharedKey(identity: "sensor 17", key: bytes)
/// let client = TLSSettings.client(serverName: "hub.example.org", preSharedKey: key)
/// let server = TLSSettings.server(preSharedKeys: TLSPreSharedKeys(key))
/// ```
///
/// Each handshake also makes a new (EC)DHE exchange: in TLS 1.3 `psk_dhe_ke`, in TLS 1.2 the cipher suite
/// TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 (RFC 7905). So a key that becomes known later does not open
/// what was recorded before. In TLS 1.3 only the cipher suites with the hash algorithm of the keys are
/// negotiated, also with certificates.
public struct TLSPreSharedKeys: Sendable, Hashable {
    /// Whether certificates count for a peer that has none of the keys.
    package enum Use: Sendable, Hashable {
        case required
        case preferred
    }

    package var use: Use
    /// The hash algorithm of all keys.
    public let hash: TLSPreSharedKey.HashAlgorithm
    private let source: Source

    private enum Source: Sendable, Hashable {
        case list([[UInt8]: TLSPreSharedKey])
        case function(Function)
    }

    /// Equal if it is the same object.
    private final class Function: Sendable, Hashable {
        let find: @Sendable ([UInt8]) -> TLSPreSharedKey?

        init(_ find: @escaping @Sendable ([UInt8]) -> TLSPreSharedKey?) { self.find = find }

        static func == (left: Function, right: Function) -> Bool { left === right }

        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    }

    /// One key.
    public init(_ key: TLSPreSharedKey) {
        use = .required
        hash = key.hash
        source = .list([key.identity: key])
    }

    /// The keys of a server.
    ///
    /// - Throws: `invalidSettings` for an empty list, for two keys with one identity, and for keys with
    ///   different hash algorithms: the server chooses the cipher suite, and with it the algorithm, before it
    ///   looks for the key.
    public init(_ keys: [TLSPreSharedKey]) throws(TLSError) {
        guard let first = keys.first else { throw Self.invalid("the list is empty") }
        guard keys.allSatisfy({ $0.hash == first.hash }) else {
            throw Self.invalid("some are for SHA-256 and some for SHA-384, and a server can have one of the two")
        }
        let list = Dictionary(keys.map { ($0.identity, $0) }) { one, _ in one }
        guard list.count == keys.count else { throw Self.invalid("two have the same identity") }
        use = .required
        hash = first.hash
        source = .list(list)
    }

    /// The keys of a server, by a function.
    ///
    /// - Parameters:
    ///   - hash: The hash algorithm of all keys.
    ///   - find: Returns the key of an identity, which comes from the network: up to 16 KiB of any kind.
    ///     Nil without one; a key with another identity or hash algorithm does not count. It is called
    ///     on threads of the library, during the handshake, for up to eight identities of each client and
    ///     more than once for some: OpenSSL cannot wait here, so it must answer at once, from memory. To
    ///     wait for a database, use `TLSServerNames.init(_:)`, whose function gets the client's identities
    ///     too. It must not call the socket.
    public init(
        hash: TLSPreSharedKey.HashAlgorithm = .sha256,
        find: @escaping @Sendable (_ identity: [UInt8]) -> TLSPreSharedKey?
    ) {
        use = .required
        self.hash = hash
        source = .function(Function(find))
    }

    /// The same keys.
    package func used(_ use: Use) -> TLSPreSharedKeys {
        var keys = self
        keys.use = use
        return keys
    }

    /// The key of an identity.
    func key(of identity: [UInt8]) -> TLSPreSharedKey? {
        switch source {
        case .list(let list): return list[identity]
        case .function(let function):
            guard let key = function.find(identity), key.identity == identity, key.hash == hash else { return nil }
            return key
        }
    }

    /// The keys of a list; nil for a function.
    var listed: [TLSPreSharedKey]? {
        if case .list(let list) = source { return Array(list.values) }
        return nil
    }

    /// The key of a client.
    var only: TLSPreSharedKey? {
        if case .list(let list) = source, list.count == 1 { return list.first?.value }
        return nil
    }

    /// Hashes the key of a client, and not the list of a server: each connection looks its context up.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(use)
        hasher.combine(only)
    }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The pre-shared keys cannot be used: \(complaint).", operation: "TLSPreSharedKeys")
    }
}

extension TLSPreSharedKeys: Digestible {
    /// A connection with such a key has no session: the keys do not count for those that have one.
    func append(to fields: inout DigestFields) { fields.append(use == .required ? 1 : 2) }
}
