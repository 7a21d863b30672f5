internal import FoundationEssentials
internal import Glibc

/// Reads files that the user names.
enum LocalFile {
    static func bytes(_ path: String, atMost limit: Int = 16 << 20) throws -> [UInt8] {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw Failure.file(path, "open", errno: errno) }
        defer { close(file) }
        return try bytes(of: file, named: path, atMost: limit)
    }

    /// Reads an open file from its current position to its end.
    static func bytes(of file: Int32, named path: String, atMost limit: Int = 16 << 20) throws -> [UInt8] {
        var (bytes, isComplete): ([UInt8], Bool) = ([], false)
        while bytes.count <= limit {
            let piece = try [UInt8](unsafeUninitializedCapacity: pieceSize) { buffer, count in
                let result = read(file, buffer.baseAddress, buffer.count)
                guard result >= 0 || errno == EINTR else { throw Failure.file(path, "read", errno: errno) }
                count = max(0, result)
                isComplete = result == 0
            }
            if isComplete { return bytes }
            bytes += piece
        }
        throw Failure("\"\(path)\" is larger than \(limit) bytes", status: .fileFailed)
    }

    /// Creates a directory and those above it, unless they exist.
    static func makeDirectory(_ path: String) throws {
        if isDirectory(path) { return }
        if let slash = path.dropLast().lastIndex(of: "/"), slash > path.startIndex {
            try makeDirectory(String(path[..<slash]))
        }
        guard mkdir(path, 0o777) == 0 || errno == EEXIST && isDirectory(path) else {
            throw Failure.file(path, "create the directory", errno: errno)
        }
    }

    static func isDirectory(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    private static let pieceSize = 64 << 10

    static func text(_ path: String) throws -> String { String(decoding: try bytes(path), as: UTF8.self) }
}

/// The lines of a text, without their terminators.
///
/// Lines are terminated by LF, CRLF or CR, except possibly the last line. (A comment must not hide the lines
/// that follow it after a CR.) A byte order mark at the start is skipped. Blanks at the start and end of a
/// line are kept, because a passphrase may contain them.
struct TextLines: Sequence {
    private let lines: [String]

    init(_ text: String) {
        var bytes = Array(text.utf8)[...]
        if bytes.starts(with: Self.byteOrderMark) { bytes = bytes.dropFirst(Self.byteOrderMark.count) }
        // Bytes, because "\r\n" is one `Character`, which is not equal to "\n".
        let parts = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).flatMap { part in
            let line = part.last == UInt8(ascii: "\r") && part.endIndex < bytes.endIndex ? part.dropLast() : part
            return line.split(separator: UInt8(ascii: "\r"), omittingEmptySubsequences: false)
        }
        let isComplete = parts.last?.isEmpty == true
        lines = parts.dropLast(isComplete ? 1 : 0).map { String(decoding: $0, as: UTF8.self) }
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
