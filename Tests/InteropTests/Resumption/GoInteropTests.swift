import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Go's crypto/tls, on either side of a resumed session.
@Suite(.timeLimit(.patient), .serialized) struct GoInteropTests {
    private let folder: TemporaryFolder
    private let program: String
    private let files: (certificate: String, key: String)
    private let roots: String

    init() async throws {
        folder = try TemporaryFolder()
        let source = try folder.write(Self.source, to: "peer.go")
        program = folder.path + "/peer"
        let compiler = try Program(["sh", "-ec", "\(Program.go) build -o \(program) \(source)"])
        let status = await compiler.exitStatus()
        try #require(status == 0, "\(compiler.printed)")
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        files = (
            try folder.write(issued.certificateChainPEM, to: "chain.pem"), try folder.write(issued.privateKeyPEM, to: "key.pem")
        )
        roots = try folder.write(TestCertificates.authority.rootPEM, to: "roots.pem")
    }

    @Test(arguments: TLSProtocolVersion.tested) func aServerInGoSaysThatWeResume(_ version: TLSProtocolVersion) async throws {
        let server = try Program([program, "serve", files.certificate, files.key])
        defer { server.stop() }
        try await eventually("it prints its address") { server.printed.hasSuffix("\n") }
        let port = try #require(server.printed.dropLast().split(separator: ":").last.flatMap { UInt16($0) })
        var settings = try TestCertificates.client().only(version)
        settings.resumption = .store(TLSInMemorySessionStore())
        let client = settings
        var answers: [String] = []
        for _ in 0..<4 {
            let answer = try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: client) { socket in
                try await socket.write("hello\n")
                let answer = try await socket.readLine() ?? "nothing"
                #expect(socket.tlsSession?.isResumed == (answer == "true"))
                return answer
            }
            answers.append(answer)
        }
        #expect(answers == ["false", "true", "true", "true"])
    }

    @Test(arguments: TLSProtocolVersion.tested) func aClientInGoResumesOurSessions(_ version: TLSProtocolVersion) async throws {
        var settings = TLSSettings.server(
            identity: try TLSIdentity(certificateFile: files.certificate, privateKeyFile: files.key))
        settings.sessionTickets = .issued(1)
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
        try await withThrowingTaskGroup { group in
            group.addTask {
                try await listener.run { socket in
                    for try await line in socket.lines { try await socket.write(line + "\n") }
                }
            }
            let mode = version == .tls12 ? "visit-1.2" : "visit-1.3"
            let client = try Program([program, mode, "127.0.0.1:\(listener.localPort)", roots])
            #expect(await client.exitStatus() == 0)
            #expect(client.printed == "false\ntrue\ntrue\ntrue\n")
            await listener.close(timeout: .zero)
            try await group.waitForAll()
        }
    }

    /// A server that reports for each line whether the session was resumed, and a client that does so for
    /// four connections.
    private static let source = """
        package main

        import (
            "bufio"
            "crypto/tls"
            "crypto/x509"
            "fmt"
            "os"
        )

        func check(err error) {
            if err != nil {
                fmt.Println("failed:", err)
                os.Exit(1)
            }
        }

        func serve(certificate, key string) {
            identity, err := tls.LoadX509KeyPair(certificate, key)
            check(err)
            listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{identity}})
            check(err)
            fmt.Println(listener.Addr().String())
            for {
                connection, err := listener.Accept()
                check(err)
                go func() {
                    defer connection.Close()
                    if _, err := bufio.NewReader(connection).ReadString('\\n'); err != nil {
                        return
                    }
                    state := connection.(*tls.Conn).ConnectionState()
                    fmt.Fprintf(connection, "%v\\n", state.DidResume)
                }()
            }
        }

        func visit(address, roots string, version uint16) {
            text, err := os.ReadFile(roots)
            check(err)
            pool := x509.NewCertPool()
            pool.AppendCertsFromPEM(text)
            settings := &tls.Config{
                RootCAs: pool, ServerName: "localhost", MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(4),
            }
            for number := 0; number < 4; number++ {
                connection, err := tls.Dial("tcp", address, settings)
                check(err)
                fmt.Fprintf(connection, "hello\\n")
                _, err = bufio.NewReader(connection).ReadString('\\n')
                check(err)
                fmt.Println(connection.ConnectionState().DidResume)
                connection.Close()
            }
        }

        func main() {
            switch os.Args[1] {
            case "serve":
                serve(os.Args[2], os.Args[3])
            case "visit-1.2":
                visit(os.Args[2], os.Args[3], tls.VersionTLS12)
            case "visit-1.3":
                visit(os.Args[2], os.Args[3], tls.VersionTLS13)
            }
        }

        """
}
