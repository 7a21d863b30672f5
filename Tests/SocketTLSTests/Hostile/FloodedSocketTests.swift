import AsyncSockets
import AsyncSocketsTesting
import COpenSSL
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

/// A peer that makes a socket send responses and never reads them.
@Suite(.timeLimit(.patient)) struct FloodedSocketTests {
    /// The other end on a raw socket.
    private struct Attacker {
        let peer: RawPeer
        private let socket: RawSocket

        init(port: UInt16) throws {
            peer = try RawPeer(.tls13)
            socket = try RawSocket.connected(to: .loopback(port: port))
        }

        func shakeHands() throws {
            for _ in 0..<20 where SSL_is_init_finished(peer.ssl) != 1 {
                ERR_clear_error()
                SSL_do_handshake(peer.ssl)
                try #require(send(peer.takeOutput()) != nil)
                guard SSL_is_init_finished(peer.ssl) != 1 else { break }
                let answer = try socket.receive()
                try #require(!answer.isEmpty)
                peer.receive(answer)
            }
        }

        /// Sends all bytes and returns their number, or nil if the other side accepts no more or has closed
        /// the connection.
        func send(_ bytes: [UInt8]) -> Int? {
            do throws(LoopbackError) {
                try socket.send(bytes, waitLimit: .patient)
                return bytes.count
            } catch {
                return nil
            }
        }
    }

    /// Data in between does not help: the connection closes after a hundred KeyUpdates.
    @Test func aFloodOfKeyUpdatesEndsASocketsConnection() async throws {
        let fixture = try Fixture(.tls13)
        let recorder = Recorder { socket, told in
            switch told {
            case .accepted(let socket): try? socket.beginTLS(settings: fixture.server)
            case .secured, .read: socket.readData(withTimeout: -1, tag: 0)
            default: break
            }
        }
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let taken = try await Self.flood(listener.localPort, upTo: Self.limit)
        #expect(taken < Self.limit)
        while true {
            if case .disconnected(let error) = await recorder.next() {
                #expect(error?.tls?.code == .tooManyKeyUpdates)
                #expect(error?.tls?.sentAlert == .unexpectedMessage)
                #expect(error?.fault == .peer)
                break
            }
        }
        withExtendedLifetime(listener) {}
    }

    private static let limit = 32 << 20

    /// Sends as long as the server accepts data, closes the connection, and returns the number of bytes.
    ///
    /// Uses its own thread, which is busy for seconds.
    private static func flood(_ port: UInt16, upTo limit: Int) async throws -> Int {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(
                    with: Result {
                        let attacker = try Attacker(port: port)
                        try attacker.shakeHands()
                        var taken = 0
                        while taken < limit {
                            for _ in 0..<31 { attacker.peer.sendKeyUpdate() }
                            attacker.peer.send("x")
                            guard let count = attacker.send(attacker.peer.takeOutput()) else { break }
                            taken += count
                        }
                        return taken
                    })
            }
        }
    }
}
