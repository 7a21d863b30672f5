import AsyncSocketsTesting
import Foundation
import Glibc
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A write from one of the program's own threads wakes the loop once. The loop calls the inline delegate in a
/// single turn.
@Suite(.timeLimit(.patient)) struct HandOverTests {
    private static let count = 2_000

    /// Calls `write` repeatedly, each time after the completion of the previous one is delivered and the turn
    /// is free. The loop shares a processor with this thread, so once woken it runs immediately, even if the
    /// thread is still inside the turn.
    ///
    /// - Returns: The number of turns for which the loop was woken.
    private func turns(
        on loop: SocketEventLoop, after isDelivered: DispatchSemaphore, whenFree waitForTurn: @escaping @Sendable () -> Void,
        _ write: @escaping @Sendable (Int) -> Void
    ) async -> Int {
        await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                let one = ProcessorSet.ofThread.first
                one.confineThread()
                let all = loop.call { () -> ProcessorSet in
                    defer { one.confineThread() }
                    return .ofThread
                }
                let before = loop.turnCount
                for tag in 0..<Self.count {
                    waitForTurn()
                    write(tag)
                    isDelivered.wait()
                }
                waitForTurn()
                let turns = loop.turnCount - before
                loop.call { all.confineThread() }
                continuation.resume(returning: turns)
            }
        }
    }

    @Test func aWriteTakesOneTurnOfTheLoop() async throws {
        let isDelivered = DispatchSemaphore(value: 0)
        let recorder = Recorder { _, told in if case .wrote = told { isDelivered.signal() } }
        let socket = AsyncSocket(inlineDelegate: recorder)
        let loop = try SocketEventLoop()
        socket.stay(on: loop)
        let listener = try RawSocket.listening(waitLimit: .patient)
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        let peer = try listener.accepted()
        try await recorder.connected()
        let connection = try #require(socket.connection)
        let turns = await turns(on: loop, after: isDelivered, whenFree: { connection.waitForTurn() }) { tag in
            socket.write(Data([1]), tag: tag)
        }
        #expect(turns <= Self.count)
        for tag in 0..<Self.count { #expect(try await recorder.wrote() == tag) }
        #expect(try peer.receive(atLeast: Self.count).utf8.count == Self.count)
        socket.disconnect()
    }

    @Test func aDatagramTakesOneTurnOfTheLoop() async throws {
        let isDelivered = DispatchSemaphore(value: 0)
        let recorder = DatagramRecorder { _, told in if case .sent = told { isDelivered.signal() } }
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        let loop = try SocketEventLoop()
        socket.stay(on: loop)
        let peer = try AsyncUDPSocket.bound()
        try socket.connect(toAddress: try peer.address)
        _ = try await recorder.connected()
        let connection = try #require(socket.connection)
        let turns = await turns(on: loop, after: isDelivered, whenFree: { connection.waitForTurn() }) { tag in
            socket.send(Data([1]), withTimeout: -1, tag: tag)
        }
        #expect(turns <= Self.count)
        for tag in 0..<Self.count { #expect(try await recorder.sent() == tag) }
        socket.disconnect()
        peer.disconnect()
    }
}

extension TurnOwner {
    fileprivate func waitForTurn(_ turn: borrowing SocketTurn<Message>) {
        while !turn.enterIfFree() { sched_yield() }
        turn.leaveOrDrain(self)
    }
}

extension StreamConnection {
    fileprivate func waitForTurn() { waitForTurn(turn) }
}

extension DatagramConnection {
    fileprivate func waitForTurn() { waitForTurn(turn) }
}

extension SocketEventLoop {
    /// Calls `body` on the loop, and waits for its result.
    fileprivate func call<Value: Sendable>(_ body: @escaping @Sendable () -> Value) -> Value {
        let (result, hasReturned) = (Locked<Value?>(nil), DispatchSemaphore(value: 0))
        run {
            let value = body()
            result.withLock { $0 = value }
            hasReturned.signal()
        }
        while true {
            hasReturned.wait()
            if let value = result.withLock({ $0 }) { return value }
        }
    }
}

/// The processors on which a thread may run, one bit each.
private struct ProcessorSet: Sendable {
    // The headers declare these two only under _GNU_SOURCE.
    private typealias Call = @convention(c) (pid_t, Int, UnsafeMutableRawPointer) -> Int32

    private static func call(_ name: String, _ set: inout [UInt64]) {
        let call = unsafeBitCast(dlsym(nil, name), to: Call.self)
        let answer = set.withUnsafeMutableBytes { bytes in bytes.baseAddress.map { call(0, bytes.count, $0) } }
        precondition(answer == 0, name)
    }

    private var bits = Array(repeating: UInt64(0), count: 16)

    /// The processors of this thread.
    static var ofThread: ProcessorSet {
        var set = ProcessorSet()
        call("sched_getaffinity", &set.bits)
        return set
    }

    /// Only the first of these processors.
    var first: ProcessorSet {
        var set = ProcessorSet()
        if let word = bits.firstIndex(where: { $0 != 0 }) { set.bits[word] = bits[word] & (~bits[word] &+ 1) }
        return set
    }

    /// Restricts this thread to these processors.
    func confineThread() {
        var bits = bits
        Self.call("sched_setaffinity", &bits)
    }
}
