import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// tshark records a loopback connection and decrypts it with the key log.
@Suite(.timeLimit(.patient), .serialized) struct CaptureTests {
    @Test(arguments: TLSProtocolVersion.tested) func theKeyLogDecryptsARecording(_ version: TLSProtocolVersion) async throws {
        let folder = try TemporaryFolder()
        let (recording, keys) = ("\(folder.path)/recording", "\(folder.path)/keys")
        let server = try EchoServer(TestCertificates.server().only(version))
        let tshark = try Program(["tshark", "-i", "lo", "-f", "tcp port \(server.port)", "-w", recording, "-P", "-l"])
        defer { tshark.stop() }
        try await mark(server.port, in: tshark)
        var settings = try TestCertificates.client().only(version)
        settings.keyLogFile = keys
        let text = "attack at dawn \(version)"
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: server.port, tls: settings) { socket in
            try await socket.write(text)
            #expect(try await socket.read(exactly: text.utf8.count) == Data(text))
        }
        try await mark(server.port, in: tshark)
        tshark.stop()
        _ = await tshark.exitStatus()
        let hex = text.utf8.map { $0 < 16 ? "0\(String($0, radix: 16))" : String($0, radix: 16) }.joined()
        // Once to the server and once back.
        #expect(try await payloads(of: recording, server.port, keys) == [hex, hex])
        #expect(try await payloads(of: recording, server.port, nil) == [])
    }

    /// Returns when tshark has recorded a connection that starts after the call, and so everything before it.
    private func mark(_ port: UInt16, in tshark: Program) async throws {
        let clock = try await Link.make()
        for _ in 0..<100 {
            let recorder = Recorder()
            let socket = AsyncSocket(inlineDelegate: recorder)
            try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
            try await recorder.connected()
            // "51688 → 24999 [SYN]"
            let sign = "\(socket.localPort) → \(port) [SYN]"
            for _ in 0..<10 {
                if tshark.printed.contains(sign) { return }
                try await clock.tick(seconds: 0.05)
            }
        }
        throw Unexpected(description: "tshark records nothing: \(tshark.printed)")
    }

    /// Returns the decrypted TLS payloads in the recording, in hexadecimal.
    private func payloads(of recording: String, _ port: UInt16, _ keys: String?) async throws -> [String] {
        let program = try Program(
            ["tshark", "-r", recording, "-d", "tcp.port==\(port),tls", "-Y", "data.data", "-T", "fields", "-e", "data.data"]
                + (keys.map { ["-o", "tls.keylog_file:\($0)"] } ?? []))
        defer { program.stop() }
        #expect(await program.exitStatus() == 0)
        return program.printed.split(separator: "\n").map(String.init).filter { !$0.hasPrefix("Running as user") }
    }
}
