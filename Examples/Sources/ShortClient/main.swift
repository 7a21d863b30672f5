// Asks an IMAP server for its capabilities, encrypted: the connection becomes TLS by STARTTLS.
//
//     swift run --package-path Examples short-client imap.example.org 143
//
// SSL_CERT_FILE=ca.pem trusts your own authority.

// README: client
import AsyncSockets

let host = CommandLine.arguments.dropFirst().first ?? "imap.example.org"
let port = CommandLine.arguments.dropFirst(2).first.flatMap(UInt16.init) ?? 143

try await AsyncSocket.withConnection(to: host, port: port) { socket in
    print(try await socket.readLine() ?? "")
    try await socket.write("a STARTTLS\r\n")
    guard try await socket.readLine()?.hasPrefix("a OK") == true else { return }

    let session = try await socket.startTLS(settings: .client)  // encrypted from here on
    print("secure: \(session.protocolVersion), \(session.cipherSuite)")

    try await socket.write("b CAPABILITY\r\nc LOGOUT\r\n")
    for try await line in socket.lines { print(line) }
}
// README: end
