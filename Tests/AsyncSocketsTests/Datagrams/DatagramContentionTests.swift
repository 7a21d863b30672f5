import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Several tasks use one socket concurrently, together with a delegate. In the first rounds each task makes
/// its calls in a fixed order. `CONTENTION_SEED` replays the random calls of the later rounds.
@Suite(.timeLimit(.patient)) struct DatagramContentionTests {
    private static let taskCount = 4
    private static let stepCount = 40

    @Test(arguments: 0..<60) func everyCallIsAnsweredOnce(_ round: Int) async throws {
        let recorder = DatagramRecorder()
        let seed = Seeds.first("CONTENTION_SEED")
        let socket =
            switch round % 3 {
            case 0: AsyncUDPSocket(inlineDelegate: recorder)
            case 1: AsyncUDPSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
            default: AsyncUDPSocket(inlineDelegate: recorder, socketQueue: DispatchQueue(label: "socket"))
            }
        let peers = try (0..<2).map { _ in try AsyncUDPSocket.bound() }
        let targets = try peers.map { try $0.address }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<Self.taskCount {
                group.addTask {
                    var dice = SeededGenerator(seed: seed &+ UInt64(round * Self.taskCount + number))
                    for step in 0..<Self.stepCount {
                        // The fixed calls of the tasks are shifted, so that each call meets each other one.
                        let call = round < Self.fixedCount ? Self.Call(step + number * round) : Self.Call(&dice)
                        try await Self.perform(call, socket, targets, tag: number * Self.stepCount + step)
                    }
                }
            }
            try await group.waitForAll()
        }
        guard socket.connection != nil else { return }
        socket.dissolveAssociation()
        // After disconnecting, it receives datagrams from all sources on its port.
        if socket.isOpen {
            socket.setReceiveFilter(nil)
            socket.rateLimit = nil
            socket.pauseReceiving()
            // Waits until all earlier requests are processed.
            await withCheckedContinuation { continuation in socket.perform { _ in continuation.resume() } }
            #expect(!socket.isConnected)
            try await peers[0].send(Data([99]), to: .loopback(port: socket.localPort))
            while try await socket.receive().data != Data([99]) {}
        }
        socket.disconnect()
        #expect(try await recorder.closed() == nil, "CONTENTION_SEED=\(seed)")
        let tags = recorder.history.compactMap { told -> Int? in
            switch told {
            case .sent(let tag): tag
            case .notSent(let tag, _): tag
            default: nil
            }
        }
        // Every fourth step of a task sends with the delegate method.
        #expect(tags.sorted() == (0..<Self.taskCount * Self.stepCount).filter { $0 % 4 == 0 }, "CONTENTION_SEED=\(seed)")
    }

    private static let fixedCount = 24

    /// A call, and its variants.
    private struct Call {
        static let kinds = 12

        let kind: Int
        let target: Int
        let isVariant: Bool

        init(_ number: Int) { (kind, target, isVariant) = (number % Self.kinds, number / 3 % 2, number / Self.kinds % 2 == 0) }

        init(_ dice: inout SeededGenerator) {
            kind = Int.random(in: 0..<Self.kinds, using: &dice)
            target = Int.random(in: 0..<2, using: &dice)
            isVariant = Bool.random(using: &dice)
        }
    }

    private static func perform(_ call: Call, _ socket: AsyncUDPSocket, _ targets: [SocketEndpoint], tag: Int) async throws {
        let target = targets[call.target]
        guard tag % 4 != 0 else {
            if call.isVariant { return socket.send(Data([1]), withTimeout: .patient, tag: tag) }
            return socket.send(Data([1]), toAddress: target, withTimeout: .patient, tag: tag)
        }
        do {
            switch call.kind {
            case 0: try socket.bind(toPort: 0)
            case 1: try await socket.connect(to: target)
            case 2: try await socket.connect(to: "127.0.0.1", port: target.port ?? 0)
            case 3: try socket.connect(toAddress: target)
            case 4, 5: socket.dissolveAssociation()
            case 6: try await socket.send(Data([2]))
            case 7: try await socket.send(Data([3]), to: target)
            case 8: _ = try await socket.receive(timeout: .milliseconds(1))
            case 9: socket.setReceiveFilter(on: call.isVariant ? DispatchQueue(label: "filter") : nil) { _ in .accept() }
            case 10: try call.isVariant ? socket.beginReceiving() : socket.receiveOnce()
            default: socket.rateLimit = call.isVariant ? nil : SourceRateLimit(perSource: .init(perSecond: 1_000, burst: 10))
            }
        } catch let error as AsyncSocketError {
            // Another task has disconnected, connected or bound the socket, or nothing was received.
            let expected: [AsyncSocketError.Code] = [.badConfiguration, .closed, .readTimeout]
            #expect(expected.contains(error.code), "\(error), CONTENTION_SEED=\(Seeds.first("CONTENTION_SEED"))")
        }
    }
}
