// The smallest client with TLS: it asks a web server for its first page and prints the answer.
//
//     swift run --package-path Examples task-client www.example.org 443
//
// SSL_CERT_FILE=ca.pem trusts your own authority.

// Article: client
import AsyncSockets

let host = CommandLine.arguments[1]
let port = UInt16(CommandLine.arguments[2]) ?? 443
try await AsyncSocket.withConnection(to: host, port: port, tls: .client) { socket in
    try await socket.write("GET / HTTP/1.0\r\nHost: \(host)\r\n\r\n")
    for try await line in socket.lines { print(line) }
}
// Article: end
