import AsyncSockets
import Foundation

/// Reads at most 100 header lines, and limits the time for all of them.
func readHeaders(from socket: AsyncSocket) async throws -> [String: String] {
    try await withDeadline(.seconds(10)) {
        var headers: [String: String] = [:]
        for _ in 0..<100 {
            guard let line = try await socket.readLine(maxLength: 8192), !line.isEmpty else { return headers }
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, !parts[0].isEmpty else {
                throw AsyncSocketError.malformedFrame("a header line has no name or no colon")
            }
            headers[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces)
        }
        throw AsyncSocketError.malformedFrame("the request has more than 100 header lines")
    }
}

/// Requests with a body are not supported: its bytes would be read as the next request.
func respond(to request: String, on socket: AsyncSocket, keepsAlive: Bool) async throws {
    let words = request.split(separator: " ")
    let isGet = words.count == 3 && words[0] == "GET"
    let body = isGet ? "you requested \(words[1])\n" : "only GET is supported\n"
    try await socket.write(
        """
        HTTP/1.1 \(isGet ? "200 OK" : "405 Method Not Allowed")\r
        Content-Type: text/plain; charset=utf-8\r
        Content-Length: \(body.utf8.count)\r
        Connection: \(keepsAlive && isGet ? "keep-alive" : "close")\r
        \r
        \(body)
        """)
    if !isGet { throw AsyncSocketError.malformedFrame("the request is not a GET request") }
}

/// Prints a line without buffering, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
