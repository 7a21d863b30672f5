import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import Testing

/// Tickets in TLS 1.2 that replace others: OpenSSL leaves them the date of the first one.
@Suite struct RenewedTicketTests {
    /// Each byte of the key is 1, so that a test can open tickets.
    private final class KnownKey: TLSTicketKeySource {
        static let byte: UInt8 = 1
        let keys: TLSTicketKeys

        init() throws { keys = TLSTicketKeys(current: try TLSTicketKey(bytes: [UInt8](repeating: Self.byte, count: 80))) }
    }

    /// As if `session` had been made `seconds` earlier, by OpenSSL's count.
    private func aged(_ peer: RawPeer, by seconds: Int) throws -> [UInt8] {
        let (key, ticket) = ([UInt8](repeating: KnownKey.byte, count: 32), peer.ticket())
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
        let now = Locked(10_000)
        var settings = try Fixture.resuming().server
        settings.ticketKeys = try KnownKey()
        let context = try TLSContext(for: settings) { now.withLock { $0 } }
        func connect(at time: Int, resuming session: [UInt8]? = nil) throws -> RawPeer {
            now.withLock { $0 = time }
            return try RawPeer.client(.tls12, of: TLSEngine(context: context, settings: settings), resuming: session)
        }
        let first = try connect(at: 10_000)
        let second = try connect(at: 12_400, resuming: aged(first, by: 2400))
        #expect(second.isResumed && second.tickets == 1)
        let third = try connect(at: 13_599, resuming: second.session())
        #expect(third.isResumed && third.tickets == 1)
        #expect(try !connect(at: 13_600, resuming: third.session()).isResumed)
    }
}
