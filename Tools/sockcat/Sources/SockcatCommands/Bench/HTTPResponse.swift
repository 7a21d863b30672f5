internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Finds the end of HTTP/1.1 responses (RFC 9112, section 6).
enum HTTPResponse {
    private static let maximumHeadBytes = 65_536
    /// The most bytes in a body or a chunk. A larger number is a mistake or an attack.
    private static let maximumBytes = 1 << 40

    /// Reads a response. Returns its number of bytes, and whether the server closes the connection after it.
    ///
    /// - Throws: `Failure` if the status is an error of the client or the server.
    static nonisolated(nonsending) func read(from socket: AsyncSocket) async throws -> (count: Int, isLast: Bool) {
        let head = try await socket.read(until: Data("\r\n\r\n".utf8), maxLength: maximumHeadBytes)
        let fields = try Head(String(decoding: head, as: UTF8.self))
        switch fields.body {
        case .none: return (head.count, fields.closes)
        case .length(let length):
            try await skip(length, of: socket)
            return (head.count + length, fields.closes)
        case .chunks: return (head.count + (try await readChunks(from: socket)), fields.closes)
        case .untilEnd:
            var count = head.count
            while let data = try await socket.read() { count += data.count }
            return (count, true)
        }
    }

    private static nonisolated(nonsending) func readChunks(from socket: AsyncSocket) async throws -> Int {
        var count = 0
        while let line = try await socket.readLine() {
            guard let size = Int(line.prefix { $0.isHexDigit }, radix: 16), (0...maximumBytes).contains(size) else {
                throw malformed
            }
            count += line.utf8.count + 2
            if size == 0 { break }
            try await skip(size + 2, of: socket)
            count += size + 2
        }
        while let line = try await socket.readLine(), !line.isEmpty { count += line.utf8.count + 2 }
        return count + 2
    }

    /// Reads this many bytes and discards them.
    private static nonisolated(nonsending) func skip(_ count: Int, of socket: AsyncSocket) async throws {
        var rest = count
        while rest > 0 {
            guard let data = try await socket.read(maxLength: min(rest, maximumHeadBytes)) else {
                throw Failure("the server closed the connection in the middle of a response", status: .connectionLost)
            }
            rest -= data.count
        }
    }

    private static var malformed: Failure { Failure("the HTTP response is malformed", status: .connectionLost) }

    /// The status line and the header fields.
    struct Head: Equatable {
        var body: Body
        var closes: Bool

        enum Body: Equatable { case none, length(Int), chunks, untilEnd }

        init(_ text: String) throws {
            var lines = TextLines(text).filter { !$0.isEmpty }[...]
            let words = lines.popFirst().map { $0.split(separator: " ") } ?? []
            guard words.count >= 2, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else {
                throw HTTPResponse.malformed
            }
            guard status < 400 else {
                throw Failure("the server replied with HTTP status \(status)", advice: "check the path of --http")
            }
            var fields: [String: String] = [:]
            for line in lines {
                guard let colon = line.firstIndex(of: ":") else { throw HTTPResponse.malformed }
                fields[line[..<colon].lowercased()] =
                    line[line.index(after: colon)...].trimmed.lowercased()
            }
            closes = fields["connection"] == "close" || words[0] == "HTTP/1.0" && fields["connection"] != "keep-alive"
            body = try Self.body(fields, status)
        }

        private static func body(_ fields: [String: String], _ status: Int) throws -> Body {
            if status < 200 || status == 204 || status == 304 { return .none }
            if fields["transfer-encoding"]?.hasSuffix("chunked") == true { return .chunks }
            guard let text = fields["content-length"] else { return .untilEnd }
            guard let length = Int(text), length >= 0 else { throw HTTPResponse.malformed }
            return .length(length)
        }
    }
}
