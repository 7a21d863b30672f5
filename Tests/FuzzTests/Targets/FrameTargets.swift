import Foundation
import SocketBuffers

@testable import AsyncSockets

extension FuzzTarget {
    /// Frames, lines and dot-terminated bodies. Lines and bodies are the same if the input arrives in pieces.
    static let frames = FuzzTarget(name: "frames", maximumLength: 4096) { input in
        var input = input
        let kind = input.byte() % 8
        var cuts = FuzzInput(input.take(16))
        let bytes = input.all()
        let pieces = cuts.pieces(of: bytes)
        switch kind {
        case 0: try check(LengthPrefixed<UInt8>(), bytes)
        case 1: try check(LengthPrefixed<UInt16>(maxLength: 512), bytes)
        case 2: try check(LengthPrefixed<UInt32>(order: .littleEndian), bytes)
        case 3: try check(LengthPrefixed<UInt64>(), bytes)
        case 4: try checkDelimiter(Data(cuts.all().prefix(3)), bytes)
        case 5: try checkLines(bytes, pieces)
        case 6: try checkReceivedBody(bytes, pieces)
        default: try checkSentBody(bytes)
        }
    }

    private enum Decoded<Frame> {
        case frame(Frame, Int)
        case incomplete(Int)
        case failed
    }

    private static func decode<Format: Framing>(_ format: Format, _ bytes: [UInt8]) -> Decoded<Format.Frame> {
        switch try? format.decode(bytes.span.bytes) {
        case .frame(let frame, let length): .frame(frame, length)
        case .incomplete(let minimum): .incomplete(minimum)
        case nil: .failed
        }
    }

    private static func check<Format: Framing>(_ format: Format, _ bytes: [UInt8]) throws where Format.Frame == Data {
        switch decode(format, bytes) {
        case .failed: return
        case .incomplete(let minimum): try require(minimum > bytes.count, "\(minimum) of \(bytes.count) bytes suffice")
        case .frame(let frame, let length):
            try require(length <= bytes.count && length <= format.maximumFrameLength, "a frame of \(length) bytes")
            guard case .incomplete(let minimum) = decode(format, Array(bytes.prefix(length - 1))) else {
                throw FuzzFailure(description: "the frame is complete without its last byte")
            }
            try require(minimum <= length, "\(minimum) bytes are needed for a frame of \(length)")
            var encoded = Data()
            try format.encode(frame, into: &encoded)
            try require(Array(encoded) == Array(bytes.prefix(length)), "the frame changes")
        }
    }

    private static func checkDelimiter(_ delimiter: Data, _ bytes: [UInt8]) throws {
        guard !delimiter.isEmpty else { return }
        let format = Delimited(by: delimiter, maxLength: 256)
        try check(format, bytes)
        // Looking only at new bytes finds the same frame.
        guard case .frame(let frame, let length) = decode(format, bytes) else { return }
        for seen in 0..<length {
            let answer = try format.decode(bytes.span.bytes, seen: seen)
            guard case .frame(frame, length) = answer else {
                throw FuzzFailure(description: "the frame differs after \(seen) bytes")
            }
        }
    }

    private static func checkLines(_ bytes: [UInt8], _ pieces: [[UInt8]]) throws {
        try require(lines([bytes]) == lines(pieces), "the lines differ in pieces")
        let count = lines([bytes]).count
        try require(count == bytes.count { $0 == UInt8(ascii: "\n") }, "\(count) lines")
    }

    private static func lines(_ pieces: [[UInt8]]) -> [[UInt8]] {
        let buffer = PreBuffer()
        var lines: [[UInt8]] = []
        for piece in pieces {
            piece.withUnsafeBytes { buffer.append($0) }
            while let end = buffer.endOfLine() {
                lines.append(Array(buffer.readableBytes.prefix(end)))
                buffer.consume(end)
            }
        }
        return lines
    }

    private static func checkReceivedBody(_ bytes: [UInt8], _ pieces: [[UInt8]]) throws {
        let (whole, split) = (try received([bytes]), try received(pieces))
        try require(whole.body == split.body && whole.rest == split.rest, "the body differs in pieces")
        guard whole.rest != nil, hasOnlyWholeLineBreaks(whole.body) else { return }
        try require(received([sent(whole.body)]).body == whole.body, "the body changes when it is sent again")
    }

    private static func hasOnlyWholeLineBreaks(_ body: [UInt8]) -> Bool {
        let (cr, lf) = (UInt8(ascii: "\r"), UInt8(ascii: "\n"))
        return body.indices.allSatisfy { index in
            switch body[index] {
            case cr: index + 1 < body.count && body[index + 1] == lf
            case lf: index > 0 && body[index - 1] == cr
            default: true
            }
        }
    }

    private static func checkSentBody(_ bytes: [UInt8]) throws {
        let encoded = try sent(bytes)
        let (body, rest) = try received([encoded])
        try require(rest == [], "the encoded body ends early, with \(rest?.count ?? -1) bytes after it")
        try require(sent(body) == encoded, "the body changes when it is sent again")
    }

    /// Searches only the new bytes after each piece, as a read does.
    private static func received(_ pieces: [[UInt8]]) throws -> (body: [UInt8], rest: [UInt8]?) {
        var (bytes, found) = ([UInt8](), (body: Data, length: Int)?.none)
        for piece in pieces {
            let seen = bytes.count
            bytes += piece
            guard found == nil else { continue }
            if case .frame(let body, let length) = try DotTerminated().decode(bytes.span.bytes, seen: seen) {
                found = (body, length)
            }
        }
        return (found.map { Array($0.body) } ?? [], found.map { Array(bytes[$0.length...]) })
    }

    private static func sent(_ body: [UInt8]) throws -> [UInt8] {
        var encoded = Data()
        try DotTerminated().encode(Data(body), into: &encoded)
        return Array(encoded)
    }
}
