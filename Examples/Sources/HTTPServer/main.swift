// An HTTP/1.1 server that keeps connections alive and closes them gracefully: on SIGTERM, requests in progress
// are answered, and connections between two requests close immediately.
//
//     swift run --package-path Examples http-server 8080
//     curl http://localhost:8080/hello

import AsyncSockets
import Foundation

setvbuf(stdout, nil, Int32(_IOLBF), 0)
guard CommandLine.arguments.count == 2, let port = UInt16(CommandLine.arguments[1]) else {
    print("usage: http-server PORT")
    exit(EX_USAGE)
}
do {
    let listener = try SocketListener(port: port, maximumConnections: 1_000)
    print("listening on port \(listener.localPort)")
    try await listener.run(untilSignals: [SIGTERM, SIGINT], idleTimeout: .seconds(60)) { socket in
        // Article: requests
        // `nil` if the client closes the connection, or if the server begins to close.
        while let request = try await listener.untilClosing({ try await socket.readLine(maxLength: 8192) }) {
            let headers = try await readHeaders(from: socket)
            let keepsAlive = listener.isListening && headers["connection"]?.lowercased() != "close"
            try await respond(to: request, on: socket, keepsAlive: keepsAlive)
            guard keepsAlive else { return }
        }
        // Article: end
    }
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}

/// Reads at most 100 header lines, and limits the time for all of them.
func readHeaders(from socket: AsyncSocket) async throws -> [String: String] {
    try await withDeadline(.seconds(10)) {
        var headers: [String: String] = [:]
        for _ in 0..<100 {
            guard let line = try await socket.readLine(maxLength: 8192), !line.isEmpty else { return headers }
            let parts = line.split(separator: ":", maxSplits: 1)
            headers[parts[0].lowercased()] = parts.last?.trimmingCharacters(in: .whitespaces)
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
