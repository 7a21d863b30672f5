// Article: server
import AsyncSockets

/// Accepts clients whose certificate's common name is one of `names`, and echoes their lines.
func serve(names: Set<String>, onPort port: UInt16) async throws {
    let identity = try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key")
    var settings = TLSSettings.server(identity: identity)
    settings.clients = .certificates(.required)
    settings.trustRoots = .file(path: "clients.pem")

    let listener = try SocketListener(
        port: port, tls: settings, maximumConnections: 1_000,
        trust: { client in names.contains(client.leaf?.commonName ?? "") })
    try await listener.run { socket in
        guard let name = socket.tlsSession?.peerCertificates.first?.commonName else { return }
        try await socket.write("Welcome, \(name).\r\n")
        for try await line in socket.lines { try await socket.write(line + "\r\n") }
    }
}
// Article: end

// Article: client
/// Connects to the server above with a client certificate, and returns the greeting.
func greeting(from host: String, port: UInt16, as identity: TLSIdentity) async throws -> String? {
    var settings = TLSSettings.client
    settings.identity = identity
    return try await AsyncSocket.withConnection(to: host, port: port, tls: settings) { socket in
        try await socket.readLine(timeout: .seconds(10))
    }
}
// Article: end

// Article: refusals
/// Greets each client, and logs why connections fail.
func serve(_ listener: SocketListener) async throws {
    try await listener.run(onError: { error, socket in
        print("\(socket.connectedAddress.map { "\($0)" } ?? "a peer"): \(error)")
    }) { socket in
        try await socket.write("Welcome.\r\n")
    }
}
// Article: end
