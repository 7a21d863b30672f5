// Echoes each datagram over DTLS 1.2. Reads its certificate and key from server.pem and server.key.
//
//     swift run --package-path Examples dtls-server 4434

import AsyncSockets
import Foundation

do {
    let port = CommandLine.arguments.dropFirst().first.flatMap(Int.init) ?? 4434
    // Article: server
    let identity = try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key")
    let listener = try DatagramListener(port: port, dtls: .server(identity: identity), maximumPeers: 1_000)
    print("receiving on port \(listener.localPort)")
    // Each peer gets its own task once its address is verified and the handshake is complete.
    try await listener.run(onError: { error, _ in print("a peer failed: \(error)") }) { socket in
        for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
    }
    // Article: end
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
