// Rules for cookies (RFC 6347, section 4.2.1):
//  1. A ClientHello without a cookie costs one hash and one reply, and the server keeps no state for it. The
//     reply is never larger than the datagram that caused it, so a server cannot be used to amplify an
//     attack.
//  2. A cookie is a hash over the client's address, the local address, and the fields that the client
//     repeats: its version, random bytes and session identifier. It is therefore useless to everyone except
//     its receiver.
//  3. A secret is used for a limited time. Its cookies stay valid for one more period of the same length.
//  4. The first fragment of a ClientHello must contain the cookie, as OpenSSL's `DTLSv1_listen` also
//     requires.

internal import COpenSSL
internal import SocketBuffers

/// Creates and verifies a DTLS server's cookies. A client that returns its cookie has proved that it can
/// receive datagrams at its source address.
package final class DTLSCookies: Sendable {
    package enum Answer {
        /// The datagram does not start a handshake and is dropped.
        case none
        /// Send this HelloVerifyRequest, which makes the client repeat its ClientHello with a cookie.
        case request([UInt8])
        /// The datagram is a ClientHello with a valid cookie.
        case admission
    }

    private struct Secrets {
        var current: [UInt8]
        var earlier: [UInt8]?
        /// When the current secret expires, in nanoseconds.
        var end: Int
    }

    private let secrets: Locked<Secrets>
    private let clock: @Sendable () -> Int

    /// How long a secret is used for new cookies, in nanoseconds. Longer than a client's retransmission
    /// interval.
    package static let lifetime = 90 * 1_000_000_000
    private static let secretSize = 32

    /// - Parameter clock: A monotonic clock, in nanoseconds.
    package init(clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds) throws(TLSError) {
        self.clock = clock
        secrets = Locked(Secrets(current: try Self.makeSecret(), earlier: nil, end: clock() + Self.lifetime))
    }

    private static func makeSecret() throws(TLSError) -> [UInt8] {
        var secret = [UInt8](repeating: 0, count: secretSize)
        try OpenSSLCall.requireSuccess("RAND_bytes") { RAND_bytes(&secret, Int32(secret.count)) }
        return secret
    }

    /// Decides how to treat a datagram from an unknown address.
    ///
    /// - Parameter addresses: The bytes of the sender's address followed by the bytes of the local address.
    package func judge(_ datagram: UnsafeRawBufferPointer, from addresses: [UInt8]) -> Answer {
        guard let hello = FirstHello(datagram), let (current, earlier) = secretsNow() else { return .none }
        let seed = addresses + hello.constant
        let cookie = Self.cookie(for: seed, by: current)
        if hello.hasCookie(cookie) { return .admission }
        if let earlier, hello.hasCookie(Self.cookie(for: seed, by: earlier)) { return .admission }
        let request = hello.request(for: cookie)
        return request.count <= datagram.count ? .request(request) : .none
    }

    /// Returns the same value for a client's ClientHello with and without a cookie, or `nil` for any other
    /// datagram.
    package static func digest(ofHello datagram: UnsafeRawBufferPointer) -> Int? {
        guard datagram.first == RecordHeader.handshake, let hello = FirstHello(datagram) else { return nil }
        return hello.constant.hashValue
    }

    /// Makes OpenSSL leave cookies to this library: OpenSSL's own cookie requests are not used (see
    /// `DTLSEngine.listen(_:)`).
    static func prepare(_ context: OpaquePointer) {
        SSL_CTX_set_options(context, COpenSSL_noMTUQueryOption())
        SSL_CTX_set_cookie_generate_cb(context) { _, _, _ in 0 }
        SSL_CTX_set_cookie_verify_cb(context) { _, _, _ in 1 }
    }

    /// The current and the previous secret, or `nil` if no random numbers are available for a new secret.
    private func secretsNow() -> (current: [UInt8], earlier: [UInt8]?)? {
        let now = clock()
        return secrets.withLock { secrets in
            if secrets.end <= now {
                guard let new = try? Self.makeSecret() else { return nil }
                let isRecent = now < secrets.end + Self.lifetime
                secrets = Secrets(current: new, earlier: isRecent ? secrets.current : nil, end: now + Self.lifetime)
            }
            return (secrets.current, secrets.earlier)
        }
    }

    // MARK: - Handover

    /// The secrets, for another process on this machine.
    package var record: [UInt8] {
        secrets.withLock { secrets in
            withUnsafeBytes(of: Int64(secrets.end).bigEndian) { Array($0) } + secrets.current + (secrets.earlier ?? [])
        }
    }

    /// Continues with the secrets of another process, so that its cookies stay valid.
    ///
    /// - Returns: `false` if `record` is not a value of `record`.
    package func adopt(_ record: [UInt8]) -> Bool {
        var reader = record.dropFirst(MemoryLayout<Int64>.size)
        guard [1, 2].contains(where: { reader.count == $0 * Self.secretSize }) else { return false }
        let end = record.prefix(MemoryLayout<Int64>.size).reduce(Int64(0)) { $0 << 8 | Int64($1) }
        let current = Array(reader.prefix(Self.secretSize))
        reader = reader.dropFirst(Self.secretSize)
        // The clock of the other process may be in another time namespace.
        let latest = clock() + Self.lifetime
        secrets.withLock {
            $0 = Secrets(current: current, earlier: reader.isEmpty ? nil : Array(reader), end: min(Int(end), latest))
        }
        return true
    }

    private static func cookie(for seed: [UInt8], by secret: [UInt8]) -> [UInt8] {
        var cookie = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var count: UInt32 = 0
        guard HMAC(EVP_sha256(), secret, Int32(secret.count), seed, seed.count, &cookie, &count) != nil else { return [] }
        return Array(cookie.prefix(Int(count)))
    }
}

/// A datagram that starts with a complete ClientHello or with its first fragment (RFC 6347, sections 4.2.1
/// and 4.2.2).
private struct FirstHello {
    private let header: RecordHeader
    private let messageNumber: Int
    private let cookie: [UInt8]
    /// The fields that a client repeats unchanged when it adds the cookie.
    let constant: [UInt8]

    init?(_ datagram: UnsafeRawBufferPointer) {
        guard let header = RecordHeader(datagram[...]), header.type == RecordHeader.handshake, header.epoch == 0,
            header.isUsable(isEstablished: false)
        else { return nil }
        self.header = header
        var reader = FieldReader(datagram[RecordHeader.size..<header.recordSize])
        // The message header: type, length, message number, fragment offset and fragment length.
        guard reader.number(of: 1) == Int(SSL3_MT_CLIENT_HELLO), let length = reader.number(of: 3),
            let number = reader.number(of: 2), number <= Self.lastNumber, reader.number(of: 3) == 0,
            let part = reader.field(lengthOf: 3), part.count <= length
        else { return nil }
        messageNumber = number
        var fields = FieldReader(part)
        guard let beginning = fields.bytes(2 + 32), beginning.first == 0xFE, let session = fields.field(lengthOf: 1),
            session.count <= 32, let cookie = fields.field(lengthOf: 1)
        else { return nil }
        constant = Array(beginning) + [UInt8(session.count)] + Array(session)
        self.cookie = Array(cookie)
    }

    /// The highest message number that `DTLSv1_listen` accepts. A client repeats its ClientHello once for a
    /// cookie, and again only if the cookie has expired.
    private static let lastNumber = 2

    func hasCookie(_ other: [UInt8]) -> Bool {
        !other.isEmpty && cookie.count == other.count && CRYPTO_memcmp(cookie, other, other.count) == 0
    }

    /// Returns a HelloVerifyRequest. Its version is always DTLS 1.0 (RFC 6347, 4.2.1). Its record has the
    /// sequence number of the client's record, so the server needs no state.
    func request(for cookie: [UInt8]) -> [UInt8] {
        // Appended part by part: Swift 6.2 cannot check the type of a sum of so many literals.
        let length: [UInt8] = [0, 0, UInt8(cookie.count + 3)]
        var message: [UInt8] = [UInt8(DTLS1_MT_HELLO_VERIFY_REQUEST)]
        message += length
        message += [UInt8(messageNumber >> 8), UInt8(messageNumber & 0xFF), 0, 0, 0]
        message += length
        message += [0xFE, 0xFF, UInt8(cookie.count)]
        message += cookie
        var record: [UInt8] = [RecordHeader.handshake, 0xFE, 0xFF, 0, 0]
        record += withUnsafeBytes(of: header.sequence.bigEndian) { $0.suffix(6) }
        record += [0, UInt8(message.count)]
        return record + message
    }
}
