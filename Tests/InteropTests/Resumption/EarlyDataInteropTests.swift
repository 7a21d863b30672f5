import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Early data with third-party servers and clients.
@Suite(.timeLimit(.patient), .serialized) struct EarlyDataInteropTests {
    private let folder: TemporaryFolder

    init() throws {
        folder = try TemporaryFolder()
    }

    private func files() throws -> (certificate: String, key: String) {
        try TestCertificates.authority.issue(.server(names: ["localhost"])).write(to: folder.makeFolder("etc"))
    }

    // MARK: - Our client

    /// Its anti-replay protection is on.
    @Test func opensslsServerTakesOurEarlyDataOnce() async throws {
        let port = try Loopback.freePort()
        let (certificate, key) = try files()
        let server = try Program([
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", certificate, "-cert_chain", certificate, "-key", key,
            "-tls1_3", "-early_data", "-max_early_data", "1000",
        ])
        defer { server.stop() }
        let (probe, _) = try await Loopback.connect(to: port, of: server)
        probe.disconnect()
        var settings = try TestCertificates.client()
        settings.resumption = .store(TLSInMemorySessionStore())
        let (socket, recorder) = try await Loopback.connect(to: port, of: server)
        try socket.beginTLS(settings: settings)
        try await recorder.secured()
        socket.readData(withTimeout: .patient, tag: 0)
        try await eventually("a ticket is there") { socket.tlsSession?.resumable != nil }
        let session = try #require(socket.tlsSession?.resumable)
        #expect(session.maximumEarlyDataBytes == 1000 && socket.tlsSession?.earlyData == .notOffered)
        socket.disconnect()
        settings.resumption = .session(session)
        for (number, outcome) in [TLSEarlyDataOutcome.accepted, .rejected].enumerated() {
            settings.earlyData = TLSEarlyData(Array("request \(number)\n".utf8))
            let (socket, recorder) = try await Loopback.connect(to: port, of: server)
            try socket.beginTLS(settings: settings)
            try await recorder.secured()
            #expect(socket.tlsSession?.earlyData == outcome)
            try await eventually("the server prints it") { server.printed.contains("request \(number)") }
            let words = outcome == .accepted ? "Early data received:" : "Early data was rejected"
            try await eventually("the server says so too") { server.printed.contains(words) }
            socket.disconnect()
        }
        #expect(server.printed.components(separatedBy: "request").count == 3)
    }

    /// nginx responds before it has received our Finished, and reports this unless our Finished is very fast.
    /// If it closes before that, it does not send a new ticket, and the next connection has no session.
    @Test func nginxAnswersOurEarlyData() async throws {
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
                ssl_protocols TLSv1.3;
                ssl_certificate \(certificate);
                ssl_certificate_key \(key);
                ssl_early_data on;
                location / { return 200 "early: [$ssl_early_data] reused: $ssl_session_reused\\n"; }
              }
            }

            """
        let server = try Program(["nginx", "-c", folder.write(configuration, to: "nginx.conf")])
        defer { server.stop() }
        let (probe, _) = try await Loopback.connect(to: port, of: server)
        probe.disconnect()
        var settings = try TestCertificates.client()
        settings.resumption = .store(TLSInMemorySessionStore())
        settings.applicationProtocols = ["http/1.1"]
        settings.earlyData = TLSEarlyData(Array("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8))
        let tls = settings
        var answers: [String] = []
        for _ in 0..<20 {
            let (outcome, answer) = try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: tls) { socket in
                (socket.tlsSession?.earlyData, String(decoding: try await socket.readToEnd(), as: UTF8.self))
            }
            #expect(outcome == .accepted || outcome == .notOffered)
            #expect(answer.contains(outcome == .accepted ? "reused: r" : "early: [] reused: ."), "\(answer)")
            answers.append(answer)
        }
        #expect(answers.contains { $0.contains("early: [1] reused: r") }, "\(answers)")
    }

    // MARK: - Our servers

    @Test(arguments: [false, true]) func opensslsClientSendsUsEarlyData(isAnsweredEarly: Bool) async throws {
        var settings = try TestCertificates.server()
        let responder = TLSEarlyDataResponder { .send(Array("at once: ".utf8) + $0.bytes) }
        settings.sessionTickets = .issued(1)
        settings.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 16_384, responder: isAnsweredEarly ? responder : nil)
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        let early = try folder.write("early words\n", to: "early")
        let file = folder.path + "/session"
        func run(_ arguments: [String], input: String) async throws -> String {
            let program = try Program(
                [
                    "openssl", "s_client", "-connect", "127.0.0.1:\(listener.localPort)", "-servername", "localhost", "-tls1_3",
                    "-ign_eof",
                ] + arguments, input: input)
            _ = await program.exitStatus()
            return program.printed
        }
        try await withThrowingTaskGroup { group in
            group.addTask {
                try await listener.run { socket in
                    // Reads lines until the final word. Then the client closes too.
                    for try await line in socket.lines {
                        try await socket.write("<\(line)>\n")
                        if line == "end" { return }
                    }
                }
            }
            let first = try await run(["-sess_out", file], input: "end\n")
            #expect(first.contains("<end>"), "\(first)")
            let second = try await run(["-sess_in", file, "-early_data", early], input: "end\n")
            #expect(second.contains("Early data was accepted") && second.contains("<end>"), "\(second)")
            #expect(second.contains(isAnsweredEarly ? "at once: early words" : "<early words>"), "\(second)")
            // The same ticket again: s_client does not send the data a second time.
            let third = try await run(["-sess_in", file, "-early_data", early], input: "end\n")
            #expect(third.contains("Early data was rejected") && third.contains("<end>"), "\(third)")
            #expect(third.contains("Reused, TLSv1.3") && !third.contains("early words"), "\(third)")
            await listener.close(timeout: .zero)
            try await group.waitForAll()
        }
    }
}
