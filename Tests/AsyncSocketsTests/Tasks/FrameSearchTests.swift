import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The search for the end of a frame: each byte is searched once, and delimiters are found wherever they are
/// split.
@Suite(.ownThreads) struct FrameSearchTests {
    /// Records how many bytes each call reports as searched.
    private struct Noting: ResumableFraming {
        let format: Delimited
        let looks = Findings<Int>()

        var maximumFrameLength: Int { format.maximumFrameLength }

        func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Data> { try decode(bytes, seen: 0) }

        func decode(_ bytes: RawSpan, seen: Int) throws(AsyncSocketError) -> FrameDecoding<Data> {
            looks.add(seen)
            return try format.decode(bytes, seen: seen)
        }

        func encode(_ frame: Data, into bytes: inout Data) throws(AsyncSocketError) { try format.encode(frame, into: &bytes) }
    }

    /// Returns the frames that a reader finds in these pieces.
    private func frames<Format: Framing>(_ pieces: [Data], _ format: Format) -> [String] where Format.Frame == Data {
        let (buffer, reader) = (PreBuffer(), FrameReader(format))
        var packet = ReadPacket.make(reader.goal, timeout: -1, tag: 0)
        var frames: [String] = []
        for piece in pieces {
            piece.withUnsafeBytes { buffer.append($0) }
            while case .complete = packet.take(from: buffer) {
                frames.append(reader.takeFrame().map { String(decoding: $0, as: UTF8.self) } ?? "none")
                packet = ReadPacket.make(reader.goal, timeout: -1, tag: 0)
            }
        }
        return frames
    }

    /// Delimiters of all lengths, with texts that contain parts of them.
    @Test(arguments: ["-", "--", "-=-", "-=-=", "-=-=-"]) func aDelimiterMayBeCutAnywhere(_ delimiter: String) {
        let text = Data("one\(delimiter)\(delimiter)two-=\(delimiter)=-=-three\(delimiter)-=-four\(delimiter)five")
        let expected = Array(String(decoding: text, as: UTF8.self).components(separatedBy: delimiter).dropLast())
        let format = Delimited(by: Data(delimiter))
        #expect(frames([text], format) == expected)
        #expect(frames(text.map { Data([$0]) }, format) == expected)
        for first in 1..<text.count {
            for second in first..<text.count {
                #expect(
                    frames([text[..<first], text[first..<second], text[second...]], format) == expected, "\(first) \(second)")
            }
        }
    }

    /// If a peer sends a long frame in small pieces, it is not searched again for each piece.
    @Test func noByteIsSearchedTwice() {
        let format = Noting(format: Delimited(by: Data("\r\n")))
        let piece = Data(String(repeating: "x", count: 1000))
        let pieces = Array(repeating: piece, count: 5) + [Data("\r\na"), Data("b"), Data("\r\n")]
        #expect(frames(pieces, format) == [String(repeating: "x", count: 5000), "ab"])
        #expect(format.looks.all == [0, 1000, 2000, 3000, 4000, 5000, 0, 1, 2])
    }
}
