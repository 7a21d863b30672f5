// Asks an IMAP server for its capabilities, encrypted: the connection becomes TLS by STARTTLS.
//
//     swift run --package-path Examples short-client imap.example.org 143
//
// SSL_CERT_FILE=ca.pem trusts your own authority.

// README: client
import AsyncSockets
import Foundation

struct NoSTARTTLS: Error {}

let host = CommandLine.arguments.dropFirst().first ?? "imap.example.org"
let port = CommandLine.arguments.dropFirst(2).first.flatMap(Int.init) ?? 143
do {
    try await AsyncSocket.withConnection(to: host, port: port) { socket in
        print(try await socket.readLine() ?? "")
        try await socket.writeLine("a STARTTLS")
        guard try await socket.readLine()?.hasPrefix("a OK") == true else { throw NoSTARTTLS() }

        let session = try await socket.startTLS(settings: .client)  // encrypted from here on
        print("secure: \(session.protocolVersion), \(session.cipherSuite)")

        try await socket.write("b CAPABILITY\r\nc LOGOUT\r\n")
        for try await line in socket.lines { print(line) }
    }
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
// README: end
