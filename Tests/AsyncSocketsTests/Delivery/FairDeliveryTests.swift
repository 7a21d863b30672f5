import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// An inline delegate that keeps requesting reads in its callbacks does not starve the other connections on
/// its loop.
@Suite(.timeLimit(.patient)) struct FairDeliveryTests {
    /// In each callback, requests a read that completes immediately, until it is stopped.
    private final class Insatiable: AsyncSocketDelegate, Sendable {
        let state = Locked((count: 0, isStopped: false, hasEnded: false, wasStopped: false))
        let hasBegun: TestSignal
        private let beginning = ContinuousClock.now

        init(_ hasBegun: TestSignal) {
            self.hasBegun = hasBegun
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            let (count, goesOn) = state.withLock { state in
                state.count += 1
                // Ends the test even if nothing stops it.
                state.hasEnded = state.isStopped || beginning.duration(to: .now) > .patient
                state.wasStopped = state.isStopped
                return (state.count, !state.hasEnded)
            }
            if count == 1000 { hasBegun.fire() }
            if goesOn { socket.readData(toLength: 0, tag: tag) }
        }
    }

    @Test func aDelegateThatAlwaysAsksForMoreLeavesTheOthersATurn() async throws {
        let loop = try SocketEventLoop()
        let hasBegun = try TestSignal()
        let peers = [
            try ScriptedPeer.listening([.wait(for: try TestSignal())]),
            try ScriptedPeer.listening([.wait(for: hasBegun), .send("x"), .expectEnd]),
        ]
        let insatiable = Insatiable(hasBegun)
        let neighbour = Recorder { _, told in
            if case .read = told { insatiable.state.withLock { $0.isStopped = true } }
        }
        let sockets = [AsyncSocket(inlineDelegate: insatiable), AsyncSocket(inlineDelegate: neighbour)]
        for (socket, peer) in zip(sockets, peers) {
            socket.stay(on: loop)
            try await socket.connect(to: "127.0.0.1", port: peer.port)
        }
        sockets[1].readData(toLength: 1, tag: 1)
        sockets[0].readData(toLength: 0, tag: 0)
        try await eventually("it ends") { insatiable.state.withLock { $0.hasEnded } }
        #expect(insatiable.state.withLock { $0.wasStopped })
        for socket in sockets { socket.disconnect() }
    }

    /// One delivery has at most sixteen events. The rest follow without another kernel event.
    @Test(arguments: Link.Delivery.allCases)
    func whatOneDeliveryLeavesFollows(_ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        for tag in 0..<100 { link.server.readData(toLength: 1, tag: tag) }
        link.client.write(Data(0..<100), tag: 0)
        try await eventually("all have come") { link.atServer.unread.count == 100 }
        let numbers = link.atServer.unread.map { told -> UInt8? in
            if case .read(let data, _) = told { data.first } else { nil }
        }
        #expect(numbers == Array(0..<100))
    }
}
