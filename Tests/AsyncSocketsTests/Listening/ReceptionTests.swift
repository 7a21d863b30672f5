import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Accepted connections on their way to the tasks that serve them.
@Suite(.timeLimit(.patient)) struct ReceptionTests {
    /// The kernel has accepted it, and accepting is over: no task will take it.
    @Test(arguments: [false, true]) func whatArrivesAfterTheEndIsClosed(isBegun: Bool) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let target = try #require(listener.localAddress)
        let running = isBegun ? Task.immediate { try await listener.run { try await $0.echo() } } : nil
        if isBegun {
            try await AsyncSocket.withConnection(to: target) { socket in
                try await socket.write("x")
                #expect(try await socket.read(exactly: 1) == Data("x"))
            }
        }
        listener.reception.stop()
        listener.listener.start()
        for _ in 0..<3 {
            let client = try RawSocket.connected(to: target, waitLimit: .patient)
            #expect(try client.receiveAll().isEmpty)
        }
        await listener.shutdown(within: .zero)
        try await running?.value
    }

    /// Several that arrive while no task asks are taken together, in their order, and each counts as served.
    @Test func whatHasArrivedIsTakenOnce() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let reception = listener.reception
        listener.listener.start()
        let target = try #require(listener.localAddress)
        let early = Findings<[SocketAddress]>()
        Task.immediate { early.add(await reception.arrivals()?.map(\.peer) ?? []) }
        var clients = [try RawSocket.connected(to: target)]
        try await eventually("the first is taken") { !early.all.isEmpty }
        #expect(early.all == [[try clients[0].localAddress]] && reception.servedCount == 1)
        for _ in 0..<3 { clients.append(try RawSocket.connected(to: target)) }
        var peers: [SocketAddress] = []
        while peers.count < 3 { peers += try #require(await reception.arrivals()).map(\.peer) }
        #expect(peers == (try clients[1...].map { try $0.localAddress }))
        #expect(reception.servedCount == 4)
        let waiting = Task.immediate { await reception.arrivals() == nil }
        reception.stop()
        #expect(await waiting.value)
    }
}
