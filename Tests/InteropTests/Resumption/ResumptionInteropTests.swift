import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Session resumption with third-party servers and clients.
@Suite(.timeLimit(.patient), .serialized) struct ResumptionInteropTests {
    private let folder: TemporaryFolder

    init() throws {
        folder = try TemporaryFolder()
    }

    private func client(_ version: TLSProtocolVersion) throws -> TLSClientSettings {
        var settings = try TestCertificates.client().only(version)
        settings.resumption = .store(TLSInMemorySessionStore())
        return settings
    }

    private func files() throws -> (certificate: String, key: String) {
        try TestCertificates.authority.issue(.server(names: ["localhost"])).write(to: folder.makeFolder("etc"))
    }

    // MARK: - FTP

    /// An FTP client whose data connections resume the session of its control connection.
    private struct FTPClient {
        let socket: AsyncSocket
        let settings: TLSClientSettings

        /// Reads a reply (RFC 959, 4.2), which must start with `code`.
        @discardableResult
        func expect(_ code: String) async throws -> String {
            while true {
                let line = try #require(try await socket.readLine(timeout: .patient))
                guard line.dropFirst(3).first != "-" else { continue }
                guard line.hasPrefix(code) else { throw Unexpected(description: "the server says \(line), and not \(code)") }
                return line
            }
        }

        @discardableResult
        func say(_ command: String, expecting code: String) async throws -> String {
            try await socket.write(command + "\r\n")
            return try await expect(code)
        }

        /// RFC 4217, 4 and 9.
        func logIn() async throws {
            try await expect("220")
            try await say("AUTH TLS", expecting: "234")
            try await socket.startTLS(settings: settings)
            try await say("USER anonymous", expecting: "")
            try await say("PASS guest", expecting: "230")
            try await say("PBSZ 0", expecting: "200")
            try await say("PROT P", expecting: "200")
            try await say("TYPE I", expecting: "200")
        }

        /// Transfers in one direction: `bytes` to the server, or nil for the server's.
        func transfer(_ command: String, sending bytes: Data? = nil) async throws -> (received: Data, isResumed: Bool) {
            let reply = try await say("EPSV", expecting: "229")
            let port = try #require(reply.split(separator: "|").last { UInt16($0) != nil }.flatMap { UInt16($0) })
            let data = AsyncSocket()
            try await data.connect(to: "127.0.0.1", port: port)
            try await say(command, expecting: "150")
            var resuming = settings
            resuming.resumption = .session(try #require(socket.tlsSession?.resumable))
            let session = try await data.startTLS(settings: resuming)
            var received = Data()
            if let bytes { try await data.write(bytes) } else { received = try await data.readToEnd() }
            try await data.close()
            try await expect("226")
            return (received, session.isResumed)
        }
    }

    /// Debian's vsftpd, which by default rejects data connections that do not resume (`require_ssl_reuse`).
    @Test(arguments: [TLSProtocolVersion.tls12]) func vsftpdTakesOurDataConnections(_ version: TLSProtocolVersion) async throws {
        let port = try Loopback.freePort()
        let (certificate, key) = try files()
        let root = try folder.makeFolder("root")
        let uploads = try folder.makeFolder("root/uploads", owner: "ftp")
        let settings = [
            "listen": "YES", "listen_ipv6": "NO", "listen_address": "127.0.0.1", "listen_port": "\(port)", "background": "NO",
            "anonymous_enable": "YES", "local_enable": "NO", "anon_root": root, "write_enable": "YES",
            "anon_upload_enable": "YES", "anon_umask": "022", "no_anon_password": "YES", "ssl_enable": "YES",
            "allow_anon_ssl": "YES",
            "force_anon_data_ssl": "YES", "force_anon_logins_ssl": "YES", "rsa_cert_file": certificate,
            "rsa_private_key_file": key, "ssl_ciphers": "HIGH", "secure_chroot_dir": try folder.makeFolder("empty"),
            "xferlog_enable": "NO",
        ]
        let file = try folder.write(settings.map { "\($0)=\($1)\n" }.sorted().joined(), to: "vsftpd.conf")
        let server = try Program(["vsftpd", file])
        defer { server.stop() }
        let (probe, _) = try await Loopback.connect(to: port, of: server)
        probe.disconnect()
        let content = pattern(100_000)
        try content.write(to: URL(fileURLWithPath: root + "/file"))
        let tls = try client(version)
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: port) { socket in
            let ftp = FTPClient(socket: socket, settings: tls)
            try await ftp.logIn()
            for number in 0..<20 {
                let list = try await ftp.transfer("LIST")
                #expect(list.isResumed && String(decoding: list.received, as: UTF8.self).contains("uploads"))
                let file = try await ftp.transfer("RETR file")
                #expect(file.isResumed && file.received == content)
                #expect(try await ftp.transfer("STOR uploads/\(number)", sending: content).isResumed)
                #expect(try Data(contentsOf: URL(fileURLWithPath: "\(uploads)/\(number)")) == content)
            }
            try await ftp.say("QUIT", expecting: "221")
        }
    }

    // MARK: - nginx

    @Test(arguments: TLSProtocolVersion.tested, [true, false])
    func nginxReportsResumption(_ version: TLSProtocolVersion, withTickets: Bool) async throws {
        let port = try Loopback.freePort()
        let (certificate, key) = try files()
        let configuration = """
            daemon off;
            master_process off;
            error_log stderr;
            pid \(folder.path)/nginx.pid;
            events {}
            http {
              access_log off;
              client_body_temp_path \(folder.path)/body;
              proxy_temp_path \(folder.path)/proxy;
              fastcgi_temp_path \(folder.path)/fastcgi;
              uwsgi_temp_path \(folder.path)/uwsgi;
              scgi_temp_path \(folder.path)/scgi;
              server {
                listen 127.0.0.1:\(port) ssl;
                ssl_protocols TLSv1.2 TLSv1.3;
                ssl_certificate \(certificate);
                ssl_certificate_key \(key);
                ssl_session_tickets \(withTickets ? "on" : "off");
                ssl_session_cache \(withTickets ? "off" : "shared:cache:1m");
                location / { return 200 "reused: $ssl_session_reused $ssl_protocol\\n"; }
              }
            }

            """
        let server = try Program(["nginx", "-c", folder.write(configuration, to: "nginx.conf")])
        defer { server.stop() }
        let (probe, _) = try await Loopback.connect(to: port, of: server)
        probe.disconnect()
        let tls = try client(version)
        for attempt in 0..<5 {
            let (answer, isResumed) = try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: tls) { socket in
                try await socket.write("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
                let answer = try await socket.readToEnd()
                return (String(decoding: answer, as: UTF8.self), try #require(socket.tlsSession).isResumed)
            }
            #expect(answer.contains("reused: \(attempt > 0 ? "r" : ".") \(version)"), "\(answer) \(server.printed)")
            #expect(isResumed == (attempt > 0))
        }
    }

    // MARK: - Our servers

    /// `-reconnect` makes five more connections with the session of the first (TLS 1.2 only).
    @Test func opensslResumesOurSessionsOfTLS12() async throws {
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(1)
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        try await withThrowingTaskGroup { group in
            group.addTask { try await listener.run { _ = try await $0.readToEnd() } }
            let program = try Program(
                [
                    "openssl", "s_client", "-connect", "127.0.0.1:\(listener.localPort)", "-tls1_2", "-reconnect",
                ],
                input: "")
            _ = await program.exitStatus()
            #expect(program.printed.components(separatedBy: "Reused, TLSv1.2").count == 6, "\(program.printed.suffix(1500))")
            await listener.close(timeout: .zero)
            try await group.waitForAll()
        }
    }

    /// Two of our processes behind HAProxy with shared ticket keys.
    @Test(arguments: TLSProtocolVersion.tested)
    func processesBehindHAProxyResumeEachOthersSessions(_ version: TLSProtocolVersion) async throws {
        let keys = (1...3).map { Data(repeating: $0, count: 80).base64EncodedString() }.joined(separator: "\n")
        let keyFile = try folder.write(keys, to: "keys")
        let (certificate, key) = try files()
        let probe = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent().appendingPathComponent(
            "EngineProbe")
        let servers = try (0..<2).map { _ in try Program([probe.path, "ticket-server", certificate, key, keyFile]) }
        defer { for server in servers { server.stop() } }
        var lines: [String] = []
        for (number, server) in servers.enumerated() {
            try await eventually("it prints its port") { server.printed.hasSuffix("\n") }
            lines.append("  server s\(number) 127.0.0.1:\(server.printed.dropLast())")
        }
        let port = try Loopback.freePort()
        let configuration = """
            defaults
              mode tcp
              timeout connect 60s
              timeout client 60s
              timeout server 60s
            listen front
              bind 127.0.0.1:\(port)
              balance roundrobin
            \(lines.joined(separator: "\n"))

            """
        let front = try Program(["haproxy", "-db", "-f", folder.write(configuration, to: "haproxy.cfg")])
        defer { front.stop() }
        let (first, _) = try await Loopback.connect(to: port, of: front)
        first.disconnect()
        let tls = try client(version)
        let count = ProcessInfo.processInfo.environment["RESUMPTIONS"].flatMap { Int($0) } ?? 400
        var (resumed, crossed, last): (Int, Int, String) = (0, 0, "")
        for _ in 0..<count {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: tls) { socket in
                // The process ID, and whether the session was resumed.
                let line = try #require(try await socket.readLine())
                let words = line.split(separator: " ").map(String.init)
                let isResumed = try #require(socket.tlsSession).isResumed
                #expect(words.count == 2 && words.last == "\(isResumed)")
                if isResumed { resumed += 1 }
                if isResumed, words.first != last { crossed += 1 }
                last = words.first ?? ""
            }
        }
        #expect(
            resumed == count - 1 && crossed >= (count - 1) * 9 / 10,
            "\(resumed) of \(count) resumed, \(crossed) by the other process")
    }
}
