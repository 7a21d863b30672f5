internal import AsyncSockets
internal import Foundation

/// Finds the end of HTTP/1.1 responses (RFC 9112, section 6).
enum HTTPResponse {
    private static let maximumHeadBytes = 65_536

    /// Reads a response. Returns its number of bytes, and whether the server closes the connection after it.
    ///
    /// - Throws: `Failure` if the status is an error of the client or the server.
    static nonisolated(nonsending) func read(from socket: AsyncSocket) async throws -> (count: Int, isLast: Bool) {
        let head = try await socket.read(until: Data("\r\n\r\n".utf8), maxLength: maximumHeadBytes)
        let fields = try Head(String(decoding: head, as: UTF8.self))
        switch fields.body {
        case .none: return (head.count, fields.closes)
        case .length(let length): return (head.count + (try await socket.read(exactly: length).count), fields.closes)
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
            guard let size = Int(line.prefix { $0.isHexDigit }, radix: 16), size >= 0 else { throw malformed }
            count += line.utf8.count + 2
            if size == 0 { break }
            count += try await socket.read(exactly: size + 2).count
        }
        while let line = try await socket.readLine(), !line.isEmpty { count += line.utf8.count + 2 }
        return count + 2
    }

    private static var malformed: Failure { Failure("the HTTP response is malformed", status: .connectionLost) }

    /// The status line and the header fields.
    struct Head: Equatable {
        var body: Body
        var closes: Bool

        enum Body: Equatable { case none, length(Int), chunks, untilEnd }

        init(_ text: String) throws {
            var lines = text.split(separator: "\r\n", omittingEmptySubsequences: true)[...]
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
                    line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces).lowercased()
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
