/// The pre-shared keys that a server accepts instead of certificates: a list, or a function that looks up
/// the key for an identity. A client has exactly one key.
///
/// ```swift
/// let key = try TLSPreSharedKey(identity: "sensor 17", key: bytes)
/// let client = TLSSettings.client(serverName: "hub.example.org", preSharedKey: key)
/// let server = TLSSettings.server(preSharedKeys: TLSPreSharedKeys(key))
/// ```
///
/// Unless the policy is `constrainedDevices`, each handshake also performs an (EC)DHE key exchange:
/// `psk_dhe_ke` in TLS 1.3, and the cipher suite TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 (RFC 7905) in
/// TLS 1.2. Recorded traffic therefore stays secret even if the key is disclosed later. In TLS 1.3, only
/// cipher suites with the hash algorithm of the keys are negotiated, even if the peer uses a certificate.
public struct TLSPreSharedKeys: Sendable, Hashable {
    package var use: KeyUse
    /// The hash algorithm of all keys.
    public let hash: TLSPreSharedKey.HashAlgorithm
    private let source: Source

    private enum Source: Sendable, Hashable {
        case list([[UInt8]: TLSPreSharedKey])
        case function(Function)
        case lookup(Lookup)
    }

    private final class Function: Sendable, Hashable {
        let find: @Sendable ([UInt8]) -> TLSPreSharedKey?

        init(_ find: @escaping @Sendable ([UInt8]) -> TLSPreSharedKey?) { self.find = find }

        static func == (left: Function, right: Function) -> Bool { left === right }

        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    }

    private final class Lookup: Sendable, Hashable {
        let find: @Sendable ([UInt8]) async throws -> TLSPreSharedKey?

        init(_ find: @escaping @Sendable ([UInt8]) async throws -> TLSPreSharedKey?) { self.find = find }

        static func == (left: Lookup, right: Lookup) -> Bool { left === right }

        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    }

    /// Creates a list that contains one key.
    public init(_ key: TLSPreSharedKey) {
        use = .required
        hash = key.hash
        source = .list([key.identity: key])
    }

    /// Creates a list of keys for a server.
    ///
    /// - Throws: `invalidSettings` if the list is empty, two keys have the same identity, or the keys
    ///   have different hash algorithms. The server chooses the cipher suite, which determines the hash
    ///   algorithm, before it looks up the key.
    public init(_ keys: [TLSPreSharedKey]) throws(TLSError) {
        guard let first = keys.first else { throw Self.invalid("the list is empty") }
        guard keys.allSatisfy({ $0.hash == first.hash }) else {
            throw Self.invalid("some keys use SHA-256 and some use SHA-384: use the same hash for all keys")
        }
        let list = Dictionary(keys.map { ($0.identity, $0) }) { one, _ in one }
        var identities: Set<[UInt8]> = []
        for key in keys where !identities.insert(key.identity).inserted {
            let identity = String(decoding: key.identity, as: UTF8.self).printable
            throw Self.invalid("two keys have the same identity: \"\(identity)\"")
        }
        use = .required
        hash = first.hash
        source = .list(list)
    }

    /// Creates server keys that are looked up by a function.
    ///
    /// - Parameters:
    ///   - hash: The hash algorithm of all keys.
    ///   - find: Returns the key for an identity, or `nil` if the identity is unknown. The identity is
    ///     received from the network and can consist of any bytes, up to 32 KiB. A returned key with a
    ///     different identity or hash algorithm is ignored. The function is called during the handshake, on
    ///     threads of the library, for up to eight identities of each client and sometimes more than once for
    ///     the same identity. The handshake cannot be suspended here, so the function must look up keys in
    ///     memory, return immediately, and not call the socket. To wait for a database, use
    ///     `TLSServerNames.init(_:)`, whose function also receives the client's identities.
    public init(
        hash: TLSPreSharedKey.HashAlgorithm = .sha256,
        find: @escaping @Sendable (_ identity: [UInt8]) -> TLSPreSharedKey?
    ) {
        use = .required
        self.hash = hash
        source = .function(Function(find))
    }

    /// Creates server keys that are looked up by an async function, for example in a database.
    ///
    /// For DTLS only. For TLS 1.3, use `TLSServerNames.init(_:)`, whose function receives the client's
    /// identities.
    ///
    /// - Parameter lookUp: Returns the key for an identity, or `nil` if the identity is unknown. The client
    ///   is not authenticated yet. With a `DatagramListener`, it has proved that it can receive datagrams at
    ///   its address. The identity has 1 to 128 bytes and no zero byte. A returned key with a different
    ///   identity, or for SHA-384, is ignored. The function is called at most once per handshake, off the
    ///   event loops, and its running time is part of `TLSSettings.handshakeTimeout`. If it throws, the
    ///   handshake fails.
    public init(lookUp: @escaping @Sendable (_ identity: [UInt8]) async throws -> TLSPreSharedKey?) {
        use = .required
        hash = .sha256
        source = .lookup(Lookup(lookUp))
    }

    package func used(_ use: KeyUse) -> TLSPreSharedKeys {
        var keys = self
        keys.use = use
        return keys
    }

    func key(of identity: [UInt8]) -> TLSPreSharedKey? {
        switch source {
        case .list(let list): return list[identity]
        case .function(let function):
            guard let key = function.find(identity), key.identity == identity, key.hash == hash else { return nil }
            return key
        // Found before the handshake needs it: see `KeyLookup`.
        case .lookup: return nil
        }
    }

    /// Whether keys are looked up by an async function.
    var suspends: Bool { if case .lookup = source { true } else { false } }

    func lookUp(_ identity: [UInt8]) async throws -> TLSPreSharedKey? {
        guard case .lookup(let lookup) = source else { return key(of: identity) }
        guard let key = try await lookup.find(identity), key.identity == identity, key.hash == hash else { return nil }
        return key
    }

    /// The keys of a list; `nil` if keys are looked up by a function.
    var listed: [TLSPreSharedKey]? {
        if case .list(let list) = source { return Array(list.values) }
        return nil
    }

    var only: TLSPreSharedKey? {
        if case .list(let list) = source, list.count == 1 { return list.first?.value }
        return nil
    }

    /// Hashes a client's key, but not a server's list, because each connection hashes its settings to
    /// look up its context.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(use)
        hasher.combine(only)
    }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "the pre-shared keys cannot be used: \(complaint)", operation: "TLSPreSharedKeys")
    }
}

extension TLSPreSharedKeys: Digestible {
    /// Appends only `use`. The keys themselves are irrelevant for sessions, because a connection with a
    /// pre-shared key has no session.
    func append(to fields: inout DigestFields) { use.append(to: &fields) }
}

/// The question for the key of an identity.
package struct KeyQuestion: Sendable {
    let keys: TLSPreSharedKeys
    let identity: [UInt8]

    func answer() async -> KeyAnswer {
        do {
            return .found(try await keys.lookUp(identity))
        } catch {
            return .failed("\(error)")
        }
    }
}

package enum KeyAnswer: Sendable {
    /// The pre-shared key, or `nil` if the identity is unknown.
    case found(TLSPreSharedKey?)
    /// The function threw an error, with this description.
    case failed(String)
}
