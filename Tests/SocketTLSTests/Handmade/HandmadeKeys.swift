import AsyncSocketsTesting
import COpenSSL
import SocketTLS

/// The keys of a TLS 1.3 handshake with X25519, AES-128-GCM and SHA-256 (RFC 8446, section 7), computed
/// independently of OpenSSL so that a peer can break any rule.
struct HandmadeKeys {
    enum Stage { case handshake, application }

    /// The handshake messages so far.
    private(set) var transcript: [UInt8] = []
    private var secret: [UInt8] = []
    /// The keys for both Finished messages.
    private var ofClient: [UInt8] = []
    private var ofServer: [UInt8] = []
    /// Zeros without a session.
    private let sessionKey: [UInt8]

    init(sessionKey: [UInt8]? = nil) {
        self.sessionKey = sessionKey ?? [UInt8](repeating: 0, count: 32)
    }

    mutating func add(_ message: [UInt8]) { transcript += message }

    /// A HelloRetryRequest replaces the first ClientHello by its hash.
    mutating func replaceFirstHello() {
        let hash = Self.hash(transcript)
        transcript = [254, 0, 0, UInt8(hash.count)] + hash
    }

    /// Returns the record protection for both sides in `stage`. The transcript must end with the last message
    /// of the previous stage.
    mutating func begin(_ stage: Stage, shared: [UInt8] = []) -> (client: HandmadeRecords, server: HandmadeRecords) {
        let zeros = [UInt8](repeating: 0, count: 32)
        switch stage {
        case .handshake:
            let early = Self.hmac(zeros, sessionKey)
            secret = Self.hmac(Self.expand(early, "derived", Self.hash([])), shared)
        case .application:
            secret = Self.hmac(Self.expand(secret, "derived", Self.hash([])), zeros)
        }
        let label = stage == .handshake ? "hs traffic" : "ap traffic"
        let clientSecret = Self.expand(secret, "c \(label)", Self.hash(transcript))
        let serverSecret = Self.expand(secret, "s \(label)", Self.hash(transcript))
        if stage == .handshake {
            (ofClient, ofServer) = (Self.expand(clientSecret, "finished", []), Self.expand(serverSecret, "finished", []))
        }
        return (HandmadeRecords(secret: clientSecret), HandmadeRecords(secret: serverSecret))
    }

    /// Returns the content of a Finished message.
    func finished(ofServer isServer: Bool) -> [UInt8] {
        Self.hmac(isServer ? ofServer : ofClient, Self.hash(transcript))
    }

    /// Returns the key of the session whose ticket has the nonce 0. `finished` is the client's Finished
    /// (section 4.6.1).
    func nextSessionKey(after finished: [UInt8]) -> [UInt8] {
        Self.expand(Self.expand(secret, "res master", Self.hash(transcript + finished)), "resumption", [0])
    }

    /// Returns the text to sign, which includes the transcript (section 4.4.3).
    func signedText(_ context: String) -> [UInt8] {
        [UInt8](repeating: 0x20, count: 64) + Array(context.utf8) + [0] + Self.hash(transcript)
    }

    static func hash(_ bytes: [UInt8]) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        EVP_Digest(bytes, bytes.count, &digest, nil, EVP_sha256(), nil)
        return digest
    }

    private static func hmac(_ key: [UInt8], _ data: [UInt8]) -> [UInt8] {
        var (digest, length) = ([UInt8](repeating: 0, count: 32), UInt32(0))
        _ = HMAC(EVP_sha256(), key, Int32(key.count), data, data.count, &digest, &length)
        return digest
    }

    /// HKDF-Expand-Label, for at most one block.
    static func expand(_ secret: [UInt8], _ label: String, _ context: [UInt8], count: Int = 32) -> [UInt8] {
        let label = Array("tls13 \(label)".utf8)
        let information = [0, UInt8(count), UInt8(label.count)] + label + [UInt8(context.count)] + context + [1]
        return Array(hmac(secret, information).prefix(count))
    }
}

/// Record protection for one direction in one stage (RFC 8446, section 5.2).
struct HandmadeRecords {
    private let key: [UInt8]
    private let nonce: [UInt8]
    private var sequence: UInt64 = 0

    init(secret: [UInt8]) {
        key = HandmadeKeys.expand(secret, "key", [], count: 16)
        nonce = HandmadeKeys.expand(secret, "iv", [], count: 12)
    }

    private mutating func nextNonce() -> [UInt8] {
        let number = withUnsafeBytes(of: sequence.bigEndian) { Array($0) }
        sequence += 1
        return nonce.prefix(4) + zip(nonce.dropFirst(4), number).map { $0 ^ $1 }
    }

    /// Encrypts a record. The actual type is the last nonzero byte of the content.
    mutating func seal(_ type: UInt8, _ content: [UInt8]) -> [UInt8] {
        seal(inner: content + [type])
    }

    mutating func seal(inner: [UInt8]) -> [UInt8] {
        let header = [23, 3, 3] + Wire.number(inner.count + 16, bytes: 2)
        let context = EVP_CIPHER_CTX_new()
        defer { EVP_CIPHER_CTX_free(context) }
        var (sealed, tag, count) = ([UInt8](repeating: 0, count: inner.count + 16), [UInt8](repeating: 0, count: 16), Int32(0))
        EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nil, key, nextNonce())
        EVP_EncryptUpdate(context, nil, &count, header, Int32(header.count))
        EVP_EncryptUpdate(context, &sealed, &count, inner, Int32(inner.count))
        var rest = [UInt8](repeating: 0, count: 16)
        EVP_EncryptFinal_ex(context, &rest, &count)
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, &tag)
        return header + sealed.prefix(inner.count) + tag
    }

    /// Decrypts the next record from the other side. Returns nil if it is invalid.
    mutating func open(_ record: [UInt8]) -> (type: UInt8, content: [UInt8])? {
        let (header, body) = (Array(record.prefix(5)), Array(record.dropFirst(5)))
        guard header[0] == 23, body.count > 16 else { return nil }
        let context = EVP_CIPHER_CTX_new()
        defer { EVP_CIPHER_CTX_free(context) }
        var (inner, count) = ([UInt8](repeating: 0, count: body.count - 16), Int32(0))
        var tag = Array(body.suffix(16))
        EVP_DecryptInit_ex(context, EVP_aes_128_gcm(), nil, key, nextNonce())
        EVP_DecryptUpdate(context, nil, &count, header, 5)
        EVP_DecryptUpdate(context, &inner, &count, body, Int32(body.count - 16))
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, &tag)
        var rest = [UInt8](repeating: 0, count: 16)
        guard EVP_DecryptFinal_ex(context, &rest, &count) == 1 else { return nil }
        while inner.last == 0 { inner.removeLast() }
        return inner.popLast().map { ($0, inner) }
    }
}

/// One side's half of an X25519 exchange.
final class HandmadeShare {
    private let key: OpaquePointer?
    let publicBytes: [UInt8]

    init() {
        key = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nil, (0..<32).map { _ in UInt8.random(in: 0...255) }, 32)
        var (bytes, count) = ([UInt8](repeating: 0, count: 32), 32)
        EVP_PKEY_get_raw_public_key(key, &bytes, &count)
        publicBytes = bytes
    }

    deinit { EVP_PKEY_free(key) }

    func secret(with other: [UInt8]) -> [UInt8] {
        let peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nil, other, other.count)
        let context = EVP_PKEY_CTX_new(key, nil)
        defer {
            EVP_PKEY_CTX_free(context)
            EVP_PKEY_free(peer)
        }
        var (secret, count) = ([UInt8](repeating: 0, count: 32), 32)
        EVP_PKEY_derive_init(context)
        EVP_PKEY_derive_set_peer(context, peer)
        EVP_PKEY_derive(context, &secret, &count)
        return secret
    }
}

/// A certificate and its P-256 key.
struct HandmadeIdentity {
    let der: [UInt8]
    private let pem: String

    init(_ issued: IssuedCertificate) {
        pem = issued.pem
        var der: [UInt8] = []
        _ = RawPeer.readIdentity(pem) { certificate, _ in
            var bytes: UnsafeMutablePointer<UInt8>?
            let count = i2d_X509(certificate, &bytes)
            der = Array(UnsafeBufferPointer(start: bytes, count: Int(max(0, count))))
            COpenSSL_free(bytes)
            return true
        }
        self.der = der
    }

    func sign(_ text: [UInt8]) -> [UInt8] {
        var signature = [UInt8](repeating: 0, count: 128)
        var count = signature.count
        _ = RawPeer.readIdentity(pem) { _, key in
            let context = EVP_MD_CTX_new()
            defer { EVP_MD_CTX_free(context) }
            EVP_DigestSignInit(context, nil, EVP_sha256(), nil, key)
            return EVP_DigestSign(context, &signature, &count, text, text.count) == 1
        }
        return Array(signature.prefix(count))
    }
}

/// Encodes numbers, vectors, messages and records for TLS.
enum Wire {
    static func number(_ value: Int, bytes: Int) -> [UInt8] {
        (0..<bytes).reversed().map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
    }

    static func vector(_ content: [UInt8], _ bytes: Int) -> [UInt8] { number(content.count, bytes: bytes) + content }

    static func list(_ numbers: [UInt16], _ bytes: Int) -> [UInt8] {
        vector(numbers.flatMap { number(Int($0), bytes: 2) }, bytes)
    }

    static func message(_ type: UInt8, _ body: [UInt8]) -> [UInt8] { [type] + vector(body, 3) }

    static func record(_ type: UInt8, _ content: [UInt8]) -> [UInt8] { [type, 3, 3] + vector(content, 2) }

    static func extensions(_ list: [HandmadePlan.Extension]) -> [UInt8] {
        vector(list.flatMap { number(Int($0.type), bytes: 2) + vector($0.body, 2) }, 2)
    }
}

/// Reads records from a socket.
struct RecordReader {
    private var bytes: [UInt8] = []

    /// Returns the next record, or nil at the end.
    mutating func next(_ receive: () throws -> [UInt8]) rethrows -> [UInt8]? {
        while bytes.count < 5 || bytes.count < 5 + length {
            let more = try receive()
            if more.isEmpty { return nil }
            bytes += more
        }
        defer { bytes.removeFirst(5 + length) }
        return Array(bytes.prefix(5 + length))
    }

    private var length: Int { Int(bytes[3]) << 8 | Int(bytes[4]) }
}

/// The fields of a hello that both sides need.
struct HandmadeHello {
    var sessionID: [UInt8] = []
    var suites: [UInt8] = []
    var extensions: [UInt16: [UInt8]] = [:]

    /// - Parameter message: A complete ClientHello or ServerHello.
    init(_ message: [UInt8]) {
        var rest = message.dropFirst(4 + 2 + 32)
        func take(_ count: Int) -> [UInt8] {
            defer { rest = rest.dropFirst(count) }
            return Array(rest.prefix(count))
        }
        func vector(_ bytes: Int) -> [UInt8] { take(take(bytes).reduce(0) { $0 << 8 | Int($1) }) }
        let isClients = message[0] == 1
        sessionID = vector(1)
        suites = isClients ? vector(2) : take(2)
        _ = isClients ? vector(1) : take(1)
        _ = take(2)
        while !rest.isEmpty {
            let type = take(2)
            extensions[UInt16(type[0]) << 8 | UInt16(type[1])] = vector(2)
        }
    }

    /// The X25519 key share.
    var share: [UInt8]? {
        guard var rest = extensions[51]?[...] else { return nil }
        if rest.count == 36 { return Array(rest.suffix(32)) }
        rest = rest.dropFirst(2)
        while rest.count > 4 {
            let header = Array(rest.prefix(4))
            let length = Int(header[2]) << 8 | Int(header[3])
            if header[0] == 0, header[1] == 29 { return Array(rest.dropFirst(4).prefix(length)) }
            rest = rest.dropFirst(4 + length)
        }
        return nil
    }
}
