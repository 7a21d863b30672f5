import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// MariaDB's server, which upgrades its connections to TLS and closes them without close_notify.
@Suite(.timeLimit(.patient), .serialized) struct MariaDBTests {
    private let folder: TemporaryFolder
    private let port: UInt16
    private let server: Program

    init() throws {
        folder = try TemporaryFolder()
        port = try Loopback.freePort()
        let (certificate, key) = try TestCertificates.authority.issue(.server(names: ["localhost"]))
            .write(to: folder.makeFolder("etc"))
        let data = try folder.makeFolder("data")
        server = try Program([
            "mariadbd", "--no-defaults", "--user=root", "--datadir=\(data)", "--socket=\(data)/socket",
            "--pid-file=\(data)/pid", "--port=\(port)", "--bind-address=127.0.0.1", "--ssl-cert=\(certificate)",
            "--ssl-key=\(key)",
            // Without system tables it starts within a second.
            "--skip-grant-tables", "--skip-innodb", "--default-storage-engine=Aria",
        ])
    }

    /// Its packets start with a length and a sequence number.
    private func packet(_ number: UInt8, _ bytes: [UInt8]) -> Data {
        Data([UInt8(truncatingIfNeeded: bytes.count), 0, 0, number] + bytes)
    }

    private func readPacket(_ socket: AsyncSocket) async throws -> Data {
        let header = [UInt8](try await socket.read(exactly: 4))
        return try await socket.read(exactly: Int(header[0]) | Int(header[1]) << 8 | Int(header[2]) << 16)
    }

    /// Logs in and out. Returns the session and the error code of the connection.
    private func visit(_ settings: TLSClientSettings) async throws -> (session: TLSSession, end: AsyncSocketError.Code?) {
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { socket in
            _ = try await readPacket(socket)
            // Protocol 4.1, TLS, plugin authentication; packets of up to 16 MiB; UTF-8.
            let wishes: [UInt8] = [0, 0x8A, 0x08, 0, 0, 0, 0, 1, 33] + [UInt8](repeating: 0, count: 23)
            try await socket.write(packet(1, wishes))
            let session = try await socket.startTLS(settings: settings)
            try await socket.write(packet(2, wishes + Array("root\0\0mysql_native_password\0".utf8)))
            // OK.
            #expect(try await readPacket(socket).first == 0)
            // COM_QUIT.
            try await socket.write(packet(0, [1]))
            do {
                _ = try await socket.readToEnd()
                return (session, nil)
            } catch {
                return (session, (error as? AsyncSocketError)?.code)
            }
        }
    }

    @Test(arguments: TLSProtocolVersion.tested) func anEndWithoutCloseNotifyKeepsTheSession(_ version: TLSProtocolVersion)
        async throws
    {
        defer { server.stop() }
        let (probe, _) = try await Loopback.connect(to: port, of: server)
        probe.disconnect()
        var settings = try TestCertificates.client().only(version)
        settings.resumption = .store(TLSInMemorySessionStore())
        for number in 0..<10 {
            let (session, end) = try await visit(settings)
            #expect(session.protocolVersion == version && session.isResumed == (number > 0))
            #expect(end == .truncated)
        }
    }
}
