// Rules of cookies (RFC 6347, section 4.2.1):
//  1. A ClientHello without a cookie costs a hash and an answer, and leaves nothing behind. Its answer is not
//     larger than what has come, so a server cannot be used to flood others.
//  2. A cookie is a hash of the client's address, the local address, and of what the client repeats: its
//     version, random bytes and session identifier. So it is of use to its receiver alone.
//  3. A secret serves for a time, and its cookies for one time more.
//  4. The first fragment of a ClientHello has to have the cookie, as with OpenSSL's `DTLSv1_listen`.

internal import COpenSSL
internal import SocketBuffers

/// The cookies of a server for DTLS: a client that sends one back can receive at the address that it writes.
package final class DTLSCookies: Sendable {
    /// The kinds of datagrams of strangers.
    package enum Answer {
        /// Not the beginning of a handshake: it is dropped.
        case none
        /// The request to send the ClientHello again, with a cookie.
        case request([UInt8])
        /// A ClientHello with a cookie that is right.
        case admission
    }

    private struct Secrets {
        var current: [UInt8]
        var earlier: [UInt8]?
        /// In nanoseconds.
        var end: Int
    }

    private let secrets: Locked<Secrets>
    private let clock: @Sendable () -> Int

    /// How long a secret makes cookies, in nanoseconds: longer than a client waits between two attempts.
    package static let lifetime = 90 * 1_000_000_000
    private static let secretSize = 32

    /// - Parameter clock: Nanoseconds that never go back.
    package init(clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds) throws(TLSError) {
        self.clock = clock
        secrets = Locked(Secrets(current: try Self.makeSecret(), earlier: nil, end: clock() + Self.lifetime))
    }

    private static func makeSecret() throws(TLSError) -> [UInt8] {
        var secret = [UInt8](repeating: 0, count: secretSize)
        try OpenSSLCall.requireSuccess("RAND_bytes") { RAND_bytes(&secret, Int32(secret.count)) }
        return secret
    }

    /// Judges a datagram.
    ///
    /// - Parameter addresses: The bytes of the sender's address and the local one.
    package func judge(_ datagram: UnsafeRawBufferPointer, from addresses: [UInt8]) -> Answer {
        guard let hello = FirstHello(datagram), let (current, earlier) = secretsNow() else { return .none }
        let seed = addresses + hello.constant
        let cookie = Self.cookie(for: seed, by: current)
        if hello.hasCookie(cookie) { return .admission }
        if let earlier, hello.hasCookie(Self.cookie(for: seed, by: earlier)) { return .admission }
        let request = hello.request(for: cookie)
        return request.count <= datagram.count ? .request(request) : .none
    }

    /// Equal for the ClientHello of one client without a cookie and with it; nil for any other datagram.
    package static func digest(ofHello datagram: UnsafeRawBufferPointer) -> Int? {
        guard datagram.first == RecordHeader.handshake, let hello = FirstHello(datagram) else { return nil }
        return hello.constant.hashValue
    }

    /// Has a context leave cookies to this library: OpenSSL's own requests for one are not used
    /// (`DTLSEngine.listen(_:)`).
    static func prepare(_ context: OpaquePointer) {
        SSL_CTX_set_options(context, COpenSSL_noMTUQueryOption())
        SSL_CTX_set_cookie_generate_cb(context) { _, _, _ in 0 }
        SSL_CTX_set_cookie_verify_cb(context) { _, _, _ in 1 }
    }

    /// The secrets; nil without random numbers for a new one.
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

    private static func cookie(for seed: [UInt8], by secret: [UInt8]) -> [UInt8] {
        var cookie = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var count: UInt32 = 0
        guard HMAC(EVP_sha256(), secret, Int32(secret.count), seed, seed.count, &cookie, &count) != nil else { return [] }
        return Array(cookie.prefix(Int(count)))
    }
}

/// A datagram that begins with the first fragment of a ClientHello (RFC 6347, sections 4.2.1 and 4.2.2), or
/// with all of it.
private struct FirstHello {
    private let header: RecordHeader
    private let messageNumber: Int
    private let cookie: [UInt8]
    /// The part that is the same in the message without a cookie and in the one with it.
    let constant: [UInt8]

    init?(_ datagram: UnsafeRawBufferPointer) {
        guard let header = RecordHeader(datagram[...]), header.type == RecordHeader.handshake, header.epoch == 0,
            header.isUsable(isEstablished: false)
        else { return nil }
        self.header = header
        var reader = FieldReader(datagram[RecordHeader.size..<header.recordSize])
        // The message: its type, length and number, and which part of it this is.
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

    /// A client that has got a request for a cookie, and another one when the cookie was too old, has no
    /// reason to go on for long.
    private static let lastNumber = 8

    func hasCookie(_ other: [UInt8]) -> Bool {
        !other.isEmpty && cookie.count == other.count && CRYPTO_memcmp(cookie, other, other.count) == 0
    }

    /// A HelloVerifyRequest. Its version is always DTLS 1.0 (RFC 6347, 4.2.1), and its record has the
    /// number of the client's, so that the server needs to know nothing.
    func request(for cookie: [UInt8]) -> [UInt8] {
        let body: [UInt8] = [0xFE, 0xFF, UInt8(cookie.count)] + cookie
        let length = [0, 0, UInt8(body.count)]
        let number = [UInt8(messageNumber >> 8), UInt8(messageNumber & 0xFF)]
        let message = [UInt8(DTLS1_MT_HELLO_VERIFY_REQUEST)] + length + number + [0, 0, 0] + length + body
        let sequence = withUnsafeBytes(of: header.sequence.bigEndian) { Array($0.suffix(6)) }
        return [RecordHeader.handshake, 0xFE, 0xFF, 0, 0] + sequence + [0, UInt8(message.count)] + message
    }
}
