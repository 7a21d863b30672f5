import AsyncSockets
import COpenSSL
import Foundation
import Glibc
import SocketTestSupport
import Testing

/// A peer that makes a socket answer, and never reads the answers.
@Suite(.timeLimit(.minutes(5))) struct FloodedSocketTests {
    /// The other end, on a descriptor of its own.
    private struct Attacker {
        let peer: RawPeer
        let descriptor: CInt

        init(port: UInt16) throws {
            peer = try RawPeer(.tls13)
            descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = port.bigEndian
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            let result = withUnsafeBytes(of: &address) {
                connect(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
            }
            try #require(result == 0)
        }

        func shakeHands() throws {
            for _ in 0..<20 where SSL_is_init_finished(peer.ssl) != 1 {
                ERR_clear_error()
                SSL_do_handshake(peer.ssl)
                try #require(send(peer.takeOutput()) != nil)
                if SSL_is_init_finished(peer.ssl) != 1 { peer.receive(try receive()) }
            }
        }

        private func receive() throws -> [UInt8] {
            var block = [UInt8](repeating: 0, count: 65_536)
            let count = recv(descriptor, &block, block.count, 0)
            try #require(count > 0)
            return Array(block.prefix(count))
        }

        /// Sends all, and answers how much that was; nil when the other side takes no more for a second, or
        /// has ended the connection.
        func send(_ bytes: [UInt8]) -> Int? {
            var rest = bytes[...]
            while !rest.isEmpty {
                var room = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                guard poll(&room, 1, 1000) == 1 else { return nil }
                let sent = rest.withUnsafeBytes {
                    Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_DONTWAIT) | CInt(MSG_NOSIGNAL))
                }
                if sent < 0, errno != EAGAIN { return nil }
                rest = rest.dropFirst(max(sent, 0))
            }
            return bytes.count
        }
    }

    /// Data between them does not help: after a hundred KeyUpdates it is over.
    @Test func aFloodOfKeyUpdatesEndsASocketsConnection() async throws {
        let fixture = try Fixture(.tls13)
        let recorder = Recorder { socket, told in
            switch told {
            case .accepted(let socket): try? socket.startTLS(settings: fixture.server)
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
                #expect(error?.blame == .peer)
                break
            }
        }
        withExtendedLifetime(listener) {}
    }

    private static let limit = 32 << 20

    /// Sends for as long as the server takes it, and closes the connection. How many bytes that were.
    ///
    /// On a thread of its own: it keeps it busy for seconds.
    private static func flood(_ port: UInt16, upTo limit: Int) async throws -> Int {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                continuation.resume(
                    with: Result {
                        let attacker = try Attacker(port: port)
                        defer { close(attacker.descriptor) }
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
