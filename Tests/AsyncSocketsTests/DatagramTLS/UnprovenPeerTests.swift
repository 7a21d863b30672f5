import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Peers of a listener without DTLS that give way at its limit.
@Suite(.timeLimit(.patient)) struct UnprovenPeerTests {
    /// Datagrams with forged sources fill the limit. They give way to each other, and the peer that replies
    /// stays.
    @Test func peersThatDoNotReplyGiveWay() async throws {
        let listener = try DatagramListenerTests.listener(.plain, maximumPeers: 4, idleTimeout: nil)
        let errors = Locked<[AsyncSocketError.Code?]>([])
        let serving = Task {
            try await listener.run(onError: { error, _ in errors.withLock { $0.append((error as? AsyncSocketError)?.code) } }) {
                for try await datagram in $0.datagrams { try await $0.send(datagram.data, inReplyTo: datagram) }
            }
        }
        let honest = try await DatagramListenerTests.client(.plain, of: listener)
        for _ in 0..<2 { #expect(try await honest.ask("hello") == "hello") }
        var strangers: [AsyncUDPSocket] = []
        for number in 0..<10 {
            // One source has more peers than any other.
            let stranger = try AsyncUDPSocket.bound(number < 6 ? "127.0.0.2" : "127.0.0.3")
            try await stranger.send(Data("forged".utf8), to: "127.0.0.1", port: listener.localPort)
            _ = try await stranger.receive(timeout: .patient)
            strangers.append(stranger)
        }
        #expect(listener.snapshot.openCount == 4 && listener.snapshot.refused.byConnections == 7)
        #expect(listener.snapshot.handshakeCount == 0)
        #expect(try await honest.ask("again") == "again")
        let late = try await DatagramListenerTests.client(.plain, of: listener)
        #expect(try await late.ask("hello") == "hello")
        try await eventually("their sockets have closed") { errors.withLock { $0.count } == 8 }
        #expect(errors.withLock { $0.allSatisfy { $0 == .tooManyConnections } })
        await listener.close(timeout: .zero)
        try await serving.value
        withExtendedLifetime(strangers) {}
    }

    /// Datagrams with a forged source must not shut out the host with that address.
    @Test func aSourceAtItsLimitReplacesItsOwnPeers() async throws {
        let listener = try DatagramListenerTests.listener(.plain, maximumPeers: 4, idleTimeout: nil)
        listener.maximumPeersPerSource = 2
        let serving = Task {
            try await listener.run(onError: { _, _ in }) {
                for try await datagram in $0.datagrams { try await $0.send(datagram.data, inReplyTo: datagram) }
            }
        }
        func exchange(from host: String) async throws -> AsyncUDPSocket {
            let peer = try AsyncUDPSocket.bound(host)
            try await peer.send(Data("first".utf8), to: "127.0.0.1", port: listener.localPort)
            _ = try await peer.receive(timeout: .patient)
            return peer
        }
        let other = try await exchange(from: "127.0.0.3")
        let forged = [try await exchange(from: "127.0.0.2"), try await exchange(from: "127.0.0.2")]
        let honest = try await DatagramListenerTests.client(.plain, of: listener, from: "127.0.0.2")
        for _ in 0..<2 { #expect(try await honest.ask("hello") == "hello") }
        #expect(listener.snapshot.openCount == 3 && listener.snapshot.refused.bySource == 1)
        #expect(listener.snapshot.refused.total == 1)
        await listener.close(timeout: .zero)
        try await serving.value
        withExtendedLifetime((other, forged)) {}
    }

    /// Evicted peers have tasks that have not finished. If they are many, strangers are dropped.
    @Test func evictedPeersDoNotAccumulateTasks() async throws {
        let listener = try DatagramListenerTests.listener(.plain, maximumPeers: 1, idleTimeout: nil)
        let gate = Locked<[UnsafeContinuation<Void, Never>]>([])
        let serving = Task {
            try await listener.run(onError: { _, _ in }) { _ in
                await withUnsafeContinuation { continuation in gate.withLock { $0.append(continuation) } }
            }
        }
        let strangers = try (0..<200).map { _ in try AsyncUDPSocket.bound("127.0.0.2") }
        for stranger in strangers {
            try await stranger.send(Data("forged".utf8), to: "127.0.0.1", port: listener.localPort)
        }
        try await eventually("all have arrived") { listener.snapshot.refused.byConnections + 1 >= strangers.count }
        #expect(listener.reception.unfinishedCount <= 66)
        // The replaced peer is counted before its successor is added.
        try await eventually("one peer is left") { listener.snapshot.openCount == 1 }
        listener.beginClosing(timeout: .zero)
        while listener.reception.unfinishedCount > 0 {
            for continuation in gate.withLock({ list in
                defer { list = [] }; return list
            }) { continuation.resume() }
            await Task.yield()
        }
        try await serving.value
    }
}
