import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// A ticket key source is the program's code, so no lock is held while it is called.
@Suite(.timeLimit(.patient), .ownThreads) struct TicketSourceTests {
    /// Requests the channel binding of the connection whose tickets are being created.
    private final class AskingSource: TLSTicketKeySource {
        private let key: TLSTicketKey
        private let exporter = Locked<KeyExporter?>(nil)
        private let count = Locked(0)

        init() throws { key = try TLSTicketKey(bytes: [UInt8](repeating: 1, count: 80)) }

        func ask(_ exporter: KeyExporter) { self.exporter.withLock { $0 = exporter } }

        /// The number of bindings it has received.
        var bindings: Int { count.withLock { $0 } }

        var keys: TLSTicketKeys {
            let exporter = exporter.withLock { $0 }
            if (try? exporter?.channelBinding(.tlsExporter)) != nil { count.withLock { $0 += 1 } }
            return TLSTicketKeys(current: key)
        }
    }

    /// Runs `body` on its own thread. Returns false if it does not return.
    private func returns(_ body: @escaping @Sendable () throws -> Void) -> Bool {
        let end = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            #expect(throws: Never.self) { try body() }
            end.signal()
        }
        return end.wait(timeout: .now() + 120) == .success
    }

    private func fixture(_ source: AskingSource, _ version: TLSProtocolVersion = .tls13) throws -> Fixture {
        var fixture = try Fixture(version)
        fixture.server.sessionTickets = .issued(2, keys: source)
        return fixture
    }

    @Test(arguments: [true, false]) func aSourceMayAskItsConnectionForAChannelBinding(withData: Bool) throws {
        let source = try AskingSource()
        let isOver = returns {
            let pair = try fixture(source).pair()
            pair.shakeHands()
            source.ask(pair.server.exporter)
            if withData {
                #expect(try pair.exchange([1], from: .server) == [1])
            } else {
                pair.server.sendTickets()
                pair.carry()
                _ = try pair.exchange([2], from: .client)
                #expect(try pair.exchange([], from: .server) == [])
            }
            #expect(pair.client.session?.resumable != nil)
        }
        try #require(isOver, "the source waits for the lock that its caller holds")
        #expect(source.bindings > 0)
    }

    /// The alert is created like a ticket, which is never sent.
    @Test func aSourceIsNotAskedForAnAlert() throws {
        let source = try AskingSource()
        let isOver = returns {
            var fixture = try fixture(source)
            fixture.server.values.clientCertificates = .onRequest
            fixture.server.trustRoots = try fixture.authority.roots
            fixture.client.allowsPostHandshakeAuthentication = true
            let pair = try fixture.pair()
            pair.shakeHands()
            #expect(try pair.exchange([1], from: .server) == [1])
            source.ask(pair.server.exporter)
            _ = try pair.server.requestClientCertificate(isRequired: true)
            pair.server.abandonHandshake()
            guard case .failed(let error) = pair.server.handshake() else { throw TestFailure(what: "no failure") }
            #expect(error.code == .clientCertificateMissing && error.sentAlert == .certificateRequired)
        }
        try #require(isOver, "the source waits for the lock that its caller holds")
        #expect(source.bindings == 0)
    }
}
