import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import Testing

/// Tickets in TLS 1.2: a ticket stays in use until the server encrypts with another key. It is then replaced
/// by a new one, for which OpenSSL keeps the date of the first.
@Suite struct RenewedTicketTests {
    /// Each byte of the first key is 1, so that a test can decrypt tickets.
    private final class KnownKeys: TLSTicketKeySource {
        static let byte: UInt8 = 1
        private let current: Locked<TLSTicketKeys>

        var keys: TLSTicketKeys { current.withLock { $0 } }

        init() throws { current = Locked(TLSTicketKeys(current: try Self.key(Self.byte))) }

        private static func key(_ byte: UInt8) throws -> TLSTicketKey {
            try TLSTicketKey(bytes: [UInt8](repeating: byte, count: 80))
        }

        func change(to byte: UInt8) throws {
            let keys = TLSTicketKeys(current: try Self.key(byte), decryptionOnly: [self.keys.current])
            current.withLock { $0 = keys }
        }
    }

    /// Returns the session as if it had been created `seconds` earlier, according to OpenSSL.
    private func aged(_ peer: RawPeer, by seconds: Int) throws -> [UInt8] {
        let (key, ticket) = ([UInt8](repeating: KnownKeys.byte, count: 32), peer.ticket())
        var (vector, sealed) = (Array(ticket[16..<32]), Array(ticket[32..<(ticket.count - 32)]))
        func crypt(_ bytes: [UInt8], isEncrypting: Bool) throws -> [UInt8] {
            let cipher = EVP_CIPHER_CTX_new()
            defer { EVP_CIPHER_CTX_free(cipher) }
            var (result, count, rest) = ([UInt8](repeating: 0, count: bytes.count + 16), Int32(0), Int32(0))
            try #require(EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), nil, key, vector, isEncrypting ? 1 : 0) == 1)
            try #require(EVP_CipherUpdate(cipher, &result, &count, bytes, Int32(bytes.count)) == 1)
            try result.withUnsafeMutableBufferPointer { buffer in
                try #require(EVP_CipherFinal_ex(cipher, buffer.baseAddress.map { $0 + Int(count) }, &rest) == 1)
            }
            return Array(result.prefix(Int(count + rest)))
        }
        let plain = try crypt(sealed, isEncrypting: false)
        let session = try #require(
            plain.withUnsafeBufferPointer { bytes in
                var place = bytes.baseAddress
                return d2i_SSL_SESSION(nil, &place, bytes.count)
            })
        defer { SSL_SESSION_free(session) }
        COpenSSL_setSessionTime(session, COpenSSL_sessionTime(session) - Int64(seconds))
        var memory: UnsafeMutablePointer<UInt8>?
        let count = Int(i2d_SSL_SESSION(session, &memory))
        defer { COpenSSL_free(memory) }
        sealed = try crypt(Array(UnsafeBufferPointer(start: memory, count: count)), isEncrypting: true)
        vector = Array(ticket[16..<32])
        var code = [UInt8](repeating: 0, count: 32)
        let covered = ticket[..<16] + vector + sealed
        _ = HMAC(EVP_sha256(), key, 32, Array(covered), covered.count, &code, nil)
        let (old, new) = (Data(ticket), Data(covered + code))
        try #require(old.count == new.count)
        var bytes = Data(try peer.session())
        bytes.replaceSubrange(try #require(bytes.range(of: old)), with: new)
        return Array(bytes)
    }

    @Test func aTicketOfTLS12ThatReplacesAnotherLastsToTheEndOfTheSession() throws {
        let (now, keys) = (Locked(10_000), try KnownKeys())
        var settings = try Fixture.resuming().server
        settings.sessionTickets = .issued(2, keys: keys)
        let context = try TLSContext(for: settings) { now.withLock { $0 } }
        func connect(at time: Int, resuming session: [UInt8]? = nil) throws -> RawPeer {
            now.withLock { $0 = time }
            return try RawPeer.client(.tls12, of: TLSEngine(context: context, settings: settings), resuming: session)
        }
        let first = try connect(at: 10_000)
        try keys.change(to: 2)
        let second = try connect(at: 12_400, resuming: aged(first, by: 2400))
        #expect(second.isResumed && second.tickets == 1)
        try keys.change(to: 3)
        let third = try connect(at: 13_599, resuming: second.session())
        #expect(third.isResumed && third.tickets == 1)
        try keys.change(to: 4)
        #expect(try !connect(at: 13_600, resuming: third.session()).isResumed)
    }

    /// A new one would have an unspecified lifetime (RFC 5077, 3.3), and wolfSSL would not use it.
    @Test(arguments: [true, false]) func aTicketOfTLS12StaysAsLongAsItsKeyEncrypts(sharesKeys: Bool) throws {
        let now = Locked(10_000)
        var settings = try Fixture.resuming().server
        if sharesKeys { settings.sessionTickets = .issued(2, keys: try KnownKeys()) }
        let context = try TLSContext(for: settings) { now.withLock { $0 } }
        var session: [UInt8]?
        for (time, tickets) in [(10_000, 1), (10_001, 0), (13_599, 0), (13_600, 1), (13_601, 0)] {
            now.withLock { $0 = time }
            let peer = try RawPeer.client(.tls12, of: TLSEngine(context: context, settings: settings), resuming: session)
            #expect(peer.isResumed == (tickets == 0) && peer.tickets == tickets, "at \(time)")
            session = try peer.session()
        }
    }

    /// A context's key encrypts for an hour from its first ticket, which may have been issued to another
    /// session.
    @Test func aTicketOfTLS12IsRenewedWithTheNextKeyOfTheContext() throws {
        let now = Locked(10_000)
        let settings = try Fixture.resuming().server
        let context = try TLSContext(for: settings) { now.withLock { $0 } }
        var session: [UInt8]?
        for (time, tickets, isResumed) in [
            (10_000, 1, false), (12_000, 1, false), (13_599, 0, true), (13_600, 1, true), (13_601, 0, true),
        ] {
            now.withLock { $0 = time }
            let old = time == 12_000 ? nil : session
            let peer = try RawPeer.client(.tls12, of: TLSEngine(context: context, settings: settings), resuming: old)
            #expect(peer.isResumed == isResumed && peer.tickets == tickets, "at \(time)")
            session = try peer.session()
        }
    }
}
