import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Keying material that OpenSSL's programs derive too.
@Suite(.timeLimit(.patient), .serialized) struct KeyingMaterialTests {
    private static let label = "EXPERIMENTAL interop"

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func opensslServerDerivesTheSameBytes(_ version: TLSProtocolVersion, inTask: Bool) async throws {
        let folder = try TemporaryFolder()
        let files = try TestCertificates.authority.issue(.server(names: ["localhost"])).write(to: folder.path)
        let port = try Loopback.freePort()
        let program = try Program([
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", files.certificate, "-cert_chain", files.certificate,
            "-key", files.key, "-naccept", "2", "-keymatexport", Self.label, "-keymatexportlen", "32",
        ])
        defer { program.stop() }
        // The first connection only checks that the program is listening.
        let (first, _) = try await Loopback.connect(to: port, of: program)
        first.disconnect()
        let settings = try TestCertificates.client().only(version)
        let material =
            try await inTask
            ? materialOfTask(port, settings) : materialOfDelegate(port, settings)
        #expect(await program.exitStatus() == 0)
        let hex = material.map { $0 < 16 ? "0\(String($0, radix: 16))" : String($0, radix: 16) }.joined().uppercased()
        #expect(material.count == 32 && program.printed.contains("Keying material: \(hex)"), "\(program.printed)")
    }

    private func materialOfTask(_ port: UInt16, _ settings: TLSClientSettings) async throws -> [UInt8] {
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: settings) { socket in
            try socket.exportKeyingMaterial(label: Self.label, context: nil, length: 32)
        }
    }

    private func materialOfDelegate(_ port: UInt16, _ settings: TLSClientSettings) async throws -> [UInt8] {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
        try await recorder.connected()
        try socket.beginTLS(settings: settings)
        try await recorder.secured()
        defer { socket.disconnect() }
        return try socket.exportKeyingMaterial(label: Self.label, context: nil, length: 32)
    }
}
