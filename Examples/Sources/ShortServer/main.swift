// Sends each line back, over TLS.
//
//     swift run --package-path Examples short-server
//     openssl s_client -connect localhost:4433 -CAfile ca.pem -quiet
//
// Run it in a folder with server.pem and server.key, the server's certificate and key.

// README: server
import AsyncSockets
import Foundation

do {
    let identity = try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key")
    let listener = try SocketListener(port: 4433, tls: .server(identity: identity), maximumConnections: 1_000)
    // A task for each connection, which ends with it.
    try await listener.run(untilSignals: [SIGTERM, SIGINT], within: .seconds(10)) { socket in
        for try await line in socket.lines { try await socket.writeLine(line, timeout: .seconds(30)) }
    }
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
// README: end
