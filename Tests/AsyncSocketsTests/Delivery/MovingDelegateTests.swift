import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A delegate moves to another queue while events are pending. No event is delivered on the old queue
/// afterwards.
@Suite(.timeLimit(.patient)) struct MovingDelegateTests {
    private static let key = DispatchSpecificKey<String>()

    private func queue(_ name: String) -> DispatchQueue {
        let queue = DispatchQueue(label: name)
        queue.setSpecific(key: Self.key, value: name)
        return queue
    }

    /// When the delegate moves: before the block with its events runs, or in the callback for the first
    /// event.
    enum Move: CaseIterable, Sendable { case before, within }

    /// Returns where each of ten reads is delivered if the delegate moves to a second queue.
    private func places(_ move: Move, toAnother: Bool) async throws -> [String] {
        let queues = [queue("first"), queue("second")]
        let areQueued = try TestSignal()
        let peer = try ScriptedPeer.listening([.wait(for: areQueued), .send("0123456789"), .expectEnd])
        let places = Locked<[String]>([])
        let (old, new) = (Locked<Recorder?>(nil), Recorder { _, _ in note("new") })
        @Sendable func note(_ who: String) {
            places.withLock { $0.append("\(who) \(DispatchQueue.getSpecific(key: Self.key) ?? "none")") }
        }
        let first = Recorder { socket, told in
            guard case .read(_, let tag) = told else { return }
            note("old")
            guard tag == 0, move == .within, let mine = old.withLock({ $0 }) else { return }
            socket.setDelegate(toAnother ? new : mine, delegateQueue: queues[1])
        }
        old.withLock { $0 = first }
        let socket = AsyncSocket(delegate: first, delegateQueue: queues[0])
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        try await first.connected()
        queues[0].suspend()
        for tag in 0..<10 { socket.readData(toLength: 1, tag: tag) }
        socket.readData(toLength: 1, tag: 10)
        // One block contains all events.
        areQueued.fire()
        try await eventually("all bytes have come") { socket.readProgress?.tag == 10 }
        if move == .before { socket.setDelegate(toAnother ? new : first, delegateQueue: queues[1]) }
        queues[0].resume()
        try await eventually("all is told") { places.withLock { $0.count == 10 } }
        old.withLock { $0 = nil }
        socket.removeDelegate()
        socket.disconnect()
        return places.withLock { $0 }
    }

    @Test(arguments: Move.allCases, [false, true])
    func noEventIsToldOnTheOldQueue(_ move: Move, toAnother: Bool) async throws {
        let later = toAnother ? "new second" : "old second"
        let expected = Array(repeating: "old first", count: move == .within ? 1 : 0)
        #expect(try await places(move, toAnother: toAnother) == expected + Array(repeating: later, count: 10 - expected.count))
    }
}
