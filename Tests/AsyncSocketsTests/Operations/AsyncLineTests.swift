import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Lines and sequences.
@Suite(.timeLimit(.patient)) struct AsyncLineTests {
    struct Sample: Sendable, CustomTestStringConvertible {
        let bytes: String
        let lines: [String]
        var testDescription: String { bytes.debugDescription }
    }

    static let samples = [
        Sample(bytes: "", lines: []),
        Sample(bytes: "\n", lines: [""]),
        Sample(bytes: "\r\n", lines: [""]),
        Sample(bytes: "\r", lines: ["\r"]),
        Sample(bytes: "one\r\ntwo\nthree", lines: ["one", "two", "three"]),
        Sample(bytes: "a\rb\r\nc\r\r\nd\n", lines: ["a\rb", "c\r", "d"]),
        Sample(bytes: "\n\r\n\n\rx", lines: ["", "", "", "\rx"]),
        Sample(bytes: "Grüße\r\n日本\n", lines: ["Grüße", "日本"]),
        Sample(bytes: "last\r", lines: ["last\r"]),
    ]

    @Test(arguments: samples, [false, true])
    func linesComeHoweverTheyArrive(_ sample: Sample, isSecure: Bool) async throws {
        let ways: [[ScriptedPeer.Step]] = [[.send(sample.bytes)], [.send(sample.bytes, inPiecesOf: 1)]]
        let steps = sample.bytes.isEmpty ? [[]] : ways
        for isHalfClosed in [false, true] {
            for step in steps {
                let (socket, _) = try await connectedSocket(step + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
                if isHalfClosed { socket.closeWriteStream() }
                var lines: [String] = []
                while let line = try await socket.readLine() { lines.append(line) }
                #expect(lines == sample.lines, "half closed: \(isHalfClosed)")
                #expect(try await socket.readLine() == nil)
            }
        }
    }

    @Test(arguments: samples, [false, true])
    func aSequenceHasTheSameLines(_ sample: Sample, isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket(
            (sample.bytes.isEmpty ? [] : [.send(sample.bytes)]) + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        var lines: [String] = []
        for try await line in socket.lines { lines.append(line) }
        #expect(lines == sample.lines)
    }

    @Test(arguments: [false, true])
    func bytesThatAreNoTextAreRepaired(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket(
            [.send([0x61, 0xFF, 0x62, 0x0D, 0x0A, 0xC3, 0x0A, 0xE2, 0x82])] + .orderlyEnd(isSecure: isSecure),
            isSecure: isSecure)
        #expect(try await socket.readLine() == "a\u{FFFD}b")
        #expect(try await socket.readLine() == "\u{FFFD}")
        #expect(try await socket.readLine() == "\u{FFFD}")
        #expect(try await socket.readLine() == nil)
    }

    @Test(arguments: [false, true])
    func aLineMayHaveItsMaximumAndNoMore(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("ab\r\nabc\nabcd\n")], isSecure: isSecure)
        #expect(try await socket.readLine(maxLength: 4) == "ab")
        #expect(try await socket.readLine(maxLength: 4) == "abc")
        #expect(await outcome { try await socket.readLine(maxLength: 4) } == .failed(.readMaxedOut))
        #expect(!socket.isConnected)
    }

    @Test(arguments: [false, true])
    func aLineThatNeverEndsEndsTheConnection(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket(
            [.send([UInt8](repeating: 0x61, count: 65536)), .wait(for: try TestSignal())], isSecure: isSecure)
        #expect(await outcome { for try await _ in socket.lines {} } == .failed(.readMaxedOut))
    }

    /// Each of them searches for its own line from the start.
    @Test(arguments: [false, true])
    func severalReadersShareTheLines(isSecure: Bool) async throws {
        let count = 300
        let text = (0..<count).map { "line \($0)\r\n" }.joined()
        let (socket, _) = try await connectedSocket(
            [.send(text, inPiecesOf: 7)] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        let readers = (0..<4).map { _ in
            Task.immediate {
                var lines: [String] = []
                for try await line in socket.lines { lines.append(line) }
                return lines
            }
        }
        var all: [String] = []
        for reader in readers { all += try await reader.value }
        #expect(Set(all) == Set((0..<count).map { "line \($0)" }))
        #expect(all.count == count)
    }

    // MARK: - Sequences

    @Test(arguments: [false, true])
    func whatALoopLeavesTheNextReadFinds(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket(
            [.send("one\r\ntwo\r\nfour bytes\r\nthe rest")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        for try await line in socket.lines where line == "two" { break }
        #expect(try await socket.read(exactly: 4) == Data("four"))
        for try await bytes in socket.chunks(maxLength: 3) {
            #expect(bytes == Data(" by"))
            break
        }
        var lines = socket.lines.makeAsyncIterator()
        #expect(try await lines.next() == "tes")
        var chunks = socket.chunks.makeAsyncIterator()
        var rest = Data()
        while let bytes = try await chunks.next() { rest += bytes }
        #expect(rest == Data("the rest"))
        #expect(try await lines.next() == nil)
    }

    @Test(arguments: [false, true])
    func chunksAreAllBytesInOrder(isSecure: Bool) async throws {
        let all = pattern(16 << 20)
        let (socket, _) = try await connectedSocket(
            [.send(Array(all))] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        var received = Data()
        for try await bytes in socket.chunks {
            #expect(!bytes.isEmpty && bytes.count <= 65536)
            received += bytes
        }
        #expect(received == all)
    }

    @Test(arguments: [false, true])
    func aSequenceWhoseConnectionBreaksThrows(isSecure: Bool) async throws {
        let mayEnd = try TestSignal()
        let (socket, _) = try await connectedSocket([.send("abc"), .wait(for: mayEnd), .reset], isSecure: isSecure)
        var received = Data()
        await #expect(throws: AsyncSocketError.self) {
            for try await bytes in socket.chunks {
                received += bytes
                if received.count == 3 { mayEnd.fire() }
            }
        }
        #expect(received == Data("abc"))
    }

    /// The way in which most people write a server with STARTTLS first.
    @Test func aLoopOverLinesGoesOnAfterItsUpgrade() async throws {
        let pair = try await SocketPair()
        let settings = try TestCertificates.server()
        let serving = Task {
            var secure: [Bool] = []
            for try await line in pair.server.lines {
                secure.append(pair.server.isSecure)
                try await pair.server.writeLine("got \(line)")
                if line == "STARTTLS" { try await pair.server.startTLS(settings: settings) }
            }
            return secure
        }
        func exchange(_ line: String) async throws {
            try await pair.client.writeLine(line)
            #expect(try await pair.client.readLine() == "got \(line)")
        }
        try await exchange("HELO")
        try await exchange("STARTTLS")
        try await pair.client.startTLS(settings: TestCertificates.client())
        try await exchange("EHLO")
        try await exchange("QUIT")
        try await pair.client.close()
        #expect(try await serving.value == [false, false, true, true])
    }

    @Test func chunksAndFramesGoOnAfterAnUpgrade() async throws {
        let settings = try TestCertificates.server()
        let (socket, _) = try await connectedSocket([
            .send("plain\r\n"), .expect("go"), .startTLS(settings), .send("one\r\n"), .expect("on"), .send("two"),
        ])
        var frames = socket.frames(Delimited(by: AsyncSocket.crlf)).makeAsyncIterator()
        var chunks = socket.chunks.makeAsyncIterator()
        #expect(try await frames.next() == Data("plain".utf8))
        try await socket.write("go")
        try await socket.startTLS(settings: TestCertificates.client())
        #expect(try await frames.next() == Data("one".utf8))
        try await socket.write("on")
        #expect(try await chunks.next() == Data("two".utf8))
    }

    /// Bytes behind the command of a client are the start of the handshake, and never a line after it.
    @Test func aLineThatIsInjectedBeforeTheUpgradeIsNoLineOfTheLoop() async throws {
        let pair = try await SocketPair()
        let settings = try TestCertificates.server()
        try await pair.client.write("STARTTLS\r\nMAIL FROM:<mallory@example.org>\r\n")
        var (lines, refusal): ([String], AsyncSocketError?) = ([], nil)
        let error = await #expect(throws: AsyncSocketError.self) {
            for try await line in pair.server.lines {
                lines.append(line)
                guard line == "STARTTLS" else { continue }
                // A program lets this error end the loop. The test goes on, to show that no line follows.
                do { try await pair.server.startTLS(settings: settings) } catch { refusal = error as? AsyncSocketError }
            }
        }
        #expect(refusal?.code == .tls && lines == ["STARTTLS"] && error?.code == .tls)
    }

    @Test func aSequenceBelongsToOneConnection() async throws {
        let (socket, _) = try await connectedSocket([.send("one\r\ntwo\r\n")])
        var lines = socket.lines.makeAsyncIterator()
        #expect(try await lines.next() == "one")
        try await socket.close()
        let second = try ScriptedPeer.listening([.send("three\r\n")])
        try await socket.connect(to: "127.0.0.1", port: second.port)
        #expect(try await lines.next() == nil)
        var others = socket.lines.makeAsyncIterator()
        #expect(try await others.next() == "three")
    }

    /// Like the underlying reads.
    @Test(arguments: [0, -1]) func aSequenceOfNothingIsRefused(_ length: Int) async throws {
        let pair = try await SocketPair()
        try await pair.client.write("one\n")
        let chunks = await #expect(throws: AsyncSocketError.self) { for try await _ in pair.server.chunks(maxLength: length) {} }
        let lines = await #expect(throws: AsyncSocketError.self) {
            for try await _ in pair.server.lines(maxLength: length) {}
        }
        let read = await #expect(throws: AsyncSocketError.self) { _ = try await pair.server.read(maxLength: length) }
        for error in [chunks, lines, read] {
            #expect(error?.code == .badParameter && error?.message.contains("is \(length)") == true)
        }
        #expect(try await pair.server.readLine() == "one")
    }

    @Test(arguments: [false, true])
    func aCancelledLoopThrowsACancellationError(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("one\r\ntw"), .wait(for: try TestSignal())], isSecure: isSecure)
        let loop = Task.immediate { for try await _ in socket.lines {} }
        try await eventually("two bytes are there") { socket.readProgress?.bytesDone == 2 }
        loop.cancel()
        #expect(await loop.outcome == .cancelled)
        #expect(try await socket.read(exactly: 2) == Data("tw"))
    }
}
