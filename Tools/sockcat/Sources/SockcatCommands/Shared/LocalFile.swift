internal import Foundation

/// Reads files that the user names.
enum LocalFile {
    static func bytes(_ path: String, atMost limit: Int = 16 << 20) throws -> [UInt8] {
        guard let file = FileHandle(forReadingAtPath: path) else { throw Failure.file(path, "open", errno: errno) }
        defer { try? file.close() }
        do {
            let data = try file.read(upToCount: limit + 1) ?? Data()
            guard data.count <= limit else {
                throw Failure("\"\(path)\" is larger than \(limit) bytes", status: .fileFailed)
            }
            return Array(data)
        } catch let error as Failure {
            throw error
        } catch {
            throw Failure("cannot read \"\(path)\": \(error.localizedDescription)", status: .fileFailed)
        }
    }

    static func text(_ path: String) throws -> String { String(decoding: try bytes(path), as: UTF8.self) }
}

/// The lines of a text, without their terminators.
///
/// Lines are terminated by LF or CRLF, except possibly the last line. A CR without an LF is part of the line,
/// because other programs on Linux show such a file as a single line. A byte order mark at the start is
/// skipped. Blanks at the start and end of a line are kept, because a passphrase may contain them.
struct TextLines: Sequence {
    private let lines: [String]

    init(_ text: String) {
        var bytes = Array(text.utf8)[...]
        if bytes.starts(with: Self.byteOrderMark) { bytes = bytes.dropFirst(Self.byteOrderMark.count) }
        // Bytes, because "\r\n" is one `Character`, which is not equal to "\n".
        let parts = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        let isComplete = parts.last?.isEmpty == true
        lines = parts.dropLast(isComplete ? 1 : 0).map { part in
            String(decoding: part.last == UInt8(ascii: "\r") ? part.dropLast() : part, as: UTF8.self)
        }
    }

    private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

    var first: String? { lines.first }

    func makeIterator() -> IndexingIterator<[String]> { lines.makeIterator() }
}

extension StringProtocol {
    /// The text without blanks at the start and end.
    var trimmed: Substring {
        let rest = drop(while: \.isWhitespace)
        let end = rest.lastIndex { !$0.isWhitespace }
        return end.map { Substring(rest[...$0]) } ?? ""
    }
}
