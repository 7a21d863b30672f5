// A server with STARTTLS in a few lines. It replies OK to every command, in the style of IMAP.
//
//     swift run --package-path Examples short-server
//     openssl s_client -starttls imap -connect localhost:1143 -CAfile ca.pem -quiet
//
// Run it in a folder with server.pem and server.key (the server's certificate and key).

// README: server
import AsyncSockets
import Foundation

do {
    let identity = try TLSIdentity(
        certificateFile: "server.pem", privateKeyFile: "server.key")
    let listener = try SocketListener(port: 1143, maximumConnections: 1_000)
    // Each connection gets its own task and is closed when the task ends.
    try await listener.run(
        untilSignals: [SIGTERM, SIGINT], closeTimeout: .seconds(10),
        idleTimeout: .seconds(60)
    ) { socket in
        // Sends the greeting and waits for STARTTLS. Everything after this is encrypted.
        try await socket.acceptStartTLS(
            as: .imap(greeting: "ready"), settings: .server(identity: identity))
        while let command = try await socket.readLine() {
            let tag = command.prefix { $0 != " " }
            try await socket.writeLine("\(tag) OK")
            if command.hasSuffix(" LOGOUT") { return }
        }
    }
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
// README: end
