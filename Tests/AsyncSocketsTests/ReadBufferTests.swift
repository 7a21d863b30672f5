import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import Testing

/// Reads that fill the caller's own memory, and what a socket says of their progress.
@Suite(.timeLimit(.minutes(5))) struct ReadBufferTests {
    @Test func readsOfAllKindsLandAtTheirOffsets() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer(capacity: 4)
        link.client.readData(toLength: 3, withTimeout: 60, buffer: buffer, tag: 0)
        link.server.write(Data("abcdef\r\nrest"), withTimeout: 60, tag: 0)
        #expect(try await link.atClient.readText() == "abc")
        link.client.readData(to: .lineEnd, withTimeout: 60, buffer: buffer, bufferOffset: 3, tag: 1)
        #expect(try await link.atClient.readText() == "def\r\n")
        link.client.readData(withTimeout: 60, buffer: buffer, bufferOffset: 1, maxLength: 2, tag: 2)
        // As much of "re" as has come.
        let some = try await link.atClient.readText()
        #expect(some == "re" || some == "r")
        #expect(buffer.data == Data("a" + some + "bcdef\r\n".dropFirst(some.count)))
        #expect(buffer.count == 8)
    }

    @Test func aReadToALengthGrowsTheBufferPieceByPiece() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer()
        let expected = Data((0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        link.client.readData(toLength: expected.count, withTimeout: 60, buffer: buffer, tag: 0)
        link.server.write(expected, withTimeout: 60, tag: 0)
        let data = try await link.atClient.readData()
        #expect(data == expected)
        #expect(buffer.data == expected)
    }

    @Test func whatAReadBroughtOutlivesTheGrowthOfTheBuffer() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer(capacity: 2)
        link.client.readData(toLength: 2, withTimeout: 60, buffer: buffer, tag: 0)
        link.server.write(Data("ab" + String(repeating: "x", count: 100_000)), withTimeout: 60, tag: 0)
        let early = try await link.atClient.readData()
        link.client.readData(toLength: 100_000, withTimeout: 60, buffer: buffer, bufferOffset: 2, tag: 1)
        #expect(try await link.atClient.readData().count == 100_000)
        #expect(early == Data("ab"))
        buffer.removeAll()
        #expect(buffer.count == 0)
        #expect(early == Data("ab"))
    }

    @Test(arguments: [-1, 1])
    func anOffsetOutsideOfTheBufferIsTheCallersError(offset: Int) async throws {
        let link = try await Link.make()
        link.client.readData(withTimeout: 60, buffer: ReadBuffer(), bufferOffset: offset, tag: 0)
        #expect(try await link.atClient.disconnected()?.code == .badParameter)
    }

    // MARK: - Progress

    @Test func theProgressOfAReadAndOfAWriteCanBeAskedFor() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        #expect(link.client.readProgress == nil)
        link.client.readData(toLength: 10, withTimeout: 60, tag: 7)
        link.server.write(Data("abcd"), withTimeout: 60, tag: 0)
        try await link.atClient.readProgress(to: 4, tag: 7)
        let progress = try #require(link.client.readProgress)
        #expect((progress.tag, progress.bytesDone, progress.total) == (7, 4, 10))
        #expect(progress.fraction == 0.4)
        link.client.readData(to: .lineEnd, withTimeout: 60, tag: 8)
        link.server.write(Data("efghij" + "k"), withTimeout: 60, tag: 0)
        var told = await link.atClient.next()
        while case .readPartial(1...5, tag: 7) = told { told = await link.atClient.next() }
        guard case .read(_, tag: 7) = told else { throw Unexpected(description: "\(told)") }
        try await link.atClient.readProgress(to: 1, tag: 8)
        #expect(link.client.readProgress?.fraction == nil)
        #expect(link.client.readProgress?.bytesDone == 1)
    }

    @Test func aWriteThatWaitsForThePeerSaysHowFarItIs() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        #expect(link.client.writeProgress == nil)
        let size = 64 << 20
        link.client.write(Data(count: size), withTimeout: 60, tag: 9)
        guard case .wrotePartial(_, tag: 9) = await link.atClient.next() else { throw Unexpected(description: "no progress") }
        let progress = try #require(link.client.writeProgress)
        #expect(progress.tag == 9)
        #expect(progress.total == size)
        #expect(progress.bytesDone > 0 && progress.bytesDone < size)
        #expect(link.client.pendingWriteByteCount > 0)
        link.server.readData(toLength: size, withTimeout: 60, tag: 0)
        #expect(try await link.atServer.readData().count == size)
        while case .wrotePartial = await link.atClient.next() {}
        #expect(link.client.writeProgress == nil)
        #expect(link.client.pendingWriteByteCount == 0)
    }
}
