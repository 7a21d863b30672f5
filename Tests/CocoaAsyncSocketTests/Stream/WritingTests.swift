import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct WritingTests {
    @Test func anEmptyWriteHasNoCallback() async throws {
        let wire = try await Wire.make()
        wire.client.write(nil, withTimeout: -1, tag: 1)
        wire.client.write(Data(), withTimeout: -1, tag: 2)
        wire.client.write(Data("x".utf8), withTimeout: -1, tag: 3)
        try await wire.atClient.wait(for: "wrote 3")
        #expect(wire.atClient.lines == ["connected to 127.0.0.1", "wrote 3"])
    }

    @Test func writesArriveInOrder() async throws {
        let wire = try await Wire.make()
        for tag in 0..<500 { wire.client.write(Data("\(tag),".utf8), withTimeout: -1, tag: tag) }
        wire.client.write(GCDAsyncSocket.lfData(), withTimeout: -1, tag: 500)
        wire.server.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: 1)
        try await eventually("all has arrived") { wire.atServer.bytes.last == 10 }
        #expect(wire.atServer.bytes == Data((0..<500).map { "\($0)," }.joined().utf8) + [10])
        try await wire.atClient.wait(for: "wrote 500")
        #expect(wire.atClient.lines.filter { $0.hasPrefix("wrote") } == (0...500).map { "wrote \($0)" })
    }

    @Test func aLargeWriteReportsPartialWrites() async throws {
        let wire = try await Wire.make()
        let size = 32 << 20
        wire.client.write(Data(count: size), withTimeout: -1, tag: 9)
        try await wire.atClient.wait(for: "part of write 9")
        var (tag, done, total): (Int, UInt, UInt) = (0, 0, 0)
        let part = wire.client.progress(ofWriteReturningTag: &tag, bytesDone: &done, total: &total)
        #expect(part >= 0 && part < 1 && tag == 9 && total == UInt(size) && done < total)
        wire.server.readData(toLength: UInt(size), withTimeout: -1, tag: 1)
        try await wire.atServer.wait(for: "read 1: \(size) bytes")
        try await wire.atClient.wait(for: "wrote 9")
    }

    @Test func disconnectAfterWritingSendsAllQueuedData() async throws {
        let wire = try await Wire.make()
        let size = 4 << 20
        wire.client.write(Data(count: size), withTimeout: -1, tag: 1)
        wire.client.disconnectAfterWriting()
        // No more writes are accepted.
        wire.client.write(Data("late".utf8), withTimeout: -1, tag: 2)
        wire.server.readData(toLength: UInt(size), withTimeout: -1, tag: 1)
        try await wire.atServer.wait(for: "read 1: \(size) bytes")
        #expect(try await wire.atClient.end() == nil)
        #expect(wire.atClient.has("wrote 1") && !wire.atClient.has("wrote 2"))
    }

    @Test func disconnectAfterReadingWaitsForPendingReads() async throws {
        let wire = try await Wire.make()
        wire.client.readData(toLength: 5, withTimeout: -1, tag: 1)
        wire.client.disconnectAfterReading()
        wire.server.write(Data("hello".utf8), withTimeout: -1, tag: 1)
        #expect(try await wire.atClient.end() == nil)
        #expect(wire.atClient.has("read 1: hello"))
    }

    @Test func disconnectAfterReadingAndWritingWaitsForPendingOperations() async throws {
        let wire = try await Wire.make()
        wire.client.readData(toLength: 5, withTimeout: -1, tag: 1)
        wire.client.write(Data("question".utf8), withTimeout: -1, tag: 2)
        wire.client.disconnectAfterReadingAndWriting()
        wire.server.readData(toLength: 8, withTimeout: -1, tag: 1)
        try await wire.atServer.wait(for: "read 1: question")
        #expect(wire.client.isConnected)
        wire.server.write(Data("reply".utf8), withTimeout: -1, tag: 1)
        #expect(try await wire.atClient.end() == nil)
        #expect(wire.atClient.has("read 1: reply") && wire.atClient.has("wrote 2"))
    }
}
