// Article: certificates
import AsyncSockets
import AsyncSocketsTesting
import Testing

/// The client under test. Returns the server's greeting.
func greeting(port: UInt16, tls: TLSClientSettings) async throws -> String? {
    try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: tls) { socket in
        try await socket.readLine(timeout: .seconds(10))
    }
}

/// Runs a server that sends a greeting to each client until `body` returns.
func withGreeter(_ identity: TLSIdentity, _ body: (UInt16) async throws -> Void) async throws {
    let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: .server(identity: identity))
    async let served: Void = listener.run { socket in try await socket.write("hello\r\n") }
    do {
        try await body(listener.localPort)
        await listener.close(timeout: .seconds(1))
        try await served
    } catch {
        listener.beginClosing(timeout: .zero)
        throw error
    }
}

@Test func aGoodCertificateIsAccepted() async throws {
    let authority = try CertificateAuthority()
    let server = try authority.issue(.server(names: ["localhost"]))
    try await withGreeter(server.identity()) { port in
        let line = try await greeting(port: port, tls: authority.clientSettings(serverName: "localhost"))
        #expect(line == "hello")
    }
}

@Test func anExpiredCertificateIsRefused() async throws {
    let authority = try CertificateAuthority()
    let server = try authority.issue(.server(names: ["localhost"]), validity: .expired)
    try await withGreeter(server.identity()) { port in
        let error = await #expect(throws: AsyncSocketError.self) {
            try await greeting(port: port, tls: authority.clientSettings(serverName: "localhost"))
        }
        #expect(error?.tls?.code == .certificateExpired)
    }
}
// Article: end

// Article: script
/// The client under test. Requests STARTTLS and upgrades the connection.
func upgrade(port: UInt16, tls: TLSClientSettings) async throws {
    try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { socket in
        _ = try await socket.readLine(timeout: .seconds(10))
        try await socket.write("STARTTLS\r\n")
        _ = try await socket.readLine(timeout: .seconds(10))
        try await socket.startTLS(settings: tls)
    }
}

@Test func anInjectedReplyEndsTheUpgrade() async throws {
    let peer = try ScriptedPeer.listening([
        .send("220 ready\r\n"),
        .expect("STARTTLS\r\n"),
        .send("220 go ahead\r\n250 injected\r\n"),
    ])
    let error = await #expect(throws: AsyncSocketError.self) {
        try await upgrade(port: peer.port, tls: .client(serverName: "localhost"))
    }
    #expect(error?.code == .earlyPlaintext)
    _ = try await peer.finish()
}
// Article: end

// Article: network
@Test func aTruncatedAnswerIsNoAnswer() async throws {
    let server = try ScriptedPeer.listening([.send("LENGTH 30\r\n"), .send("twenty bytes and more\r\n"), .finish])
    let relay = try TamperingRelay(toPort: server.port, fromServer: [.truncate(at: 20)])
    let error = await #expect(throws: AsyncSocketError.self) {
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: relay.port) { socket in
            _ = try await socket.readLine(timeout: .seconds(10))
            _ = try await socket.read(exactly: 30, timeout: .seconds(10))
        }
    }
    #expect(error?.code == .closedByPeer)
}
// Article: end
