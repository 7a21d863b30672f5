import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct ReadingTests {
    /// Returns a socket connected to a scripted peer.
    private func connect(_ steps: [ScriptedPeer.Step]) throws -> (GCDAsyncSocket, Diary, ScriptedPeer) {
        let peer = try ScriptedPeer.listening(steps)
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        return (socket, diary, peer)
    }

    @Test func readsOfAllKindsCompleteInOrder() async throws {
        let (socket, diary, peer) = try connect([.send("4321line\r\nrest\0tail")])
        socket.readData(toLength: 4, withTimeout: -1, tag: 1)
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 2)
        socket.readData(to: GCDAsyncSocket.zeroData(), withTimeout: .patient, maxLength: 5, tag: 3)
        socket.readData(withTimeout: -1, buffer: nil, bufferOffset: 0, maxLength: 2, tag: 4)
        socket.readData(withTimeout: -1, tag: 5)
        try await diary.wait(for: "read 5: il")
        #expect(
            diary.lines == [
                "connected to 127.0.0.1", "read 1: 4321", "read 2: line\r\n", "read 3: rest\0", "read 4: ta", "read 5: il",
            ])
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func invalidReadsAreDroppedWithoutACallback() async throws {
        let (socket, diary, peer) = try connect([.send("abc")])
        let buffer = NSMutableData(length: 2)
        socket.readData(toLength: 0, withTimeout: -1, tag: 1)
        socket.readData(to: Data(), withTimeout: -1, tag: 2)
        socket.readData(to: nil as Data?, withTimeout: -1, tag: 3)
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, maxLength: 1, tag: 4)
        socket.readData(withTimeout: -1, buffer: buffer, bufferOffset: 3, tag: 5)
        socket.readData(toLength: 3, withTimeout: -1, tag: 6)
        try await diary.wait(for: "read 6: abc")
        #expect(diary.lines == ["connected to 127.0.0.1", "read 6: abc"] && socket.isConnected)
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func readsBeforeConnectingAreDropped() async throws {
        let peer = try ScriptedPeer.listening([.send("abc")])
        let diary = Diary()
        let socket = makeSocket(diary)
        socket.readData(withTimeout: -1, tag: 1)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
        socket.readData(toLength: 3, withTimeout: -1, tag: 2)
        try await diary.wait(for: "read 2: abc")
        #expect(!diary.has(prefix: "read 1"))
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func bytesAreStoredAtTheBufferOffsetAndTheBufferGrows() async throws {
        let (socket, diary, peer) = try connect([.send("1234ab\r\nxyzline\n")])
        let buffer = NSMutableData(data: Data("<>".utf8))
        socket.readData(toLength: 4, withTimeout: -1, buffer: buffer, bufferOffset: 1, tag: 1)
        try await diary.wait(for: "read 1: 1234")
        #expect(buffer as Data == Data("<1234".utf8))
        let other = NSMutableData(data: Data("..........".utf8))
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, buffer: other, bufferOffset: 2, tag: 2)
        try await diary.wait(for: "read 2: ab\r\n")
        // The buffer is never shortened below its original length.
        #expect(other as Data == Data("..ab\r\n....".utf8))
        let third = NSMutableData()
        socket.readData(withTimeout: -1, buffer: third, bufferOffset: 0, maxLength: 3, tag: 3)
        try await diary.wait(for: "read 3: xyz")
        #expect(third as Data == Data("xyz".utf8))
        socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, buffer: third, bufferOffset: 3, maxLength: 9, tag: 4)
        try await diary.wait(for: "read 4: line\n")
        #expect(third as Data == Data("xyzline\n".utf8))
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func allVariantsOfReadingIntoABufferWork() async throws {
        let (socket, diary, peer) = try connect([.send("a\nbb\nccc\nd")])
        let buffers = (0..<5).map { _ in NSMutableData() }
        socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, buffer: buffers[0], bufferOffset: 0, tag: 1)
        socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, buffer: buffers[1], bufferOffset: 0, maxLength: 3, tag: 2)
        socket.readData(toLength: 4, withTimeout: -1, buffer: buffers[2], bufferOffset: 0, tag: 3)
        socket.readData(withTimeout: -1, buffer: buffers[3], bufferOffset: 0, tag: 4)
        try await diary.wait(for: "read 4: d")
        #expect(buffers.map { $0 as Data } == ["a\n", "bb\n", "ccc\n", "d", ""].map { Data($0.utf8) })
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func tagsOfAnyValueAreReturnedUnchanged() async throws {
        let (socket, diary, peer) = try connect([.send("ab")])
        socket.readData(toLength: 1, withTimeout: -1, tag: .min)
        socket.readData(toLength: 1, withTimeout: -1, tag: .max)
        try await diary.wait(for: "read \(Int.max): b")
        #expect(diary.has("read \(Int.min): a"))
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func aMissingDelimiterAtTheLengthLimitClosesTheConnection() async throws {
        let (socket, diary, peer) = try connect([.send("0123456789"), .expectEnd])
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, maxLength: 8, tag: 1)
        #expect(try await diary.end()?.code == GCDAsyncSocketError.readMaxedOutError.rawValue)
        #expect(!diary.has(prefix: "read") && socket.isDisconnected)
        peer.stop()
    }

    @Test func aDelimiterThatEndsAtTheLimitIsFound() async throws {
        let (socket, diary, peer) = try connect([.send("012345\r\n")])
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, maxLength: 8, tag: 1)
        try await diary.wait(for: "read 1: 012345\r\n")
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func readProgressIncludesTheTag() async throws {
        let signal = try TestSignal()
        let (socket, diary, peer) = try connect([.send("12345"), .wait(for: signal), .send("67890")])
        socket.readData(toLength: 10, withTimeout: -1, tag: 42)
        var (tag, done, total): (Int, UInt, UInt) = (0, 0, 0)
        try await eventually("half of it is there") {
            socket.progress(ofReadReturningTag: &tag, bytesDone: &done, total: &total) == 0.5
        }
        #expect(tag == 42 && done == 5 && total == 10)
        try await diary.wait(for: "part of read 42: 5")
        signal.fire()
        try await diary.wait(for: "read 42: 1234567890")
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func manyReadsAreServedFromOneBlock() async throws {
        let text = (0..<2000).map { "\($0)\n" }.joined()
        let (socket, diary, peer) = try connect([.send(text)])
        for tag in 0..<2000 { socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: tag) }
        try await diary.wait(for: "read 1999: 1999\n")
        #expect(diary.lines.filter { $0.hasPrefix("read") } == (0..<2000).map { "read \($0): \($0)\n" })
        socket.disconnect()
        _ = try await peer.finish()
    }

    @Test func remainingBytesAreReturnedByTheNextRead() async throws {
        let (socket, diary, peer) = try connect([.send("header\r\n\r\nbody")])
        diary.reaction = { line, socket in
            if line.hasPrefix("read 1") { socket.readData(toLength: 4, withTimeout: -1, tag: 2) }
        }
        socket.readData(to: Data("\r\n\r\n".utf8), withTimeout: -1, tag: 1)
        try await diary.wait(for: "read 2: body")
        socket.disconnect()
        _ = try await peer.finish()
    }
}
