import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// A program that ignores every error (`try?` everywhere, no delegate method but `didRead`) with a peer that
/// fails at each step. It never sends a secret byte in plaintext.
@Suite(.timeLimit(.patient)) struct RecklessProgramTests {
    private static let secret = "the password is swordfish"

    /// A mail client that upgrades and then sends its secret, whatever happens.
    private final class RecklessClient: AsyncSocketDelegate, Sendable {
        private let settings: TLSClientSettings

        init(_ settings: TLSClientSettings) {
            self.settings = settings
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            guard tag == 0 else { return }
            socket.write(Data("STARTTLS\r\n"), withTimeout: -1)
            socket.readData(to: Data("\n"), tag: 1)
            try? socket.beginTLS(settings: settings)
            socket.write(Data(RecklessProgramTests.secret), withTimeout: -1)
            socket.readData(to: Data("\n"), tag: 2)
            try? socket.beginTLS(settings: settings)
            socket.write(Data(RecklessProgramTests.secret), withTimeout: -1)
            socket.disconnectAfterWriting()
        }
    }

    /// A server that lets its clients upgrade and then sends its secret, whatever happens.
    private final class RecklessServer: AsyncSocketDelegate, Sendable {
        private let settings: TLSServerSettings
        private let sockets = Locked<[AsyncSocket]>([])

        var hasEnded: Bool { sockets.withLock { !$0.isEmpty && $0.allSatisfy(\.isDisconnected) } }

        init(_ settings: TLSServerSettings) {
            self.settings = settings
        }

        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
            sockets.withLock { $0.append(newSocket) }
            newSocket.write(Data("220 ready\n"), withTimeout: -1)
            newSocket.readData(to: Data("\n"), tag: 0)
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            guard tag == 0 else { return }
            socket.write(Data("220 go ahead\n"), withTimeout: -1)
            try? socket.beginTLS(settings: settings)
            socket.write(Data(RecklessProgramTests.secret), withTimeout: -1)
            socket.readData(to: Data("\n"), tag: 1)
            try? socket.beginTLS(settings: settings)
            socket.write(Data(RecklessProgramTests.secret), withTimeout: -1)
            socket.disconnectAfterWriting()
        }
    }

    /// How a peer fails after a request to upgrade.
    enum Failure: CaseIterable, Sendable {
        case silent, closes, resets, saysNo, injects, speaksNoTLS, isCutOff, isUntrusted, isForAnotherHost, breaksOffAfterwards
    }

    /// Kinds of unusable settings.
    enum Fault: CaseIterable, Sendable {
        case none, missingRoots, emptyRoots, badVersion, badTimeout, badProtocol, badName

        var isNone: Bool { self == .none }

        func applied<Side>(to settings: TLSSettings<Side>) -> TLSSettings<Side> {
            var settings = settings
            switch self {
            case .none: break
            case .missingRoots: settings.trustRoots = .file(path: "/no/such/file.pem")
            case .emptyRoots: settings.trustRoots = .certificates([])
            case .badVersion: (settings.minimumVersion, settings.maximumVersion) = (.tls13, .tls12)
            case .badTimeout: settings.handshakeTimeout = .zero
            case .badProtocol: settings.applicationProtocols = [""]
            case .badName:
                guard settings.values.role == .client else { return Fault.badTimeout.applied(to: settings) }
                settings.values.serverName = "a b"
            }
            return settings
        }
    }

    /// Client failures as seen by the server.
    private static let clientFailures: [Failure] = [.closes, .resets, .injects, .speaksNoTLS, .isCutOff, .isUntrusted]

    private func stepsOfServer(_ failure: Failure) throws -> [ScriptedPeer.Step] {
        let settings = try TestCertificates.server()
        let reply = ScriptedPeer.Step.send("220 go ahead\n")
        let rest: [ScriptedPeer.Step]
        switch failure {
        case .silent: rest = []
        case .closes: rest = [.close]
        case .resets: rest = [.reset]
        case .saysNo: rest = [.send("454 no TLS here\n")]
        case .injects: rest = [.send("220 go ahead\n250 injected\n"), .startTLS(settings)]
        case .speaksNoTLS: rest = [reply, .send("250 what do you mean?\n")]
        case .isCutOff: rest = [reply, .startTLS(settings, cut: .init(after: 300, .finish))]
        case .isUntrusted:
            let identity = try TestCertificates.stranger.issue(.server(names: ["localhost"])).identity()
            rest = [reply, .startTLS(.server(identity: identity))]
        case .isForAnotherHost: rest = [reply, .startTLS(try TestCertificates.server(for: ["other.example"]))]
        case .breaksOffAfterwards: rest = [reply, .startTLS(settings), .reset]
        }
        return [.send("220 ready\n"), .expect("STARTTLS\r\n")] + rest
    }

    private func stepsOfClient(_ failure: Failure) throws -> [ScriptedPeer.Step] {
        let start: [ScriptedPeer.Step] = [.expect("220 ready\n"), .send("STARTTLS\n")]
        let (client, _) = try TestCertificates.mutual()
        switch failure {
        case .closes: return start + [.close]
        case .resets: return start + [.reset]
        case .injects: return [.expect("220 ready\n"), .send("STARTTLS\nGIVE ME THE PASSWORD\n"), .finish]
        case .speaksNoTLS: return start + [.expect("220 go ahead\n"), .send("GIVE ME THE PASSWORD\n"), .finish]
        case .isCutOff: return start + [.expect("220 go ahead\n"), .startTLS(client, cut: .init(after: 200, .finish))]
        default:
            let strangers = try TestCertificates.mutual(clientFrom: TestCertificates.stranger).client
            return start + [.expect("220 go ahead\n"), .startTLS(strangers)]
        }
    }

    /// With unusable settings only the plaintext before `startTLS` is sent, and maybe not all of it.
    private func expect(_ sent: String, beginsWith plaintext: String, _ fault: Fault) {
        #expect(!sent.contains(Self.secret))
        #expect(fault.isNone ? sent.hasPrefix(plaintext) || plaintext.hasPrefix(sent) : plaintext.hasPrefix(sent))
        #expect(!sent.isEmpty || !fault.isNone)
    }

    @Test(arguments: Failure.allCases, Fault.allCases)
    func aRecklessClientTellsNoSecret(_ failure: Failure, _ fault: Fault) async throws {
        var settings = fault.applied(to: try TestCertificates.client())
        if fault != .badTimeout { settings.handshakeTimeout = .seconds(0.3) }
        let peer = try ScriptedPeer.listening(stepsOfServer(failure), timeout: .patient)
        let relay = try TamperingRelay(toPort: peer.port)
        let client = RecklessClient(settings)
        let socket = AsyncSocket(inlineDelegate: client)
        try? socket.connect(toHost: "127.0.0.1", onPort: relay.port)
        socket.readData(to: Data("\n"), tag: 0)
        if failure == .silent, fault == .none {
            _ = try? await peer.finish()
            socket.disconnect()
        }
        try await eventually("the connection has ended") { socket.isDisconnected }
        peer.stop()
        _ = try? await relay.finish()
        let sent = String(decoding: relay.original.fromClient, as: UTF8.self)
        expect(sent, beginsWith: "STARTTLS\r\n", fault)
    }

    @Test(arguments: clientFailures, Fault.allCases)
    func aRecklessServerTellsNoSecret(_ failure: Failure, _ fault: Fault) async throws {
        var settings = fault.applied(to: try TestCertificates.mutual().server)
        if fault.isNone { settings.handshakeTimeout = .seconds(0.3) }
        let server = RecklessServer(settings)
        let listener = AsyncSocket(inlineDelegate: server)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let relay = try TamperingRelay(toPort: listener.localPort)
        let peer = try ScriptedPeer.connecting(toPort: relay.port, stepsOfClient(failure), timeout: .patient)
        _ = try? await peer.finish()
        try await eventually("the connection has ended") { server.hasEnded }
        peer.stop()
        _ = try? await relay.finish()
        let sent = String(decoding: relay.original.fromServer, as: UTF8.self)
        expect(sent, beginsWith: "220 ready\n220 go ahead\n", fault)
        withExtendedLifetime((server, listener)) {}
    }
}
