import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// What a listener reports about itself.
@Suite(.timeLimit(.patient)) struct ServerSnapshotTests {
    enum Peers: CaseIterable {
        case network, unixDomain, proxied
    }

    /// Each connection is counted once, whoever its peer is.
    @Test(arguments: Peers.allCases) func connectionsAreCounted(_ peers: Peers) async throws {
        let folder = try TemporaryFolder()
        let listener =
            switch peers {
            case .network: try SocketListener(port: 0, interface: "127.0.0.1")
            case .unixDomain: try SocketListener(path: folder.path("s"))
            case .proxied: try SocketListener(port: 0, interface: "127.0.0.1", proxyProtocol: .required(from: .anyone))
            }
        #expect(listener.snapshot == ServerSnapshot())
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            var connections: [RawSocket?] = []
            for count in 1...3 {
                let connection = try RawSocket.connected(to: address)
                if peers == .proxied { try connection.send("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n") }
                try connection.send("hello\n")
                #expect(try connection.receive(atLeast: 6) == "hello\n")
                connections.append(connection)
                #expect(listener.snapshot == ServerSnapshot(openCount: count, acceptedCount: count))
            }
            connections = []
            try await eventually("they are closed") {
                listener.snapshot == ServerSnapshot(openCount: 0, acceptedCount: 3)
            }
        }
        #expect(listener.snapshot == ServerSnapshot(isListening: false, acceptedCount: 3))
    }

    /// A connection that is refused is not accepted.
    @Test func refusalsAreCountedByLimit() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        listener.maximumConnectionsPerSource = 1
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            let connection = try RawSocket.connected(to: address)
            try connection.send("hello\n")
            #expect(try connection.receive(atLeast: 6) == "hello\n")
            for _ in 0..<2 { #expect(throws: LoopbackError.self) { try RawSocket.connected(to: address).receive() } }
            var refused = ServerSnapshot.Refusals()
            refused.bySource = 2
            #expect(listener.snapshot == ServerSnapshot(openCount: 1, acceptedCount: 1, refused: refused))
            #expect(listener.snapshot.refused.total == 2)
        }
    }

    /// The names are part of what other programs read.
    @Test func aSnapshotIsJSON() throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        var refused = ServerSnapshot.Refusals()
        (refused.bySource, refused.byConnections, refused.byHandshakes) = (5, 6, 7)
        (refused.byPendingBytes, refused.byRate, refused.invalid, refused.byClosing) = (8, 9, 10, 11)
        let snapshot = ServerSnapshot(
            openCount: 1, handshakeCount: 2, waitingCount: 3, pendingByteCount: 11, acceptedCount: 4, refused: refused)
        let json = try encoder.encode(snapshot)
        let text = """
            {"acceptedCount":4,"handshakeCount":2,"isListening":true,"openCount":1,"pendingByteCount":11,\
            "refused":{"byClosing":11,"byConnections":6,"byHandshakes":7,"byPendingBytes":8,"byRate":9,"bySource":5,"invalid":10},"waitingCount":3}
            """
        #expect(String(decoding: json, as: UTF8.self) == text)
        #expect(try JSONDecoder().decode(ServerSnapshot.self, from: json) == snapshot)
    }

    @Test func eachLoopHasALatency() async throws {
        _ = try SocketEventLoop.next()
        let latencies = await SocketEventLoop.latencies()
        #expect(latencies.count == SocketEventLoop.usableProcessors && latencies.allSatisfy { $0 > .zero })
    }
}
