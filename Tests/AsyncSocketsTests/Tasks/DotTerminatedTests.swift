import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Bodies terminated by a line with a single dot.
@Suite(.timeLimit(.patient)) struct DotTerminatedTests {
    private let framing = DotTerminated()

    // MARK: - Values

    /// Decodes a text that arrives in chunks. Returns the content and the rest after the body, or `nil` if it
    /// did not end.
    private func decoded(_ text: Data, chunk: Int) throws -> (content: Data, rest: Data)? {
        var (received, source) = ([UInt8](), Array(text)[...])
        while !source.isEmpty {
            let seen = received.count
            received += source.prefix(chunk)
            source = source.dropFirst(chunk)
            if case .frame(let content, let length) = try framing.decode(received.span.bytes, seen: seen) {
                return (content, Data(received[length...] + source))
            }
        }
        return nil
    }

    private func encoded(_ text: String) throws -> Data {
        var bytes = Data()
        try framing.encode(Data(text.utf8), into: &bytes)
        return bytes
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

    @Test func aBodyEndsOnlyWithItsLine() throws {
        for (text, content) in [
            (".\r\n", ""), ("a\r\n.\r\n", "a\r\n"), ("..\r\n.\r\n", ".\r\n"), (".a\r\n.\r\n", "a\r\n"),
            ("...\r\n.\r\n", "..\r\n"),
            ("a.\r\n.\r\n", "a.\r\n"), ("\r\n.\r\n", "\r\n"), ("a\n.\n\r\n.\r\n", "a\n.\n\r\n"),
            ("a\r.\r\r\n.\r\n", "a\r.\r\r\n"),
            ("a\n.\r\n.\r\n", "a\n.\r\n"), (".\r.\r\n.\r\n", "\r.\r\n"), ("a\r\n.\n.\r\n.\r\n", "a\r\n\n.\r\n"),
        ] {
            let result = try decoded(Data((text + "NEXT\r\n").utf8), chunk: .max)
            #expect(result?.content == Data(content.utf8), "\(text.debugDescription)")
            #expect(result?.rest == Data("NEXT\r\n".utf8), "\(text.debugDescription)")
        }
    }

    /// Random texts, split into chunks of every small size.
    @Test func theContentDoesNotDependOnTheChunks() throws {
        var dice = SeededGenerator(seed: 39)
        for _ in 0..<2_000 {
            let characters = (0..<Int.random(in: 0...24, using: &dice)).map { _ in
                [".", "\r", "\n", "\r\n", "\r\n.", "a"].randomElement(using: &dice) ?? ""
            }
            let text = characters.joined() + "\r\n.\r\nrest"
            let expected = reference(text)
            for chunk in [1, 2, 3, 5, .max] {
                let result = try decoded(Data(text.utf8), chunk: chunk)
                #expect(result?.content == expected?.content, "\(text.debugDescription) by \(chunk)")
                #expect(result?.rest == expected?.rest, "\(text.debugDescription) by \(chunk)")
            }
        }
    }

    /// No content can terminate its own body early.
    @Test func encodedContentComesBackWithItsLines() throws {
        var dice = SeededGenerator(seed: 40)
        for _ in 0..<2_000 {
            let pieces = (0..<Int.random(in: 0...24, using: &dice)).map { _ in
                [".", "\r", "\n", "\r\n", "a", "\r\n.\r\n", "\n.\n"].randomElement(using: &dice) ?? ""
            }
            let bytes = try encoded(pieces.joined())
            let bare = String(decoding: bytes, as: UTF8.self).unicodeScalars.split(separator: "\r\n".unicodeScalars).joined()
            #expect(!bare.contains("\r") && !bare.contains("\n"), "\(pieces)")
            let content = pieces.joined().unicodeScalars.split(separator: "\r\n".unicodeScalars, omittingEmptySubsequences: false)
                .map { $0.map { $0 == "\r" || $0 == "\n" ? "\r\n" : String($0) }.joined() }.joined(separator: "\r\n")
            let isEnded = content.isEmpty || content.hasSuffix("\r\n")
            let result = try decoded(bytes + Data("rest".utf8), chunk: 7)
            #expect(result?.content == Data((content + (isEnded ? "" : "\r\n")).utf8), "\(pieces.joined().debugDescription)")
            #expect(result?.rest == Data("rest".utf8))
        }
    }

    @Test func theLimitIsThatOfTheContent() throws {
        let framing = DotTerminated(maxLength: 6)
        let longest = Data(".\r\n.\r\n".utf8)
        var bytes = Data()
        try framing.encode(longest, into: &bytes)
        #expect(bytes.count == longest.count + 2 + 3 && bytes.count <= framing.maximumFrameLength)
        guard case .frame(longest, bytes.count) = try framing.decode(Array(bytes).span.bytes) else {
            throw Unexpected(description: "no frame")
        }
        // Each becomes longer than the limit with its line breaks.
        for body in ["1234567", "abcde", "\n\n\n\n"] {
            var rejected = Data()
            let error = #expect(throws: AsyncSocketError.self) { try framing.encode(Data(body.utf8), into: &rejected) }
            #expect(error?.code == .badParameter && rejected.isEmpty, "\(body.debugDescription)")
        }
        // Fits into the longest frame, but its content is too long.
        let tooLong = Array("12345\r\n.\r\n".utf8)
        #expect(tooLong.count <= framing.maximumFrameLength)
        #expect(throws: AsyncSocketError.self) { try framing.decode(tooLong.span.bytes) }
        // Everything that is sent can be received.
        for body in ["", "abcd", "ab\ncd"[...], ".\n.\n", "\n\n\n", "......"] {
            var sent = Data()
            guard (try? framing.encode(Data(body.utf8), into: &sent)) != nil else { continue }
            guard case .frame(_, sent.count) = try framing.decode(Array(sent).span.bytes) else {
                throw Unexpected(description: "\(body.debugDescription)")
            }
            #expect(sent.count <= framing.maximumFrameLength)
        }
        #expect(DotTerminated(maxLength: .max).maximumFrameLength > 1 << 61)
        #expect(DotTerminated(maxLength: -1).maxLength == 0)
    }

    // MARK: - Sockets

    private let message = "From: a\r\n\r\n.hidden\r\n.\r\nlast"

    @Test(arguments: [false, true], [1, 200_000]) func aBodyArrives(isSecure: Bool, repetitions: Int) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let content = Data(String(repeating: message + "\n", count: repetitions).utf8)
        let expected = Data(String(repeating: message + "\r\n", count: repetitions).utf8)
        let (client, framing) = (pair.client, DotTerminated(maxLength: expected.count))
        let sending = Task {
            try await client.write(content, as: framing)
            try await client.write("NEXT\r\n")
            try await client.write(Data(), as: framing)
            try await client.write("LAST\r\n")
        }
        #expect(try await pair.server.readFrame(framing) == expected)
        #expect(try await pair.server.readLine() == "NEXT")
        #expect(try await pair.server.readFrame(framing) == Data())
        #expect(try await pair.server.readLine() == "LAST")
        try await sending.value
    }

    /// Each byte arrives separately, and the next command stays unread.
    @Test func aBodyArrivesByteByByte() async throws {
        let text = "a\r\n..b\r\n.\r\nQUIT\r\n"
        let steps = text.utf8.map { ScriptedPeer.Step.send(String(decoding: [$0], as: UTF8.self)) }
        let (socket, peer) = try await connectedSocket(steps)
        #expect(try await socket.readFrame(framing) == Data("a\r\n.b\r\n".utf8))
        #expect(try await socket.readLine() == "QUIT")
        _ = try await peer.finish()
    }

    /// The rest of the body must never be read as a command.
    @Test func aBodyThatIsTooLongClosesTheConnection() async throws {
        let pair = try await SocketPair()
        try await pair.client.write("12345\r\n\(message)\r\n.\r\nQUIT\r\n")
        let error = await #expect(throws: AsyncSocketError.self) {
            _ = try await pair.server.readFrame(DotTerminated(maxLength: 6))
        }
        #expect(error?.code == .readMaxedOut)
        #expect(await outcome { try await pair.server.read() } == .failed(.readMaxedOut))
    }

    /// A read that is cancelled in the middle of a body consumes nothing. The next one returns the whole
    /// body.
    @Test func aBodyThatIsCancelledStaysUnread() async throws {
        let pair = try await SocketPair()
        let (server, framing) = (pair.server, framing)
        try await pair.client.write("first\r\nsecond")
        let reading = Task { try await server.readFrame(framing) }
        try await server.turn("the first lines have arrived") { $0.data.carried.received == 13 }
        reading.cancel()
        await #expect(throws: CancellationError.self) { try await reading.value }
        try await pair.client.write("\r\n.\r\nQUIT\r\n")
        #expect(try await server.readFrame(framing) == Data("first\r\nsecond\r\n".utf8))
        #expect(try await server.readLine() == "QUIT")
    }

    @Test func aBodyWithoutItsEndIsAnError() async throws {
        let pair = try await SocketPair()
        try await pair.client.write("a\r\n.\r")
        try await pair.client.close()
        let error = await #expect(throws: AsyncSocketError.self) { _ = try await pair.server.readFrame(framing) }
        #expect(error?.code == .closedByPeer)
    }
}
