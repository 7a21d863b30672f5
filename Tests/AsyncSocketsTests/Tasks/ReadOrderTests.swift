import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Reads complete in the order in which they were requested, whatever they wait for.
@Suite(.timeLimit(.patient)) struct ReadOrderTests {
    /// Kinds of reads that could complete immediately with another read's data.
    enum Second: CaseIterable, Sendable {
        case any, exactly, line, frame, borrowed, chunks, frames

        func read(_ socket: AsyncSocket) async throws -> String {
            switch self {
            case .any: String(decoding: try #require(await socket.read()), as: UTF8.self)
            case .exactly: String(decoding: try await socket.read(exactly: 2), as: UTF8.self)
            case .line: try #require(await socket.readLine()) + "\n"
            case .frame: try #require(await socket.readFrame(Pairs()))
            case .borrowed:
                try #require(await socket.withNextBytes { $0.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } })
            case .chunks:
                String(decoding: try #require(await socket.chunks.first { _ in true }), as: UTF8.self)
            case .frames: try #require(await socket.frames(Pairs()).first { _ in true })
            }
        }
    }

    /// Frames of two bytes.
    private struct Pairs: Framing {
        let maximumFrameLength = 2
        func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<String> {
            guard bytes.byteCount >= 2 else { return .incomplete(minimumLength: 2) }
            return .frame(bytes.withUnsafeBytes { String(decoding: $0.prefix(2), as: UTF8.self) }, length: 2)
        }
        func encode(_ frame: String, into bytes: inout Data) throws(AsyncSocketError) { bytes += Data(frame) }
    }

    /// A read up to a delimiter leaves partial data in the buffer, where another read could find it.
    @Test(arguments: Second.allCases, [false, true])
    func noReadOvertakesOneThatHasBytesAlready(_ second: Second, isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, peer) = try await connectedSocket(
            [.send("abcd"), .wait(for: maySend), .send("ef\ng\n"), .expectEnd], isSecure: isSecure)
        let first = Task.immediate { try await socket.readLine() }
        try await eventually("a part is there") { socket.readProgress?.bytesDone == 4 }
        let later = Task.immediate { try await withDeadline(.patient) { try await second.read(socket) } }
        maySend.fire()
        #expect(try await first.value == "abcdef")
        // The kernel may deliver only a part, which some kinds of reads return.
        let rest = try await later.value
        #expect(!rest.isEmpty && "g\n".hasPrefix(rest), "\(rest)")
        try await socket.close()
        _ = try await peer.finish()
    }

    /// A read that could complete immediately waits behind earlier reads.
    @Test func aReadIsServedAtOnceOnlyIfNoOtherWaits() {
        let reads = ReadHalf()
        reads.packets.append(ReadPacket.make(.delimiter(Data("\n")), timeout: -1, tag: 1))
        Data("abc").withUnsafeBytes { reads.preBuffer.append($0) }
        var second = ReadPacket.make(.anyBytes, timeout: -1, completion: .answered)
        #expect(reads.serveAtOnce(&second) == nil)
        Data("\nd").withUnsafeBytes { reads.preBuffer.append($0) }
        #expect(reads.serveAtOnce(&second) == nil)
        guard case .complete(Data("abc\n"), _) = reads.serve() else { return #expect(Bool(false), "the first is served") }
        guard case .complete(Data("d"), _) = reads.serveAtOnce(&second) else {
            return #expect(Bool(false), "the second is served")
        }
    }

    /// The same for a delegate's reads.
    @Test func aTasksReadDoesNotOvertakeADelegates() async throws {
        let maySend = try TestSignal()
        let (socket, peer) = try await connectedSocket([.send("abcd"), .wait(for: maySend), .send("ef\ng\n"), .expectEnd])
        let recorder = Recorder()
        socket.setInlineDelegate(recorder)
        socket.readData(to: Data("\n"), tag: 1)
        try await eventually("a part is there") { socket.readProgress?.bytesDone == 4 }
        for second in [Second.any, .borrowed] {
            let early = Task.immediate { try await withDeadline(.milliseconds(20)) { try await second.read(socket) } }
            #expect(await early.outcome == .failed(.deadlineExceeded))
        }
        maySend.fire()
        #expect(try await recorder.readText() == "abcdef\n")
        #expect(try await Second.exactly.read(socket) == "g\n")
        try await socket.close()
        _ = try await peer.finish()
    }
}
