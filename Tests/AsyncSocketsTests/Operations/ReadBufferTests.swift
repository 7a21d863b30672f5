import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Reads into the caller's own buffer, and their progress.
@Suite(.timeLimit(.patient)) struct ReadBufferTests {
    @Test func readsOfAllKindsFillTheBufferAtTheirOffset() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer(capacity: 4)
        link.client.readData(toLength: 3, withTimeout: .patient, buffer: buffer, tag: 0)
        link.server.write(Data("abcdef\r\nrest"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "abc")
        link.client.readData(to: .lineEnd, withTimeout: .patient, buffer: buffer, bufferOffset: 3, tag: 1)
        #expect(try await link.atClient.readText() == "def\r\n")
        link.client.readData(withTimeout: .patient, buffer: buffer, bufferOffset: 1, maxLength: 2, tag: 2)
        // Returns the available part of "re".
        let some = try await link.atClient.readText()
        #expect(some == "re" || some == "r")
        #expect(buffer.data == Data("a" + some + "bcdef\r\n".dropFirst(some.count)))
        #expect(buffer.count == 8)
    }

    @Test func aReadOfAFixedLengthGrowsTheBuffer() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer()
        let expected = pattern(1_000_000)
        link.client.readData(toLength: expected.count, withTimeout: .patient, buffer: buffer, tag: 0)
        link.server.write(expected, withTimeout: .patient, tag: 0)
        let data = try await link.atClient.readData()
        #expect(data == expected)
        #expect(buffer.data == expected)
    }

    @Test func whatAReadBroughtOutlivesTheGrowthOfTheBuffer() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer(capacity: 2)
        link.client.readData(toLength: 2, withTimeout: .patient, buffer: buffer, tag: 0)
        link.server.write(Data("ab" + String(repeating: "x", count: 100_000)), withTimeout: .patient, tag: 0)
        let early = try await link.atClient.readData()
        link.client.readData(toLength: 100_000, withTimeout: .patient, buffer: buffer, bufferOffset: 2, tag: 1)
        #expect(try await link.atClient.readData().count == 100_000)
        #expect(early == Data("ab"))
        buffer.removeAll()
        #expect(buffer.count == 0)
        #expect(early == Data("ab"))
    }

    @Test(arguments: [-1, 1])
    func anOffsetOutsideOfTheBufferIsTheCallersError(offset: Int) async throws {
        let link = try await Link.make()
        link.client.readData(withTimeout: .patient, buffer: ReadBuffer(), bufferOffset: offset, tag: 0)
        #expect(try await link.atClient.disconnected()?.code == .badParameter)
    }

    /// Mutating the data changes only a copy, as for any other `Data`.
    @Test(arguments: [0, 3])
    func changingWhatAReadBroughtLeavesTheBufferAlone(offset: Int) async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer()
        let text = String(repeating: "abcdefghijklmnopqrstuvwxyz", count: 10)
        link.server.write(Data("123" + text), withTimeout: .patient, tag: 0)
        link.client.readData(toLength: 3, withTimeout: .patient, buffer: buffer, tag: 0)
        _ = try await link.atClient.readData()
        link.client.readData(toLength: text.utf8.count, withTimeout: .patient, buffer: buffer, bufferOffset: offset, tag: 1)
        var data = try await link.atClient.readData()
        let whole = buffer.data
        #expect(data.startIndex == 0 && data == Data(text))
        data[0] = 0
        data.append(0)
        data.replaceSubrange(1..<3, with: Data(count: 9))
        data.withUnsafeMutableBytes { (bytes: UnsafeMutableRawBufferPointer) in bytes[0] = 1 }
        #expect(buffer.data == whole)
        #expect(whole == Data("123".prefix(offset) + text))
    }

    @Test func whatAReadBroughtMayBeChangedWhenTheBufferIsGone() async throws {
        let link = try await Link.make()
        let text = String(repeating: "abcdefghijklmnopqrstuvwxyz", count: 10)
        link.server.write(Data(text), withTimeout: .patient, tag: 0)
        link.client.readData(toLength: text.utf8.count, withTimeout: .patient, buffer: ReadBuffer(capacity: 300), tag: 0)
        var data = try await link.atClient.readData()
        data.append(Data(repeating: 1, count: 1000))
        data[0] = 0
        #expect(data == Data([0]) + Data(text).dropFirst() + Data(repeating: 1, count: 1000))
    }

    /// Each read uses another offset, and its data does not change afterwards.
    @Test func whatManyReadsBroughtIsTheirsWhereverItLies() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer(capacity: 4096)
        let expected = Data((0..<3000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        link.server.write(expected, withTimeout: .patient, tag: 0)
        var pieces: [Data] = []
        for offset in stride(from: 0, to: expected.count, by: 20) {
            link.client.readData(toLength: 20, withTimeout: .patient, buffer: buffer, bufferOffset: offset, tag: offset)
            pieces.append(try await link.atClient.readData())
        }
        for index in pieces.indices { pieces[index][0] ^= 0xff }
        #expect(buffer.data == expected)
        for index in pieces.indices { pieces[index][0] ^= 0xff }
        #expect(pieces.reduce(Data(), +) == expected)
    }

    /// Inspecting the data does not copy it. The data stays where the read put it, and the next read uses the
    /// same memory.
    @Test func whoOnlyLooksGetsNoCopy() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer(capacity: 1 << 16)
        var places: Set<UnsafeRawPointer> = []
        for tag in 0..<10 {
            link.client.readData(toLength: 1 << 15, withTimeout: .patient, buffer: buffer, tag: tag)
            link.server.write(Data(repeating: UInt8(tag), count: 1 << 15), withTimeout: .patient, tag: tag)
            let data = try await link.atClient.readData()
            data.withUnsafeBytes { bytes in
                if let place = bytes.baseAddress { places.insert(place) }
            }
        }
        #expect(places.count == 1)
    }

    /// The offset was the end of the buffer when the read was queued. The removed bytes before it do not
    /// reappear.
    @Test func aGapInAnEmptiedBufferHasZerosAndNoOldBytes() async throws {
        let link = try await Link.make()
        let buffer = ReadBuffer()
        link.client.readData(toLength: 6, withTimeout: .patient, buffer: buffer, tag: 0)
        link.server.write(Data("secret"), withTimeout: .patient, tag: 0)
        #expect(try await link.atClient.readText() == "secret")
        link.client.readData(toLength: 3, withTimeout: .patient, buffer: buffer, bufferOffset: 6, tag: 1)
        buffer.removeAll()
        link.server.write(Data("new"), withTimeout: .patient, tag: 1)
        #expect(try await link.atClient.readText() == "new")
        #expect(buffer.data == Data(count: 6) + Data("new"))
    }

    /// Each read uses another offset, so the buffer moves to new memory several times. The program empties it
    /// after the bytes were stored and before they are delivered.
    @Test func aReadIsDeliveredWholeThoughItsBufferIsEmptiedAndMoves() {
        let buffer = ReadBuffer(capacity: 4096)
        var delivered: [(data: Data, text: String)] = []
        for offset in 0..<100 {
            let text = "the bytes of read \(offset)"
            Array(text.utf8).withUnsafeBytes { buffer.store($0, at: offset) }
            buffer.removeAll()
            delivered.append((buffer.view(at: offset, count: text.utf8.count), text))
            #expect(delivered[offset].data == Data(text))
            #expect(buffer.count == 0)
        }
    }

    // MARK: - Progress

    @Test func readProgressReportsTheCurrentRead() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        #expect(link.client.readProgress == nil)
        link.client.readData(toLength: 10, withTimeout: .patient, tag: 7)
        link.server.write(Data("abcd"), withTimeout: .patient, tag: 0)
        try await link.atClient.readProgress(to: 4, tag: 7)
        let progress = try #require(link.client.readProgress)
        #expect((progress.tag, progress.bytesDone, progress.total) == (7, 4, 10))
        #expect(progress.fraction == 0.4)
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 8)
        link.server.write(Data("efghij" + "k"), withTimeout: .patient, tag: 0)
        var told = await link.atClient.next()
        while case .readPartial(1...5, tag: 7) = told { told = await link.atClient.next() }
        guard case .read(_, tag: 7) = told else { throw Unexpected(description: "\(told)") }
        try await link.atClient.readProgress(to: 1, tag: 8)
        #expect(link.client.readProgress?.fraction == nil)
        #expect(link.client.readProgress?.bytesDone == 1)
    }

    @Test func writeProgressReportsTheCurrentWrite() async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        #expect(link.client.writeProgress == nil)
        let size = 64 << 20
        link.client.write(Data(count: size), withTimeout: .patient, tag: 9)
        guard case .wrotePartial(_, tag: 9) = await link.atClient.next() else { throw Unexpected(description: "no progress") }
        let progress = try #require(link.client.writeProgress)
        #expect(progress.tag == 9)
        #expect(progress.total == size)
        #expect(progress.bytesDone > 0 && progress.bytesDone < size)
        #expect(link.client.pendingWriteByteCount > 0)
        link.server.readData(toLength: size, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readData().count == size)
        while case .wrotePartial = await link.atClient.next() {}
        #expect(link.client.writeProgress == nil)
        #expect(link.client.pendingWriteByteCount == 0)
    }
}
