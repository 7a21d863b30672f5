import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Frames and borrowed bytes.
@Suite(.timeLimit(.patient)) struct AsyncFrameTests {
    static let payloads = [Data(), Data("a"), Data("hello"), Data(repeating: 7, count: 70_000), Data([0, 255, 10])]

    @Test(arguments: [nil, 1, 7], [false, true])
    func framesComeHoweverTheyArrive(_ pieces: Int?, isSecure: Bool) async throws {
        let framing = LengthPrefixed<UInt32>(maxLength: 70_000)
        var bytes = Data()
        // The long payload would take a second one byte at a time.
        let payloads = Self.payloads.filter { pieces == nil || $0.count < 1000 }
        for payload in payloads { try framing.encode(payload, into: &bytes) }
        let pair = try await SocketPair(isSecure: isSecure)
        let sender = Task { [bytes] in
            for start in stride(from: 0, to: bytes.count, by: pieces ?? bytes.count) {
                try await pair.client.write(bytes[start..<min(start + (pieces ?? bytes.count), bytes.count)])
            }
            try await pair.client.close()
        }
        var frames: [Data] = []
        for try await frame in pair.server.frames(framing) { frames.append(frame) }
        #expect(frames == payloads)
        #expect(try await pair.server.readFrame(framing) == nil)
        try await sender.value
    }

    @Test func framesAreWrittenAsTheyAreRead() async throws {
        let pair = try await SocketPair()
        for payload in Self.payloads {
            async let written: Void = pair.client.write(payload, as: LengthPrefixed<UInt64>())
            #expect(try await pair.server.readFrame(LengthPrefixed<UInt64>()) == payload)
            try await written
        }
        try await pair.client.write(Data("one"), as: Delimited(by: Data("||")))
        try await pair.client.write("two|||")
        #expect(try await pair.server.readFrame(Delimited(by: Data("||"))) == Data("one"))
        #expect(try await pair.server.readFrame(Delimited(by: Data("||"))) == Data("two"))
        #expect(try await pair.server.read() == Data("|"))
    }

    @Test(arguments: [false, true])
    func aFrameThatIsCutShortIsAnError(keepsReadSideOpen: Bool) async throws {
        let pair = try await SocketPair()
        pair.server.autoDisconnectOnClosedReadStream = !keepsReadSideOpen
        try await pair.client.write(Data([0, 0, 0, 5, 1, 2]))
        try await pair.client.close()
        let error = await #expect(throws: AsyncSocketError.self) {
            for try await _ in pair.server.frames(LengthPrefixed<UInt32>()) {}
        }
        #expect(error?.code == .closedByPeer)
    }

    /// The connection was closed cleanly in the middle of a frame.
    @Test func aFrameThatIsDroppedAtTheEndIsAnError() async throws {
        let listener = try RawSocket.listening()
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        socket.autoDisconnectOnClosedReadStream = true
        socket.failedWriteGrace = 0.01
        var peer: RawSocket? = try listener.accepted()
        try peer?.send([0, 0, 0, 5, 1, 2])
        try await socket.hasBuffered(6)
        peer = nil
        try await socket.turn("the end is known") { $0.data.ending.readEnd != nil }
        // The peer has closed. A write fails, and the connection ends with the earlier end of the stream.
        while await outcome(of: { try await socket.write("x") }) == .served {}
        #expect(socket.isDisconnected)
        for _ in 0..<2 {
            let result = await outcome { try await socket.readFrame(LengthPrefixed<UInt32>()) }
            #expect(result == .failed(.closedByPeer))
        }
    }

    @Test func aFrameThatIsTooLongIsRefusedBeforeItComes() async throws {
        let pair = try await SocketPair()
        let framing = LengthPrefixed<UInt32>(maxLength: 100)
        try await pair.client.write(Data([0, 0, 0, 101]))
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.readFrame(framing) }
        #expect(error?.code == .readMaxedOut)
        #expect(error?.fault == .peer)
        let own = await #expect(throws: AsyncSocketError.self) {
            try await pair.client.write(Data(count: 101), as: framing)
        }
        #expect(own?.fault == .caller)
        let delimited = Delimited(by: Data("\n"), maxLength: 10)
        let other = try await SocketPair()
        try await other.client.write(Data(repeating: 65, count: 12))
        let long = await #expect(throws: AsyncSocketError.self) { try await other.server.readFrame(delimited) }
        #expect(long?.code == .readMaxedOut)
        // Both connections are closed.
        #expect(pair.server.isDisconnected && other.server.isDisconnected)
    }

    @Test func aFrameMayBeAsLongAsMemoryAllows() async throws {
        #expect(LengthPrefixed<UInt64>(maxLength: .max).maximumFrameLength == .max)
        let pair = try await SocketPair()
        let framing = Delimited(by: Data("--"), maxLength: .max)
        try await pair.client.write(pattern(100_000) + Data("-"))
        try await pair.client.write(Data("-"))
        #expect(try await pair.server.readFrame(framing) == pattern(100_000))
    }

    /// The searched part of one frame does not apply to the next one.
    @Test func aDelimiterInSeveralPiecesIsFound() async throws {
        let pair = try await SocketPair()
        let framing = Delimited(by: Data("abc"))
        for text in ["1ab", "c2a", "bcab", "c"] {
            try await pair.client.write(text)
            let count = text == "1ab" ? 0 : 1
            for _ in 0..<count { #expect(try await pair.server.readFrame(framing) != nil) }
        }
        try await pair.client.close()
        #expect(try await pair.server.readFrame(framing) == nil)
    }

    /// The delimiter is already in the buffer.
    @Test func aDelimitedFrameThatComesAtOnceMayBeTooLong() {
        let framing = Delimited(by: Data("\n"), maxLength: 3)
        for (text, isTooLong) in [("abc\n", false), ("abcd\n", true)] {
            let error = thrownError { () throws(AsyncSocketError) in _ = try framing.decode(Array(text.utf8).span.bytes) }
            #expect(error?.code == (isTooLong ? .readMaxedOut : nil))
        }
    }

    @Test func aFrameWithItsDelimiterIsNotWritten() {
        let framing = Delimited(by: Data("||"))
        for (text, isRefused) in [("||", true), ("a||", true), ("a||b", true), ("a|b|", false)] {
            var bytes = Data()
            let error = thrownError { () throws(AsyncSocketError) in try framing.encode(Data(text.utf8), into: &bytes) }
            #expect(error?.fault == (isRefused ? .caller : nil) && bytes.isEmpty == isRefused, "\(text)")
        }
    }

    private func thrownError(_ body: () throws(AsyncSocketError) -> Void) -> AsyncSocketError? {
        do throws(AsyncSocketError) { try body() } catch { return error }
        return nil
    }

    @Test func aShortPrefixBoundsTheLength() {
        #expect(LengthPrefixed<UInt8>(maxLength: 1000).maxLength == 255)
        #expect(LengthPrefixed<UInt8>(maxLength: -1).maxLength == 0)
    }

    /// A format with frames of twelve bytes that allows eight.
    private struct Lengthy: Framing {
        let maximumFrameLength = 8
        func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Int> {
            bytes.byteCount < 12 ? .incomplete(minimumLength: bytes.byteCount + 1) : .frame(1, length: 12)
        }
        func encode(_ frame: Int, into bytes: inout Data) throws(AsyncSocketError) {}
    }

    /// A frame that has arrived as a whole is not limited by reading.
    @Test(arguments: [true, false]) func aBufferedFrameIsLimitedToo(isBuffered: Bool) async throws {
        let pair = try await SocketPair()
        try await pair.client.write("first\n" + String(repeating: "x", count: 24))
        if isBuffered { #expect(try await pair.server.readLine() == "first") }
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.readFrame(Lengthy()) }
        #expect(error?.code == .readMaxedOut && error?.fault == .peer)
    }

    /// A format that takes more than there is must not crash.
    private struct Greedy: Framing {
        let maximumFrameLength = 1000
        func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Int> {
            .frame(1, length: bytes.byteCount + 1)
        }
        func encode(_ frame: Int, into bytes: inout Data) throws(AsyncSocketError) {}
    }

    @Test func aFormatThatTakesTooMuchIsAnError() async throws {
        let pair = try await SocketPair()
        try await pair.client.write("abc")
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.readFrame(Greedy()) }
        #expect(error?.fault == .caller)
        // Nothing was consumed.
        #expect(try await pair.server.read(exactly: 3) == Data("abc"))
    }

    @Test(arguments: [false, true])
    func borrowedBytesAreAllThatCame(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let sent = pattern(3 << 20)
        let sender = Task {
            try await sent.withUnsafeBytes { bytes in Data(bytes) }.chunked(by: 100_000) { try await pair.client.write($0.bytes) }
            try await pair.client.close()
        }
        var received = Data()
        while let count = try await pair.server.withNextBytes({ bytes in
            bytes.withUnsafeBytes { received.append(contentsOf: $0) }
            return bytes.byteCount
        }) { #expect(count > 0) }
        #expect(received == sent)
        try await sender.value
    }

    @Test func borrowedBytesAreReadAlsoWhenTheBodyThrows() async throws {
        let pair = try await SocketPair()
        // Single bytes, because a call may return less than is available.
        try await pair.client.write("1")
        await #expect(throws: Unexpected.self) {
            try await pair.server.withNextBytes { _ in throw Unexpected(description: "no") }
        }
        try await pair.client.write("2")
        let bytes = try await pair.server.withNextBytes { bytes in bytes.withUnsafeBytes { Array($0) } }
        #expect(bytes == Array("2".utf8))
    }

    /// An error thrown by the body is rethrown, even if it looks like the end of the connection.
    @Test func anErrorOfTheBodyIsNotTheEndOfTheConnection() async throws {
        let pair = try await SocketPair()
        try await pair.client.write("1")
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.server.withNextBytes { _ in
                throw AsyncSocketError(.closedByPeer, fault: .peer, operation: .connect, message: "another connection ended")
            }
        }
        #expect(error?.operation == .connect)
    }

    @Test func borrowedBytesWorkOnAQueueToo() async throws {
        let listener = try RawSocket.listening()
        let socket = AsyncSocket(
            delegate: nil as Recorder?, delegateQueue: .main, socketQueue: DispatchQueue(label: "socket"))
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let peer = try listener.accepted()
        try peer.send("hello")
        var count = 0
        while count < 5, let more = try await socket.withNextBytes({ $0.byteCount }) { count += more }
        #expect(count == 5)
    }
}

extension Data {
    fileprivate func chunked(by size: Int, _ body: (Data) async throws -> Void) async throws {
        for start in stride(from: 0, to: count, by: size) { try await body(self[start..<Swift.min(start + size, count)]) }
    }
}
