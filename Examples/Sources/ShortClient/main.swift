// Upgrades a connection to an IMAP server with STARTTLS, and then requests the server's capabilities.
//
//     swift run --package-path Examples short-client localhost 1143
//
// To trust a CA of your own, set SSL_CERT_FILE=ca.pem in the environment.

// README: client
import AsyncSockets
import Foundation

let arguments = CommandLine.arguments.dropFirst()
let host = arguments.first ?? "localhost"
let port = arguments.dropFirst().first.flatMap(Int.init) ?? 1143
do {
    try await AsyncSocket.withConnection(to: host, port: port) { socket in
        // Reads the greeting and sends STARTTLS. Everything after this is encrypted.
        let session = try await socket.startTLS(as: .imap, settings: .client)
        print("secure: \(session.protocolVersion), \(session.cipherSuite)")
        try await socket.write("b CAPABILITY\r\nc LOGOUT\r\n")
        for try await line in socket.lines { print(line) }
    }
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
// README: end
