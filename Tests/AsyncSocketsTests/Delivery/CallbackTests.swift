import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Calls that a delegate may make in a callback on the event loop.
@Suite(.timeLimit(.patient)) struct CallbackTests {
    @Test func whatWaitsIsKnownWithinTheCallbackThatQueuedIt() async throws {
        let peer = try ScriptedPeer.listening([.wait(for: TestSignal())])
        let chunk = Data(count: 1000)
        let counts = Locked<[Int]>([])
        let remainders = Locked<[Int]>([])
        let recorder = Recorder { socket, told in
            switch told {
            case .connected:
                for tag in 0..<20 where socket.pendingWriteByteCount < 10 * chunk.count {
                    socket.write(chunk, withTimeout: -1, tag: tag)
                    counts.withLock { $0.append(socket.pendingWriteByteCount) }
                }
            case .wrote: remainders.withLock { $0.append(socket.pendingWriteByteCount) }
            default: break
            }
        }
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        for tag in 0..<10 { #expect(try await recorder.wrote() == tag) }
        #expect(counts.withLock { $0 } == (1...10).map { $0 * chunk.count })
        #expect(remainders.withLock { $0.last } == 0)
        // Other threads see the change at the end of the turn.
        try await eventually("nothing waits") { socket.pendingWriteByteCount == 0 }
    }

    /// A message from another thread is pending meanwhile. The result must still reflect the new state.
    @Test func progressIsKnownInTheCallbackThoughAMessageWaits() async throws {
        let areQueued = try TestSignal()
        let peer = try ScriptedPeer.listening([.wait(for: areQueued), .send("abcdef"), .expectEnd])
        let progress = Locked<[OperationProgress?]>([])
        let recorder = Recorder { socket, told in
            guard case .read(_, tag: 1) = told else { return }
            let hasPosted = DispatchSemaphore(value: 0)
            Thread.detachNewThread {
                socket.readData(toLength: 1, withTimeout: .patient, tag: 3)
                hasPosted.signal()
            }
            hasPosted.wait()
            let now = socket.readProgress
            progress.withLock { $0.append(now) }
        }
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        socket.readData(toLength: 3, withTimeout: .patient, tag: 1)
        socket.readData(toLength: 10, withTimeout: .patient, tag: 2)
        areQueued.fire()
        #expect(try await recorder.readText() == "abc")
        try await eventually("the delegate has asked") { progress.withLock { $0.count } == 1 }
        #expect(progress.withLock { $0 }.map { $0?.tag } == [2])
        socket.disconnect()
    }

    /// `disconnect()` drops the write, which is larger than the kernel accepts, and releases its bytes.
    @Test func aDeallocatorMayUseTheSocket() async throws {
        let peer = try ScriptedPeer.listening([.wait(for: TestSignal())])
        let bytes = Locked<[UnsafeMutableRawPointer]>([])
        let deallocated = try TestSignal()
        let recorder = Recorder { socket, told in
            guard case .connected = told else { return }
            let place = UnsafeMutableRawPointer.allocate(byteCount: 1 << 24, alignment: 1)
            place.initializeMemory(as: UInt8.self, repeating: 0, count: 1 << 24)
            bytes.withLock { $0.append(place) }
            let data = Data(
                bytesNoCopy: place, count: 1 << 24,
                deallocator: .custom { place, _ in
                    for tag in 0..<8 { socket.write(Data(count: 10), withTimeout: -1, tag: tag) }
                    place.deallocate()
                    deallocated.fire()
                })
            socket.write(data, withTimeout: -1, tag: 0)
            socket.disconnect()
        }
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        try await deallocated.wait()
        let told = await recorder.next()
        guard case .disconnected(nil) = told else { throw Unexpected(description: "\(told)") }
        #expect(socket.pendingWriteByteCount == 0)
        withExtendedLifetime(peer) {}
    }

    @Test func whoLetsGoOfTheSocketInACallbackHearsNothingMore() async throws {
        let go = try TestSignal()
        let peer = try ScriptedPeer.listening([.wait(for: go), .send("ab"), .expectEnd])
        let holder = Locked<AsyncSocket?>(nil)
        let recorder = Recorder { _, told in
            if case .read(_, tag: 1) = told { _ = holder.withLock { holder in holder.take() } }
        }
        var socket: AsyncSocket? = AsyncSocket(inlineDelegate: recorder)
        try socket?.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        for tag in 1...2 { socket?.readData(toLength: 1, withTimeout: .patient, tag: tag) }
        holder.withLock { $0 = socket }
        socket = nil
        go.fire()
        #expect(try await recorder.readText() == "a")
        // A close, or a reset if the second byte was unread.
        _ = try? await peer.finish()
        #expect(recorder.unread.isEmpty)
    }
}
