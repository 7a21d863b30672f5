import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The writes for tasks.
@Suite(.timeLimit(.patient)) struct AsyncWriteTests {
    /// More than the kernel buffers of both sides hold.
    private static let more = pattern(16 << 20)

    @Test(arguments: [false, true], [0, 1, 65_537, 16 << 20])
    func everyKindOfBytesArrives(isSecure: Bool, count: Int) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let data = pattern(count)
        let folder = try TemporaryFolder()
        try data.write(to: folder.url("file"))
        let received = Task { try await pair.server.readToEnd(maxLength: .max) }
        try await pair.client.write(data)
        try await pair.client.write(Array(data))
        try await pair.client.write(data[data.startIndex..<data.endIndex])
        try await pair.client.write("Grüße" + String(repeating: "x", count: count))
        try await pair.client.write(contentsOfFile: folder.path("file"))
        try await pair.client.write(contentsOfFile: folder.path("file"), offset: count / 2, length: count / 4)
        try await pair.client.close()
        let text = Data(("Grüße" + String(repeating: "x", count: count)).utf8)
        let part = data.dropFirst(count / 2).prefix(count / 4)
        #expect(try await received.value == data + data + data + text + data + part)
    }

    @Test(arguments: [false, true])
    func aTextInPiecesOfOtherTextArrives(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.expect("bc日"), .expectEnd], isSecure: isSecure)
        let text = "abc日本"
        // A string copied from a substring.
        try await socket.write(String(text.dropFirst().dropLast()))
        try await socket.close()
        _ = try await peer.finish()
    }

    // MARK: - Order

    /// Each message contains its writer and its number. Messages must not be interleaved.
    @Test(arguments: [false, true])
    func severalWritersKeepWholeMessagesAndTheirOrder(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, writers, rounds) = (pair.client, 8, 200)
        let received = Task {
            var next = [Int](repeating: 0, count: writers)
            for try await line in pair.server.lines {
                let words = line.split(separator: " ").map(String.init)
                let writer = try #require(Int(words[0]))
                #expect(Int(words[1]) == next[writer])
                #expect(words[2].utf8.count == next[writer] * 37 % 5000 + 1)
                next[writer] += 1
            }
            return next
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<writers {
                group.addTask {
                    for round in 0..<rounds {
                        try await client.write("\(writer) \(round) \(String(repeating: "x", count: round * 37 % 5000 + 1))\n")
                    }
                }
            }
            try await group.waitForAll()
        }
        try await client.close()
        #expect(try await received.value == [Int](repeating: rounds, count: writers))
    }

    @Test(arguments: [false, true])
    func writesThatWaitAreSentInTheOrderInWhichTheyAsked(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        let large = Task.immediate { try await client.write(Self.more) }
        let small = (0..<100).map { number in Task.immediate { try await client.write("\(number)\n") } }
        let closing = Task.immediate { try await client.close() }
        #expect(try await pair.server.read(exactly: Self.more.count) == Self.more)
        var lines: [String] = []
        for try await line in pair.server.lines { lines.append(line) }
        #expect(lines == (0..<100).map { "\($0)" })
        for write in [large] + small { #expect(await write.outcome == .served) }
        try await closing.value
    }

    // MARK: - Back-pressure

    @Test(arguments: [false, true])
    func aWriteWaitsUntilThePeerReads(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        #expect(await outcome { try await client.write(Self.more, timeout: .milliseconds(50)) } == .failed(.writeTimeout))
        // It has started and continues. Those behind it have not started, so they time out and are removed.
        #expect(await outcome { try await client.write("never", timeout: .milliseconds(1)) } == .failed(.writeTimeout))
        #expect(await outcome { try await client.write("never", timeout: .zero) } == .failed(.writeTimeout))
        #expect(await outcome { try await client.write("never", timeout: .seconds(-1)) } == .failed(.writeTimeout))
        let last = Task.immediate { try await client.write("last") }
        #expect(try await pair.server.read(exactly: Self.more.count) == Self.more)
        #expect(await last.outcome == .served)
        try await client.close()
        #expect(try await pair.server.readToEnd() == Data("last"))
    }

    @Test(arguments: [false, true])
    func aboveTheHighWaterMarkAWriteWaits(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        client.writeHighWaterMark = 1 << 20
        let large = Task.immediate { try await client.write(Self.more, timeout: .milliseconds(50)) }
        let small = Task.immediate { try await client.write("small", timeout: .milliseconds(50)) }
        #expect(await large.outcome == .failed(.writeTimeout))
        #expect(await small.outcome == .failed(.writeTimeout))
        let waiting = Task.immediate { try await client.write(Data(count: 100)) }
        #expect(try await pair.server.read(exactly: Self.more.count) == Self.more)
        #expect(await waiting.outcome == .served)
        #expect(try await pair.server.read(exactly: 100) == Data(count: 100))
    }

    @Test(arguments: [false, true])
    func aTaskMayFillTheQueueUpToTheHighWaterMark(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        // The peer does not read yet, and the high-water mark is larger than all messages together.
        client.writeHighWaterMark = 32 << 20
        let messages = (0..<200).map { Data(repeating: UInt8($0), count: 100_000) }
        for message in messages { try await client.write(message) }
        #expect(client.isConnected)
        #expect(try await pair.server.read(exactly: 20_000_000) == messages.reduce(Data(), +))
    }

    @Test(arguments: [false, true])
    func aHighWaterMarkThatComesLaterReleasesTheWriters(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        let writes = [Self.more, Data("one"), Data("two")].map { data in Task.immediate { try await client.write(data) } }
        client.writeHighWaterMark = 32 << 20
        for write in writes { #expect(await write.outcome == .served) }
        try await eventually("the progress is published") { client.writeProgress != nil }
        #expect(try await pair.server.read(exactly: Self.more.count + 6) == Self.more + Data("onetwo"))
    }

    /// The write has already returned, so only the end of the scope can report the error.
    @Test(arguments: [false, true])
    func bytesThatAreLostBelowTheMarkAreAnErrorOfTheScope(isReset: Bool) async throws {
        let listener = try RawSocket.listening()
        let address = try listener.localAddress
        let error = try await #require(throws: AsyncSocketError.self) {
            try await AsyncSocket.withConnection(to: address, configure: { $0.writeHighWaterMark = 64 << 20 }) { socket in
                var peer: RawSocket? = try listener.accepted()
                try await socket.write(Self.more)
                try await eventually("the progress is published") { socket.pendingWriteByteCount > 0 }
                if isReset {
                    peer?.resetWhenClosed()
                    peer = nil
                    try await eventually("the connection has ended") { !socket.isConnected }
                } else {
                    socket.disconnect()
                }
            }
        }
        #expect(error.code == (isReset ? .connectionReset : .closed))
    }

    // MARK: - Half close

    @Test(arguments: [false, true])
    func afterThePeersLastByteItStillGetsOurAnswer(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket(
            [.send("question")] + .orderlyEnd(isSecure: isSecure) + [.expect("answer"), .expectEnd], isSecure: isSecure)
        #expect(try await socket.readToEnd() == Data("question"))
        #expect(try await socket.read() == nil)
        try await socket.write("ans")
        #expect(try await socket.readLine() == nil)
        try await socket.write("wer")
        try await socket.close()
        _ = try await peer.finish()
    }

    @Test(arguments: [false, true])
    func afterOurLastByteWeStillGetThePeersAnswer(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket(
            [.expect("question"), .expectEnd, .send("answer")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        try await socket.write("question")
        socket.closeWriteStream()
        #expect(await outcome { try await socket.write("more") } == .failed(.closed))
        #expect(try await socket.readToEnd() == Data("answer"))
        #expect(try await socket.read() == nil)
        // Both sides have closed.
        try await eventually("the connection is over") { !socket.isConnected }
        #expect(await outcome { try await socket.write("more") } == .failed(.closedByPeer))
    }

    // MARK: - Close

    @Test(arguments: [false, true])
    func closeWaitsUntilEveryByteIsSent(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let client = pair.client
        try await pair.server.write("unread")
        let writes = [Self.more, Data("end")].map { data in Task.immediate { try await client.write(data) } }
        let read = Task.immediate { try await client.read(exactly: 100) }
        let closing = Task.immediate { try await client.close() }
        #expect(await outcome { try await client.write("late") } == .failed(.closed))
        #expect(await outcome { try await client.read() } == .failed(.closed))
        #expect(client.isConnected)
        #expect(try await pair.server.readToEnd(maxLength: .max) == Self.more + Data("end"))
        try await closing.value
        #expect(!client.isConnected)
        for write in writes { #expect(await write.outcome == .served) }
        #expect(await read.outcome == .failed(.closed))
        try await client.close()
    }

    @Test(arguments: [false, true])
    func closeDoesNotWaitForeverForAPeerThatNeverReads(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.wait(for: try TestSignal())], isSecure: isSecure)
        let writes = [Self.more, Data("end")].map { data in Task.immediate { try await socket.write(data) } }
        #expect(await outcome { try await socket.close(timeout: .milliseconds(50)) } == .failed(.writeTimeout))
        #expect(!socket.isConnected)
        for write in writes { #expect(await write.outcome == .failed(.writeTimeout)) }
        #expect(await outcome { try await socket.write("late") } == .failed(.writeTimeout))
        peer.stop()
    }

    @Test(arguments: [false, true])
    func aCancelledTaskClosesAtOnce(isSecure: Bool) async throws {
        for isCancelledBefore in [false, true] {
            let (socket, peer) = try await connectedSocket([.wait(for: try TestSignal())], isSecure: isSecure)
            let write = Task.immediate { try await socket.write(Self.more) }
            let closing = Task.immediate {
                if isCancelledBefore { withUnsafeCurrentTask { $0?.cancel() } }
                try await socket.close(timeout: .seconds(3600))
            }
            closing.cancel()
            #expect(await closing.outcome == .cancelled)
            #expect(!socket.isConnected)
            #expect(await write.outcome == .failed(.closed))
            peer.stop()
        }
    }

    @Test(arguments: [false, true])
    func severalTasksMayClose(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.expect("bye"), .expectEnd], isSecure: isSecure)
        try await socket.write("bye")
        let closings = (0..<5).map { _ in Task.immediate { try await socket.close() } }
        for closing in closings { try await closing.value }
        #expect(!socket.isConnected)
        _ = try await peer.finish()
    }

    // MARK: - The caller's mistakes

    @Test(arguments: [false, true])
    func aFileThatCannotBeSentChangesNothing(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.expect("ok")], isSecure: isSecure)
        let folder = try TemporaryFolder()
        try Data("0123456789").write(to: folder.url("file"))
        let path = folder.path("file")
        #expect(await outcome { try await socket.write(contentsOfFile: folder.path("none")) } == .failed(.system))
        #expect(await outcome { try await socket.write(contentsOfFile: folder.path) } == .failed(.badParameter))
        #expect(await outcome { try await socket.write(contentsOfFile: path, offset: 11) } == .failed(.badParameter))
        #expect(await outcome { try await socket.write(contentsOfFile: path, offset: -1) } == .failed(.badParameter))
        #expect(await outcome { try await socket.write(contentsOfFile: path, length: 11) } == .failed(.badParameter))
        #expect(await outcome { try await socket.write(contentsOfFile: path, length: -1) } == .failed(.badParameter))
        try await socket.write("ok")
        _ = try await peer.finish()
    }

    @Test(arguments: [false, true])
    func aSocketIsUsedAgainByConnectingAgain(isSecure: Bool) async throws {
        let settings = try TestCertificates.server()
        let (socket, _) = try await connectedSocket([.send("one\r\n"), .expectEnd], isSecure: isSecure)
        #expect(try await socket.readLine() == "one")
        for word in ["two", "three", "four"] {
            try await socket.close()
            let steps: [ScriptedPeer.Step] = [.send(word + "\r\n"), .expectEnd]
            let peer = try ScriptedPeer.listening((isSecure ? [.startTLS(settings)] : []) + steps)
            try await socket.connect(
                to: "127.0.0.1", port: peer.port, tls: isSecure ? TestCertificates.client() : nil)
            #expect(socket.isSecure == isSecure)
            #expect(try await socket.readLine() == word)
            #expect(
                await outcome { try await socket.connect(to: "127.0.0.1", port: peer.port) } == .failed(.badConfiguration))
            #expect(socket.isConnected)
        }
    }
}
