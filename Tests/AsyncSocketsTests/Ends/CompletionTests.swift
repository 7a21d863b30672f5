import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Every operation completes exactly once, however the connection ends and whatever progress the operation
/// has made.
@Suite(.timeLimit(.patient)) struct CompletionTests {
    /// Ways to end an established connection.
    enum Way: CaseIterable, Sendable {
        case fin, closeNotify, reset, disconnect, lastReference
        case readTimeout, writeTimeout, tooLong, writeQueueFull, badParameter

        var steps: [ScriptedPeer.Step] {
            switch self {
            case .fin: [.finish]
            case .closeNotify: [.sendCloseNotify, .finish]
            case .reset: [.reset]
            case .disconnect, .lastReference, .readTimeout, .writeTimeout, .tooLong, .writeQueueFull, .badParameter: []
            }
        }

        func code(isSecure: Bool) -> AsyncSocketError.Code {
            switch self {
            case .fin: isSecure ? .truncated : .closedByPeer
            case .closeNotify: .closedByPeer
            case .reset: .connectionReset
            case .disconnect, .lastReference: .closed
            case .readTimeout: .readTimeout
            case .writeTimeout: .writeTimeout
            case .tooLong: .readMaxedOut
            case .writeQueueFull: .writeQueueFull
            case .badParameter: .badParameter
            }
        }
    }

    /// The operations that are queued at that time.
    enum Load: CaseIterable, Sendable {
        case nothing, reads, writes, both, startTLS

        var hasReads: Bool { self == .reads || self == .both || self == .startTLS }
        var hasWrites: Bool { self == .writes || self == .both || self == .startTLS }
    }

    /// More than the kernel buffers of both sides hold, but small enough that other writes can be queued
    /// behind it.
    private static let more = Data(count: 32 << 20)

    /// Returns an established socket whose peer performs `steps`.
    private func established(
        _ steps: [ScriptedPeer.Step], isSecure: Bool
    ) async throws -> (AsyncSocket, Recorder) {
        let start: [ScriptedPeer.Step] = isSecure ? [.startTLS(try TestCertificates.server())] : []
        let peer = try ScriptedPeer.listening(start + steps)
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        if isSecure {
            try socket.beginTLS(settings: TestCertificates.client())
            try await recorder.secured()
        }
        return (socket, recorder)
    }

    /// Queues the operations of `load`: a partially served read, a partially sent write, and others behind
    /// them.
    private func queue(_ load: Load, _ operations: Operations, on socket: AsyncSocket) async throws {
        if load.hasReads {
            // The received bytes complete none of them.
            operations.read(.length(100), on: socket)
            operations.read(.length(50), on: socket)
            operations.read(.delimiter(.lineEnd), on: socket)
        }
        if load.hasWrites {
            operations.write(Self.more, on: socket)
            operations.write(Data("waits"), on: socket)
        }
        if load == .startTLS {
            operations.startTLS(try TestCertificates.client(), on: socket)
            operations.read(.delimiter(.lineEnd), on: socket)
            operations.write(Data("behind"), on: socket)
        }
        if load.hasReads { try await eventually("ten bytes are there") { socket.readProgress?.bytesDone == 10 } }
        if load.hasWrites { try await eventually("some is sent") { (socket.writeProgress?.bytesDone ?? 0) > 0 } }
    }

    /// Operations requested after the end complete immediately.
    private func askTooLate(_ operations: Operations, of socket: AsyncSocket) {
        operations.read(.anyBytes, on: socket)
        operations.write(Data("late"), on: socket)
        operations.write(Data(), on: socket)
    }

    @Test(arguments: Way.allCases, Load.allCases)
    func eachIsAnsweredOnceWhicheverWayTheConnectionEnds(_ way: Way, _ load: Load) async throws {
        for isSecure in [false, true] {
            if isSecure ? load == .startTLS : way == .closeNotify { continue }
            let mayEnd = try TestSignal()
            let steps: [ScriptedPeer.Step] = [.send("0123456789"), .wait(for: mayEnd)] + way.steps
            var (socket, recorder): (AsyncSocket?, Recorder) = try await established(steps, isSecure: isSecure)
            let operations = Operations()
            try await end(&socket, way, load, operations, mayEnd)
            let outcome = Outcome.failed(way.code(isSecure: isSecure))
            try await operations.expect(outcome, "\(isSecure)")
            guard let socket else { continue }
            _ = try await recorder.disconnected()
            let late = Operations()
            askTooLate(late, of: socket)
            try await late.expect(outcome, "late, \(isSecure)")
            await socket.settle()
            try await operations.expect(outcome, "after all, \(isSecure)")
            let again = Operations()
            again.startTLS(try TestCertificates.client(), on: socket)
            try await again.expect(outcome)
        }
    }

    /// Ends the connection while operations are queued.
    private func end(
        _ optional: inout AsyncSocket?, _ way: Way, _ load: Load, _ operations: Operations, _ mayEnd: TestSignal
    ) async throws {
        let socket = try #require(optional)
        switch way {
        // The operation that ends the connection is queued first, so that no other operation needs to have
        // started. It belongs to the delegate, because a task's read that times out does not close the
        // connection.
        case .readTimeout: socket.readData(toLength: 11, withTimeout: 0.05)
        case .tooLong: operations.read(.delimiter(.lineEnd), on: socket, maxLength: 5)
        case .writeTimeout: socket.write(Self.more, withTimeout: 0.05)
        case .fin, .closeNotify, .reset, .disconnect, .lastReference, .writeQueueFull, .badParameter:
            try await queue(load, operations, on: socket)
        }
        switch way {
        case .fin, .closeNotify, .reset:
            mayEnd.fire()
            operations.read(.length(1000), on: socket)
            // Reads what they leave at an orderly end. Unread bytes would delay the end.
            Operations().read(.anyBytes, on: socket)
        case .disconnect: socket.disconnect()
        case .lastReference: break
        case .readTimeout, .tooLong: operations.read(.anyBytes, on: socket)
        case .writeTimeout:
            operations.write(Data("waits"), on: socket)
            operations.read(.length(1000), on: socket)
        case .writeQueueFull:
            socket.maximumPendingWriteBytes = 10
            operations.write(Self.more, on: socket)
            socket.write(Data("one too many"), withTimeout: -1)
        case .badParameter: socket.readData(toLength: -1, withTimeout: -1, tag: 0)
        }
        if way == .lastReference { optional = nil }
    }
}
