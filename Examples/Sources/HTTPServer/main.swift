// An HTTP/1.1 server that keeps connections alive and closes them gracefully: on SIGTERM, requests in
// progress receive their responses, and connections between two requests close immediately.
//
//     swift run --package-path Examples http-server 8080
//     curl http://localhost:8080/hello

import AsyncSockets
import Foundation

guard CommandLine.arguments.count == 2, let port = UInt16(CommandLine.arguments[1]) else {
    log("usage: http-server PORT")
    exit(EX_USAGE)
}
do {
    let listener = try SocketListener(port: port, maximumConnections: 1_000)
    log("listening on port \(listener.localPort)")
    try await listener.run(untilSignals: [SIGTERM, SIGINT], idleTimeout: .seconds(60)) { socket in
        // Article: requests
        // A client that has just connected receives a response even if the server starts to close.
        var next = try await socket.readLine(maxLength: 8192, timeout: .seconds(10))
        while let request = next {
            let headers = try await readHeaders(from: socket)
            let keepsAlive = listener.isListening && headers["connection"]?.lowercased() != "close"
            try await respond(to: request, on: socket, keepsAlive: keepsAlive)
            guard keepsAlive else { return }
            // `nil` if the client closes the connection, or if the server starts to close.
            next = try await listener.untilClosing { try await socket.readLine(maxLength: 8192) }
        }
        // Article: end
    }
} catch {
    log("failed: \(error)")
    exit(EXIT_FAILURE)
}
