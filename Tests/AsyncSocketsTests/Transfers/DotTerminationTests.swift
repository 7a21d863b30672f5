import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Bodies terminated by a line with a single dot.
@Suite(.timeLimit(.patient)) struct DotTerminationTests {
    // MARK: - Values

    /// Passes a text in chunks. Returns the content and the rest after the body, or `nil` if it did not end.
    private func unstuffed(_ text: Data, chunk: Int) -> (content: Data, rest: Data)? {
        var (body, content, pending) = (DotUnstuffing(), Data(), [UInt8]())
        var source = Array(text)[...]
        while !body.isComplete, !source.isEmpty {
            pending += source.prefix(chunk)
            source = source.dropFirst(chunk)
            let count = pending.withUnsafeBytes { body.take($0, into: &content) }
            pending.removeFirst(count)
        }
        return body.isComplete ? (content, Data(pending + source)) : nil
    }

    /// The same from the definition: CR LF terminates a line.
    private func reference(_ text: String) -> (content: Data, rest: Data)? {
        var (content, rest) = ("", Substring(text))
        while let end = rest.unicodeScalars.firstRange(of: "\r\n".unicodeScalars) {
            let line = rest.unicodeScalars[..<end.lowerBound]
            rest = Substring(rest.unicodeScalars[end.upperBound...])
            if line.elementsEqual(".".unicodeScalars) { return (Data(content.utf8), Data(rest.utf8)) }
            content.unicodeScalars += line.first == "." ? line.dropFirst() : line
            content.unicodeScalars += "\r\n".unicodeScalars
        }
        return nil
    }

    @Test func aBodyEndsOnlyWithItsLine() {
        for (text, content) in [
            (".\r\n", ""), ("a\r\n.\r\n", "a\r\n"), ("..\r\n.\r\n", ".\r\n"), (".a\r\n.\r\n", "a\r\n"),
            ("...\r\n.\r\n", "..\r\n"),
            ("a.\r\n.\r\n", "a.\r\n"), ("\r\n.\r\n", "\r\n"), ("a\n.\n\r\n.\r\n", "a\n.\n\r\n"),
            ("a\r.\r\r\n.\r\n", "a\r.\r\r\n"),
            ("a\n.\r\n.\r\n", "a\n.\r\n"), (".\r.\r\n.\r\n", "\r.\r\n"), ("a\r\n.\n.\r\n.\r\n", "a\r\n\n.\r\n"),
        ] {
            let result = unstuffed(Data((text + "NEXT\r\n").utf8), chunk: .max)
            #expect(result?.content == Data(content.utf8), "\(text.debugDescription)")
            #expect(result?.rest == Data("NEXT\r\n".utf8), "\(text.debugDescription)")
        }
    }

    /// Random texts, split into chunks of every small size.
    @Test func theContentDoesNotDependOnTheChunks() {
        var dice = SeededGenerator(seed: 39)
        for _ in 0..<2_000 {
            let characters = (0..<Int.random(in: 0...24, using: &dice)).map { _ in
                [".", "\r", "\n", "\r\n", "\r\n.", "a"].randomElement(using: &dice) ?? ""
            }
            let text = characters.joined() + "\r\n.\r\nrest"
            let expected = reference(text)
            for chunk in [1, 2, 3, 5, .max] {
                let result = unstuffed(Data(text.utf8), chunk: chunk)
                #expect(result?.content == expected?.content, "\(text.debugDescription) by \(chunk)")
                #expect(result?.rest == expected?.rest, "\(text.debugDescription) by \(chunk)")
            }
        }
    }

    /// No content can terminate its own body early.
    @Test func stuffedContentComesBackWithItsLines() {
        var dice = SeededGenerator(seed: 40)
        for _ in 0..<2_000 {
            let pieces = (0..<Int.random(in: 0...24, using: &dice)).map { _ in
                [".", "\r", "\n", "\r\n", "a", "\r\n.\r\n", "\n.\n"].randomElement(using: &dice) ?? ""
            }
            var (stuffing, encoded) = (DotStuffing(), Data())
            for piece in pieces { encoded += Array(piece.utf8).withUnsafeBytes { stuffing.encode($0) } }
            encoded += stuffing.end
            let text = String(decoding: encoded, as: UTF8.self)
            let bare = text.unicodeScalars.split(separator: "\r\n".unicodeScalars).joined()
            #expect(!bare.contains("\r") && !bare.contains("\n"), "\(text.debugDescription)")
            let content = pieces.joined().unicodeScalars.split(separator: "\r\n".unicodeScalars, omittingEmptySubsequences: false)
                .map { $0.map { $0 == "\r" || $0 == "\n" ? "\r\n" : String($0) }.joined() }.joined(separator: "\r\n")
            let isEnded = content.isEmpty || content.hasSuffix("\r\n")
            let result = unstuffed(encoded + Data("rest".utf8), chunk: 7)
            #expect(result?.content == Data((content + (isEnded ? "" : "\r\n")).utf8), "\(pieces.joined().debugDescription)")
            #expect(result?.rest == Data("rest".utf8))
        }
    }

    // MARK: - Sockets

    private let message = "From: a\r\n\r\n.hidden\r\n.\r\nlast"

    @Test(arguments: [false, true], [1, 1_000_000]) func aBodyArrives(isSecure: Bool, repetitions: Int) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let folder = try TemporaryFolder()
        let count = repetitions == 1 ? 1 : 200_000
        let content = Data(String(repeating: message + "\n", count: count).utf8)
        let expected = Data(String(repeating: message + "\r\n", count: count).utf8)
        try content.write(to: folder.url("source"))
        let (client, source) = (pair.client, folder.path("source"))
        let sending = Task {
            try await client.writeDotTerminated(content)
            try await client.write("NEXT\r\n")
            try await client.output.writeDotTerminated(contentsOfFile: source)
            try await client.write("LAST\r\n")
        }
        #expect(try await pair.server.input.readDotTerminated(maxLength: expected.count) == expected)
        #expect(try await pair.server.readLine() == "NEXT")
        let length = try await pair.server.readDotTerminated(toFile: folder.path("received"), maxLength: expected.count)
        #expect(length == expected.count)
        #expect(try Data(contentsOf: folder.url("received")) == expected)
        #expect(try await pair.server.readLine() == "LAST")
        try await sending.value
        #expect(try folder.names.sorted() == ["received", "source"])
    }

    @Test func anEmptyBodyArrives() async throws {
        let pair = try await SocketPair()
        try await pair.client.writeDotTerminated(Data())
        #expect(try await pair.server.readDotTerminated().isEmpty)
        try await pair.client.write("NEXT\r\n")
        #expect(try await pair.server.readLine() == "NEXT")
    }

    /// Each byte arrives separately, and the next command stays unread.
    @Test func aBodyArrivesByteByByte() async throws {
        let text = "a\r\n..b\r\n.\r\nQUIT\r\n"
        let steps = text.utf8.map { ScriptedPeer.Step.send(String(decoding: [$0], as: UTF8.self)) }
        let (socket, peer) = try await connectedSocket(steps)
        #expect(try await socket.readDotTerminated() == Data("a\r\n.b\r\n".utf8))
        #expect(try await socket.readLine() == "QUIT")
        _ = try await peer.finish()
    }

    /// What follows must never be read as a command.
    @Test(arguments: [false, true]) func aBodyThatIsTooLongEndsTheConnection(isFile: Bool) async throws {
        let (pair, folder) = (try await SocketPair(), try TemporaryFolder())
        try await pair.client.write("12345\r\n\(message)\r\n.\r\nQUIT\r\n")
        let error = await #expect(throws: AsyncSocketError.self) {
            if isFile {
                try await pair.server.readDotTerminated(toFile: folder.path("received"), maxLength: 6)
            } else {
                _ = try await pair.server.readDotTerminated(maxLength: 6)
            }
        }
        #expect(error?.code == .readMaxedOut)
        #expect(await outcome { try await pair.server.read() } == .failed(.readMaxedOut))
        #expect(try folder.names.isEmpty)
    }

    /// Each segment is shorter than the limit. The second one arrives after the first has been consumed.
    @Test(arguments: [false, true]) func theLimitOfABodyCoversAllItsSegments(isFile: Bool) async throws {
        let (pair, folder) = (try await SocketPair(), try TemporaryFolder())
        let (server, path) = (pair.server, folder.path("received"))
        let reading = Task {
            if isFile {
                try await server.readDotTerminated(toFile: path, maxLength: 10)
            } else {
                _ = try await server.readDotTerminated(maxLength: 10)
            }
        }
        try await pair.client.write("12345\r\n")
        try await server.turn("the first segment is consumed") { connection in
            connection.data.carried.received == 7 && connection.data.reads.preBuffer.isEmpty
        }
        // If the bytes arrive one by one, the server resets the connection before the last one.
        let written = await outcome { try await pair.client.write("67890\r\n.\r\n") }
        #expect(written == .served || written == .failed(.connectionReset))
        #expect(await reading.outcome == .failed(.readMaxedOut))
        #expect(await outcome { try await server.read(timeout: .patient) } == .failed(.readMaxedOut))
        #expect(try folder.names.isEmpty)
    }

    @Test(arguments: [false, true]) func aBodyThatIsCancelledEndsTheConnection(isFile: Bool) async throws {
        let (pair, folder) = (try await SocketPair(), try TemporaryFolder())
        let (server, path) = (pair.server, folder.path("received"))
        try await pair.client.write("DATA that is long enough\r\nto be consumed\r\n")
        let reading = Task {
            if isFile {
                try await server.readDotTerminated(toFile: path, maxLength: 1 << 20)
            } else {
                _ = try await server.readDotTerminated()
            }
        }
        try await server.turn("the first lines are consumed") { connection in
            connection.data.carried.received == 42 && connection.data.reads.preBuffer.isEmpty
        }
        reading.cancel()
        await #expect(throws: CancellationError.self) { try await reading.value }
        #expect(await outcome { try await server.read() } != .served)
        #expect(try folder.names.isEmpty)
    }

    @Test func aBodyWithoutItsEndIsAnError() async throws {
        let (pair, folder) = (try await SocketPair(), try TemporaryFolder())
        try await pair.client.write("a\r\n.\r")
        try await pair.client.close()
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.server.readDotTerminated(toFile: folder.path("received"), maxLength: 100)
        }
        #expect(error?.code == .closedByPeer)
        #expect(try folder.names.isEmpty)
    }

    /// No bytes have been read, so the program can still reply.
    @Test func aFileThatCannotBeCreatedLeavesTheConnectionOpen() async throws {
        let pair = try await SocketPair()
        try await pair.client.write("a\r\n.\r\nQUIT\r\n")
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.server.readDotTerminated(toFile: "/nowhere/at/all", maxLength: 100)
        }
        #expect(error?.code == .system && error?.errno == ENOENT)
        #expect(try await pair.server.readDotTerminated() == Data("a\r\n".utf8))
        #expect(try await pair.server.readLine() == "QUIT")
    }

    /// The peer does not read, so the body times out. Later writes would become part of the body.
    @Test func aBodyThatIsNotSentInTimeEndsTheConnection() async throws {
        let (pair, folder) = (try await SocketPair(), try TemporaryFolder())
        try Data(count: 32 << 20).write(to: folder.url("source"))
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.client.writeDotTerminated(contentsOfFile: folder.path("source"), timeout: .milliseconds(200))
        }
        #expect(error?.code == .writeTimeout)
        #expect(await outcome { try await pair.client.write("QUIT\r\n") } != .served)
    }

    /// The peer does not read. A write that has started would otherwise continue, and one that has not
    /// started would be removed, but neither may leave a connection on which the program could send a
    /// command.
    @Test(arguments: [false, true]) func aSentBodyThatIsCancelledEndsTheConnection(hasStarted: Bool) async throws {
        let pair = try await SocketPair()
        let (client, bytes) = (pair.client, Data(count: 32 << 20))
        let earlier = Task { if !hasStarted { try await client.write(bytes) } }
        if !hasStarted { try await eventually("the kernel is full") { client.pendingWriteByteCount > 0 } }
        let writing = Task { try await client.writeDotTerminated(bytes) }
        try await eventually("the body is queued") { client.pendingWriteByteCount > (hasStarted ? 0 : bytes.count) }
        writing.cancel()
        #expect(await writing.outcome == .cancelled)
        try await eventually("the connection is closed") { !client.isConnected }
        #expect(await outcome { try await client.write("QUIT\r\n") } != .served)
        #expect(await outcome { try await pair.server.readDotTerminated(maxLength: .max) } != .served)
        #expect(await (earlier.outcome == .served) == hasStarted)
    }

    @Test func aFileThatBecomesShorterEndsTheConnection() async throws {
        let (pair, folder) = (try await SocketPair(), try TemporaryFolder())
        try Data(count: 32 << 20).write(to: folder.url("source"))
        let (client, path) = (pair.client, folder.path("source"))
        let sending = Task { try await client.writeDotTerminated(contentsOfFile: path) }
        _ = try await pair.server.read()
        #expect(truncate(path, 0) == 0)
        _ = try? await pair.server.readDotTerminated(maxLength: .max)
        let error = await #expect(throws: AsyncSocketError.self) { try await sending.value }
        #expect(error?.message.contains("became shorter") == true)
        #expect(await outcome { try await client.write("QUIT\r\n") } != .served)
    }
}
