import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Several tasks use one socket concurrently, together with a delegate.
@Suite(.timeLimit(.patient)) struct DatagramContentionTests {
    private static let taskCount = 4
    private static let stepCount = 40

    @Test(arguments: 0..<60) func everyCallIsAnsweredOnce(_ round: Int) async throws {
        let recorder = DatagramRecorder()
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
                    for step in 0..<Self.stepCount {
                        try await Self.step(socket, targets, tag: number * Self.stepCount + step)
                    }
                }
            }
            try await group.waitForAll()
        }
        guard socket.connection != nil else { return }
        socket.disconnect()
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
        socket.close()
        #expect(try await recorder.closed() == nil)
        let tags = recorder.history.compactMap { told -> Int? in
            switch told {
            case .sent(let tag): tag
            case .notSent(let tag, _): tag
            default: nil
            }
        }
        // Every fourth step of a task sends with the delegate method.
        #expect(tags.sorted() == (0..<Self.taskCount * Self.stepCount).filter { $0 % 4 == 0 })
    }

    private static func step(_ socket: AsyncUDPSocket, _ targets: [SocketEndpoint], tag: Int) async throws {
        let target = targets[Int.random(in: 0..<targets.count)]
        guard tag % 4 != 0 else {
            if Bool.random() { return socket.send(Data([1]), withTimeout: .patient, tag: tag) }
            return socket.send(Data([1]), toAddress: target, withTimeout: .patient, tag: tag)
        }
        do {
            switch Int.random(in: 0..<12) {
            case 0: try socket.bind(toPort: 0)
            case 1: try await socket.connect(to: target)
            case 2: try await socket.connect(to: "127.0.0.1", port: target.port ?? 0)
            case 3: try socket.connect(toAddress: target)
            case 4, 5: socket.disconnect()
            case 6: try await socket.send(Data([2]))
            case 7: try await socket.send(Data([3]), to: target)
            case 8: _ = try await socket.receive(timeout: .milliseconds(1))
            case 9: socket.setReceiveFilter(on: Bool.random() ? DispatchQueue(label: "filter") : nil) { _ in .accept() }
            case 10: try Bool.random() ? socket.beginReceiving() : socket.receiveOnce()
            default: socket.rateLimit = Bool.random() ? nil : DatagramRateLimit(perSource: .init(perSecond: 1_000, burst: 10))
            }
        } catch let error as AsyncSocketError {
            // Another task has disconnected, connected or bound the socket, or nothing was received.
            let expected: [AsyncSocketError.Code] = [.badConfiguration, .closed, .readTimeout]
            #expect(expected.contains(error.code), "\(error)")
        }
    }
}
