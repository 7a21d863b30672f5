import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// `TLSSettings.client` expects the host that the program connected to.
@Suite(.timeLimit(.patient)) struct ExpectedHostTests {
    /// Returns settings without a server name that trust the tests' CA.
    private static func client() throws -> TLSClientSettings {
        var settings = TLSSettings.client
        settings.trustRoots = try TestCertificates.authority.roots
        return settings
    }

    /// Returns the error of the whole connection, or nil if it succeeds.
    private static func error(
        _ connect: (AsyncSocket) async throws -> Void
    ) async -> AsyncSocketError? {
        let socket = AsyncSocket()
        do {
            try await connect(socket)
            try await socket.write("hello\n")
            _ = try await socket.readLine()
            try await socket.close()
            return nil
        } catch {
            return error as? AsyncSocketError
        }
    }

    /// Runs a server with a certificate for `name` that echoes a line.
    private static func withServer(
        for name: String, path: String? = nil, _ test: (SocketListener) async throws -> Void
    ) async throws {
        let tls = try TestCertificates.server(for: [name])
        let listener =
            if let path { try SocketListener(path: path, tls: tls) } else {
                try SocketListener(port: 0, interface: "127.0.0.1", tls: tls)
            }
        try await serving(listener, onError: { _, _ in }, { try await $0.write("\($0.readLine() ?? "")\n") }) { _ in
            try await test(listener)
        }
    }

    @Test(arguments: ["localhost", "127.0.0.1"]) func theHostMustBeInTheCertificate(_ name: String) async throws {
        try await Self.withServer(for: name) { listener in
            for host in ["localhost", "127.0.0.1", "LOCALHOST."] {
                let tls = try Self.client()
                let code: TLSError.Code? = host.lowercased().hasPrefix(name) ? nil : .hostNameMismatch
                let first = await Self.error { try await $0.connect(to: host, port: listener.localPort, tls: tls) }
                #expect(first?.tls?.code == code && (first == nil) == (code == nil), "\(host): \(String(describing: first))")
                let later = await Self.error { socket in
                    try await socket.connect(to: host, port: listener.localPort)
                    try await socket.startTLS(settings: tls)
                }
                #expect(later?.tls?.code == code && (later == nil) == (code == nil), "\(host): \(String(describing: later))")
            }
        }
    }

    /// The same for a delegate, even if it then connects to another host.
    @Test func aDelegatesConnectionExpectsItsOwnHost() async throws {
        try await Self.withServer(for: "localhost") { listener in
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            for host in ["localhost", "127.0.0.1", "localhost"] {
                try socket.connect(toHost: host, onPort: listener.localPort)
                try socket.beginTLS(settings: Self.client())
                if host == "localhost" {
                    try await recorder.connected()
                    try await recorder.secured()
                    socket.disconnect()
                    #expect(try await recorder.disconnected() == nil)
                } else {
                    #expect(try await recorder.disconnected()?.tls?.code == .hostNameMismatch)
                }
            }
        }
    }

    @Test func aGivenNameWins() async throws {
        try await Self.withServer(for: "localhost") { listener in
            let tls = try TestCertificates.client(for: "localhost")
            let error = await Self.error { try await $0.connect(to: "127.0.0.1", port: listener.localPort, tls: tls) }
            #expect(error == nil)
        }
    }

    /// Behind a proxy, the certificate must be for the host, not for the proxy.
    @Test(arguments: ProxyScript.allCases) func theHostBehindAProxyIsExpected(_ kind: ProxyScript) async throws {
        for (name, isGood) in [(ProxyScript.host, true), ("127.0.0.1", false)] {
            let server = try TestCertificates.server(for: [name])
            let peer = try ScriptedPeer.listening(
                kind.tunnel() + (isGood ? [.startTLS(server), .expect("hello\n"), .send("hello\n")] : [.startTLS(server)]))
            let tls = try Self.client()
            let error = await Self.error { socket in
                try await socket.connect(
                    to: ProxyScript.host, port: ProxyScript.port, proxy: kind.proxy(on: peer.port), tls: tls)
            }
            #expect(error?.tls?.code == (isGood ? nil : .hostNameMismatch) && (error == nil) == isGood)
            peer.stop()
        }
    }

    /// Without a name to expect, no connection is made and nothing is sent in plaintext.
    @Test func aPathNeedsAName() async throws {
        let folder = try TemporaryFolder()
        let path = folder.path("s")
        try await Self.withServer(for: "localhost", path: path) { _ in
            let tls = try Self.client()
            let first = await Self.error { try await $0.connect(toPath: path, tls: tls) }
            #expect(first?.tls?.code == .invalidSettings && first?.message.contains("not made to a host") == true)
            let later = await Self.error { socket in
                try await socket.connect(toPath: path)
                try await socket.startTLS(settings: tls)
            }
            #expect(later?.tls?.code == .invalidSettings && later?.message.contains("not made to a host") == true)
            let named = try TestCertificates.client(for: "localhost")
            let line = try await AsyncSocket.withConnection(toPath: path, tls: named) { socket in
                try await socket.write("hello\n")
                return try await socket.readLine()
            }
            #expect(line == "hello")
        }
    }

    /// `trust` is called. If it rejects the server, the connection closes before any data is sent.
    @Test func trustDecidesAboutTheServer() async throws {
        try await Self.withServer(for: "localhost") { listener in
            let tls = try Self.client()
            for isAccepted in [true, false] {
                let error = await Self.error { socket in
                    try await socket.connect(
                        to: "localhost", port: listener.localPort, tls: tls,
                        trust: { peer in peer.serverName == "localhost" && isAccepted })
                }
                #expect(error?.tls?.code == (isAccepted ? nil : .trustRejected) && (error == nil) == isAccepted)
            }
            let error = await Self.error { try await $0.connect(to: "localhost", port: listener.localPort, trust: { _ in true }) }
            #expect(error?.code == .badParameter)
        }
    }
}
