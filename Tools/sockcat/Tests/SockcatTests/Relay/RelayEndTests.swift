import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Testing

@testable import SockcatCommands

/// A client never takes a failure for the end of the target's data.
@Suite(.timeLimit(.minutes(5))) struct RelayEndTests {
    enum Transport: CaseIterable {
        case tcp, unix
    }

    enum Upgrade: CaseIterable {
        case tls, startTLS

        var option: String { self == .tls ? "--listen-tls" : "--listen-starttls smtp" }
    }

    enum Target: CaseIterable {
        case refusing, unknown, untrusted, resetting
    }

    private let folder: TestFolder
    private let authority: CertificateAuthority

    init() throws {
        folder = try TestFolder()
        authority = try CertificateAuthority()
        try folder.issue(.server(names: ["localhost"]), by: authority, to: "server")
    }

    // MARK: - Clients with TLS

    @Test(arguments: Target.allCases, [TLSProtocolVersion.tls12, .tls13])
    func aClientWithTLSSeesTheFailureOverTCP(of target: Target, version: TLSProtocolVersion) async throws {
        for upgrade in Upgrade.allCases {
            let end = try await end(of: target, .tcp, upgrade.option) { try await secure($0, upgrade, version) }
            #expect(end == .reset, "\(upgrade)")
        }
    }

    /// A Unix-domain socket has no reset, but the end of the stream is not authenticated.
    @Test(arguments: Target.allCases, [TLSProtocolVersion.tls12, .tls13])
    func aClientWithTLSSeesATruncationOverUnix(of target: Target, version: TLSProtocolVersion) async throws {
        for upgrade in Upgrade.allCases {
            let end = try await end(of: target, .unix, upgrade.option) { try await secure($0, upgrade, version) }
            #expect([.truncated, .reset].contains(end), "\(upgrade)")
        }
    }

    @Test(arguments: Transport.allCases, ["-tls1_2", "-tls1_3"])
    func theClientOfOpenSSLReceivesNoCloseNotify(transport: Transport, version: String) async throws {
        let listen = transport == .tcp ? "127.0.0.1:0" : "unix:\(folder.path("socket"))"
        let relay = try await SockcatServer(
            "relay --listen \(listen) --listen-tls --cert server.pem --key server.key --to 127.0.0.1:1", in: folder)
        let address = transport == .tcp ? "-connect 127.0.0.1:\(relay.port)" : "-unix socket"
        let outcome = try await SockcatProcess.shell(
            "openssl s_client \(address) \(version) -quiet -CAfile ca.pem </dev/null; echo status $?", in: folder)
        // "closed" means that a close_notify was received.
        #expect(!outcome.output.contains("closed") && !outcome.output.contains("status 0"), "\(outcome)")
        #expect(outcome.errors.contains("errno=104") || outcome.errors.contains("unexpected eof"), "\(outcome)")
        await relay.stop()
    }

    // MARK: - Clients without TLS

    @Test(arguments: Target.allCases) func aClientWithoutTLSIsReset(target: Target) async throws {
        #expect(try await end(of: target, .tcp) { _ in } == .reset)
    }

    /// Without TLS, the end of a Unix-domain stream says nothing about its completeness.
    @Test(arguments: Target.allCases) func aUnixClientWithoutTLSReceivesNothingFromTheRelay(target: Target) async throws {
        let end = try await end(of: target, .unix) { _ in }
        let expected: [End] = target == .resetting ? [.complete("220 ready\r\npart"), .reset] : [.complete(""), .reset]
        #expect(expected.contains(end))
    }

    // MARK: - Helpers

    /// What a client sees at the end of the stream.
    private enum End: Equatable {
        case complete(String)
        case truncated
        case reset
        case other(AsyncSocketError)
    }

    private func end(
        of target: Target, _ transport: Transport, _ option: String? = nil,
        upgrade: (AsyncSocket) async throws -> Void
    ) async throws -> End {
        let (address, server) = try await start(target)
        let listen = transport == .tcp ? "127.0.0.1:0" : "unix:\(folder.path(UUID().uuidString))"
        let tls = option.map { "\($0) --cert server.pem --key server.key" } ?? ""
        let relay = try await SockcatServer("relay --listen \(listen) \(tls) --to \(address)", in: folder)
        let client = AsyncSocket()
        let end: End
        do {
            switch transport {
            case .tcp: try await client.connect(to: "127.0.0.1", port: relay.port)
            case .unix: try await client.connect(toPath: String(listen.dropFirst(5)))
            }
            try await upgrade(client)
            end = .complete(String(decoding: try await Self.conversation(client), as: UTF8.self))
        } catch let error as AsyncSocketError {
            end = [ECONNRESET, EPIPE].contains(error.errno) ? .reset : error.code == .truncated ? .truncated : .other(error)
        }
        client.disconnect()
        await relay.stop()
        withExtendedLifetime(server) {}
        return end
    }

    /// Sends a byte after the first part, and returns everything that was received.
    private static func conversation(_ client: AsyncSocket) async throws -> Data {
        guard let first = try await client.read() else { return Data() }
        try await client.write("x")
        return first + (try await client.readToEnd())
    }

    private func start(_ target: Target) async throws -> (String, (any Sendable)?) {
        switch target {
        case .refusing: return ("127.0.0.1:1", nil)
        // The resolver rejects a label of 64 bytes without a query.
        case .unknown: return (String(repeating: "a", count: 64) + ".example:1", nil)
        case .untrusted:
            let server = try await SockcatServer(
                "listen --echo --tls --cert server.pem --key server.key localhost:0", in: folder)
            return ("localhost:\(server.port) --to-tls", server)
        case .resetting:
            let server = try LocalServer { socket in
                try await socket.write("220 ready\r\npart")
                // Waits until the client has the first part.
                _ = try await socket.read(exactly: 1)
                try socket.setOption(.linger, to: .zero)
                socket.disconnect()
            }
            return ("127.0.0.1:\(server.port)", server)
        }
    }

    private func secure(_ client: AsyncSocket, _ upgrade: Upgrade, _ version: TLSProtocolVersion) async throws {
        var settings = try authority.clientSettings(serverName: "localhost")
        (settings.minimumVersion, settings.maximumVersion) = (version, version)
        switch upgrade {
        case .tls: _ = try await client.startTLS(settings: settings)
        case .startTLS: _ = try await client.startTLS(as: .smtp(name: "localhost"), settings: settings)
        }
    }
}
