// The smallest client with TLS. Requests a web server's front page and prints the response.
//
//     swift run --package-path Examples task-client www.example.org 443
//
// To trust a CA of your own, set SSL_CERT_FILE=ca.pem in the environment.

// Article: client
import AsyncSockets

let host = CommandLine.arguments[1]
let port = UInt16(CommandLine.arguments[2]) ?? 443
try await AsyncSocket.withConnection(to: host, port: port, tls: .client) { socket in
    try await socket.write("GET / HTTP/1.0\r\nHost: \(host)\r\n\r\n")
    for try await line in socket.lines { print(line) }
}
// Article: end
