import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import Testing

/// Servers that share their ticket keys, and little else.
@Suite struct TicketScopeTests {
    private let fixture: Fixture
    private let keys = FixedKeys()

    private final class FixedKeys: TLSTicketKeySource {
        let keys: TLSTicketKeys

        init() {
            do {
                keys = TLSTicketKeys(current: try TLSTicketKey(bytes: [UInt8](repeating: 1, count: 80)))
            } catch { preconditionFailure("\(error)") }
        }
    }

    init() throws {
        var fixture = try Fixture()
        fixture.server.minimumVersion = .tls12
        fixture.server.maximumVersion = nil
        fixture.server.sessionTickets = .issued(1, keys: keys)
        self.fixture = fixture
    }

    private func engine(_ settings: TLSSettings<some TLSRole.Side>) throws -> TLSEngine {
        try TLSEngine(context: TLSContext.context(for: settings, in: ContextCache(limit: 1)), settings: settings)
    }

    /// A suite that one of the servers does not allow must not be used because of a session from the other.
    /// OpenSSL checks only that the client offers it.
    @Test func aSessionBringsNoForbiddenSuite() throws {
        var old = fixture.server
        old.policy = .compatible
        let first = try RawPeer(.tls12)
        SSL_set_cipher_list(first.ssl, "ECDHE-ECDSA-AES128-SHA")
        first.shakeHands(with: try engine(old))
        try #require(SSL_is_init_finished(first.ssl) == 1)
        let session = try first.session()
        for (settings, isResumed) in [(old, true), (fixture.server, false)] {
            let (server, peer) = (try engine(settings), try RawPeer(.tls12))
            try peer.resume(session)
            peer.shakeHands(with: server)
            let agreed = try #require(server.session)
            #expect(agreed.isResumed == isResumed)
            #expect(agreed.cipherSuite.contains("CBC") == isResumed, "\(agreed.cipherSuite)")
        }
    }

    /// In TLS 1.2, the key log of a resumed connection contains the secret of all connections that used the
    /// session.
    @Test func aLogDoesNotHaveTheSecretsOfOthers() throws {
        let log = try TemporaryFile("")
        var logged = fixture.server
        logged.keyLogFile = log.path
        let session = try RawPeer.client(.tls12, of: engine(fixture.server)).session()
        #expect(try RawPeer.client(.tls12, of: engine(fixture.server), resuming: session).isResumed)
        #expect(try !RawPeer.client(.tls12, of: engine(logged), resuming: session).isResumed)
    }

    /// A file that could not be read is read again later, even if it looks the same.
    @Test func aFileOfKeysIsTriedAgain() throws {
        func lines(_ numbers: [UInt8]) -> String {
            numbers.map { Data(repeating: $0, count: 80).base64EncodedString() + "\n" }.joined()
        }
        let file = try TemporaryFile(lines([1, 2, 3]))
        let source = try TLSTicketKeyFile(path: file.path)
        func write(_ text: String) throws {
            try file.replace(with: text)
            var times = [timespec(tv_sec: 1_000_000, tv_nsec: 0), timespec(tv_sec: 1_000_000, tv_nsec: 0)]
            try #require(utimensat(AT_FDCWD, file.path, &times, 0) == 0)
        }
        try write(lines([2, 3, 3]))
        source.reload()
        #expect(source.keys.current.name[0] == 2 && source.failure != nil)
        try write(lines([2, 3, 4]))
        source.reload()
        #expect(source.keys.current.name[0] == 3 && source.failure == nil)
    }
}
