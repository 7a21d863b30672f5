import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Uses GnuTLS as an oracle in addition to OpenSSL: GnuTLS sends chains, and its verdicts are compared with
/// this library's. `Verdict.refusedByUsAlone` lists the differences. There is no chain that only this library
/// trusts.
@Suite(.timeLimit(.patient), .serialized) struct GnuTLSVerdictTests {
    private let folder: TemporaryFolder

    init() throws {
        folder = try TemporaryFolder()
    }

    private func files(_ chain: VerdictCase) async throws -> (shown: String, key: String, trusted: String) {
        let key = try await CerttoolAuthority.shared.key(chain.leaf.key)
        return (
            try folder.write(try await chain.pem(chain.shown), to: "shown.pem"), key,
            try folder.write(try await chain.pem(chain.trusted), to: "trusted.pem")
        )
    }

    /// Returns the revocation lists as arguments for a GnuTLS program and as settings for us.
    private func lists(_ chain: VerdictCase) async throws -> (arguments: [String], sources: [TLSRevocationSource]) {
        guard let list = chain.list else { return ([], []) }
        let file = try folder.write(try await CerttoolAuthority.shared.list(list, of: chain.root), to: "lists.pem")
        return (["--x509crlfile", file], [.file(path: file)])
    }

    private func server(_ arguments: [String]) async throws -> (Program, UInt16) {
        let port = try Loopback.freePort()
        let program = try Program(["gnutls-serv", "--echo", "--port", "\(port)"] + arguments)
        let (socket, _) = try await Loopback.connect(to: port, of: program)
        socket.disconnect()
        return (program, port)
    }

    /// Returns whether gnutls-cli receives its line back.
    private func isEchoed(_ arguments: [String], _ port: UInt16) async throws -> (Bool, String) {
        let program = try Program(["gnutls-cli", "--port", "\(port)"] + arguments + ["127.0.0.1"])
        defer { program.stop() }
        try program.write("an echo\n")
        try await eventually("gnutls-cli is done") { program.printed.contains("an echo") || !program.isRunning }
        return (program.printed.contains("an echo"), program.printed)
    }

    // MARK: - Servers' certificates

    static let serverCases =
        VerdictCase.ofBothSides(.server) + VerdictCase.names + VerdictCase.constraints + VerdictCase.anchors
        + VerdictCase.revoked(.server)

    @Test(arguments: serverCases) func clientsAgree(about chain: VerdictCase) async throws {
        let (shown, key, trusted) = try await files(chain)
        let (server, port) = try await server([
            "--disable-client-cert", "--x509certfile", shown, "--x509keyfile", key,
        ])
        defer { server.stop() }
        var settings = TLSSettings.client(serverName: chain.host)
        settings.trustRoots = .certificates(try TLSCertificate.certificates(file: trusted))
        let lists = try await lists(chain)
        settings.values.rules.revocationLists = lists.sources
        let socket = AsyncSocket()
        var refusal: AsyncSocketError?
        do throws(any Error) {
            try await socket.connect(to: "127.0.0.1", port: port, tls: settings)
            try await socket.write("a line\n")
            #expect(try await socket.readLine() == "a line")
        } catch let error as AsyncSocketError {
            refusal = error
        }
        socket.disconnect()
        #expect((refusal == nil) == chain.verdict.isTrusted, "\(refusal.map { "\($0)" } ?? "trusted")")
        if let refusal { #expect(refusal.fault == .certificate, "\(refusal)") }
        let (isTrusted, printed) = try await isEchoed(
            ["--x509cafile", trusted, "--verify-hostname", chain.host] + lists.arguments, port)
        #expect(chain.verdict.allows(gnuTLS: isTrusted), "\(printed)\n\(server.printed)")
    }

    // MARK: - Clients' certificates

    static let clientCases = VerdictCase.ofBothSides(.client) + VerdictCase.clientConstraints + VerdictCase.revoked(.client)

    @Test(arguments: clientCases) func serversAgree(about chain: VerdictCase) async throws {
        let (shown, key, trusted) = try await files(chain)
        let own = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        let (ownFile, ownKey) = try own.write(to: folder.path)
        let arguments = ["--insecure", "--x509certfile", shown, "--x509keyfile", key]
        var settings = try TestCertificates.server()
        settings.clients = .certificates(.required)
        settings.trustRoots = .certificates(try TLSCertificate.certificates(file: trusted))
        let lists = try await lists(chain)
        settings.values.rules.revocationLists = lists.sources
        let echo = try EchoServer(settings)
        let (isOurs, ours) = try await isEchoed(arguments, echo.port)
        #expect(isOurs == chain.verdict.isTrusted, "\(ours)\n\(echo.ends)")
        if !isOurs {
            try await eventually("our server has refused it") { !echo.ends.isEmpty }
            #expect(echo.ends.first??.fault == .certificate, "\(echo.ends)")
        }
        let (server, port) = try await server(
            [
                "--x509cafile", trusted, "--require-client-cert", "--verify-client-cert", "--x509certfile", ownFile,
                "--x509keyfile", ownKey,
            ] + lists.arguments)
        defer { server.stop() }
        let (isTrusted, printed) = try await isEchoed(arguments, port)
        #expect(chain.verdict.allows(gnuTLS: isTrusted), "\(printed)\n\(server.printed)")
    }
}
