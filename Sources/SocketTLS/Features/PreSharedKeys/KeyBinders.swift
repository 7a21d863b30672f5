internal import COpenSSL

/// Verifies the binders, which prove that a TLS 1.3 client has the keys it offers (RFC 8446, 4.2.11.2).
///
/// OpenSSL uses the first key that the callback returns and fails the handshake if the binder for that key is
/// wrong. A client with one valid key could therefore list any other identity first, and find out whether
/// that identity exists. To prevent this, a server checks the binders before it chooses a key.
struct KeyBinders {
    /// The ClientHello or, after a HelloRetryRequest, the first ClientHello, the HelloRetryRequest, and the
    /// second ClientHello.
    private var messages: [[UInt8]] = []

    mutating func sawHello(_ message: UnsafeRawBufferPointer) {
        messages.append(Array(message))
    }

    /// Records a ServerHello sent by this side, if it is a HelloRetryRequest.
    mutating func sawAnswer(_ message: UnsafeRawBufferPointer) {
        // The random follows the header (4 bytes) and the version (2 bytes).
        if messages.count == 1, message.dropFirst(6).starts(with: Self.retryRandom) { messages.append(Array(message)) }
    }

    mutating func forget() {
        messages = []
    }

    /// SHA-256 of "HelloRetryRequest" (RFC 8446, 4.1.3).
    private static let retryRandom: [UInt8] = Digest(.sha256).hash(Array("HelloRetryRequest".utf8))

    /// Whether `key` produces the binder of the identity at `index` in the list.
    func prove(_ key: TLSPreSharedKey, at index: Int, of list: PreSharedKeyList) -> Bool {
        guard let hello = messages.last, list.binders.indices.contains(index), list.byteCountOfBinders < hello.count else {
            return false
        }
        let digest = Digest(key.hash)
        var transcript: [UInt8] = []
        if messages.count == 3 {
            // The hash of the first ClientHello replaces the message (RFC 8446, 4.4.1).
            let first = digest.hash(messages[0])
            transcript = [254, 0, 0, UInt8(first.count)] + first + messages[1]
        }
        transcript += hello.dropLast(list.byteCountOfBinders)
        let early = digest.code([UInt8](repeating: 0, count: digest.count), key.secret.copy)
        let binderKey = digest.expand(early, "ext binder", digest.hash([]))
        let expected = digest.code(digest.expand(binderKey, "finished", []), digest.hash(transcript))
        let binder = list.binders[index]
        return binder.count == expected.count && CRYPTO_memcmp(binder, expected, expected.count) == 0
    }
}

private struct Digest {
    private let method: OpaquePointer?
    let count: Int

    init(_ algorithm: TLSPreSharedKey.HashAlgorithm) {
        switch algorithm {
        case .sha256: (method, count) = (EVP_sha256(), 32)
        case .sha384: (method, count) = (EVP_sha384(), 48)
        }
    }

    func hash(_ bytes: [UInt8]) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: count)
        _ = EVP_Digest(bytes, bytes.count, &result, nil, method, nil)
        return result
    }

    /// HMAC, which is also HKDF-Extract (RFC 5869, 2.2).
    func code(_ key: [UInt8], _ bytes: [UInt8]) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: count)
        _ = HMAC(method, key, Int32(key.count), bytes, bytes.count, &result, nil)
        return result
    }

    /// HKDF-Expand-Label with the hash length as output length (RFC 8446, 7.1), so a single step of
    /// HKDF-Expand is enough.
    func expand(_ secret: [UInt8], _ label: String, _ context: [UInt8]) -> [UInt8] {
        let name = Array("tls13 \(label)".utf8)
        let info = [0, UInt8(count), UInt8(name.count)] + name + [UInt8(context.count)] + context
        return code(secret, info + [1])
    }
}
