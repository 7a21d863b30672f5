import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Accepted connections that are not yet assigned to a task.
@Suite(.timeLimit(.patient)) struct ReceptionTests {
    /// The connection is accepted after accepting has ended, so no task will take it.
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
        listener.reception.noteLastArrival()
        listener.listener.start()
        for _ in 0..<3 {
            let client = try RawSocket.connected(to: target, waitLimit: .patient)
            #expect(try client.receiveAll().isEmpty)
        }
        await listener.close(timeout: .zero)
        try await running?.value
    }

    /// Several connections that arrive while no task is waiting are taken together, in order, and each counts
    /// as served.
    @Test func whatHasArrivedIsTakenOnce() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let reception = listener.reception
        listener.listener.start()
        let target = try #require(listener.localAddress)
        let early = Findings<[SocketEndpoint]>()
        Task.immediate { early.add(await reception.arrivals()?.map(\.peer) ?? []) }
        var clients = [try RawSocket.connected(to: target)]
        try await eventually("the first is taken") { !early.all.isEmpty }
        #expect(early.all == [[try clients[0].localAddress]] && reception.servedCount == 1)
        for _ in 0..<3 { clients.append(try RawSocket.connected(to: target)) }
        var peers: [SocketEndpoint] = []
        while peers.count < 3 { peers += try #require(await reception.arrivals()).map(\.peer) }
        #expect(peers == (try clients[1...].map { try $0.localAddress }))
        #expect(reception.servedCount == 4)
        let waiting = Task.immediate { await reception.arrivals() == nil }
        reception.noteLastArrival()
        #expect(await waiting.value)
    }
}
