import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Several server names on one DTLS port.
@Suite(.timeLimit(.patient)) struct DatagramNameTests {
    private static func server(_ names: String...) throws -> TLSServerSettings {
        try .server(identity: TestCertificates.authority.issue(.server(names: names)).identity())
    }

    private static func names(_ unknown: TLSServerNames.UnknownName = .useDefault) throws -> TLSServerNames {
        try TLSServerNames(
            ["mail.example.org": server("mail.example.org"), "*.example.net": server("*.example.net")], unknownName: unknown)
    }

    private static func listener(
        _ names: TLSServerNames, trust: DatagramListener.TrustDecision? = nil
    ) throws -> (DatagramListener, Task<Void, any Error>) {
        var settings = try server("default.example.org")
        settings.serverNames = names
        settings.trustRoots = try TestCertificates.authority.roots
        let listener = try DatagramListener(address: .loopback(), dtls: settings, trust: trust)
        return (listener, listener.echoing())
    }

    private static func client(_ name: String, maximumDatagramSize: Int? = nil) throws -> (AsyncUDPSocket, TLSClientSettings) {
        let socket = AsyncUDPSocket()
        socket.firstRetransmission = .milliseconds(50)
        socket.maximumDatagramSize = maximumDatagramSize
        var settings = TLSSettings.client(serverName: name)
        settings.trustRoots = try TestCertificates.authority.roots
        // Makes the ClientHello larger than the smallest datagram.
        settings.applicationProtocols = (0..<20).map { "a protocol with the number \($0)" }
        return (socket, settings)
    }

    /// Returns the names in the certificate that a client of `name` receives.
    private static func visit(_ listener: DatagramListener, _ name: String, size: Int? = nil) async throws -> [String] {
        let (socket, settings) = try client(name, maximumDatagramSize: size)
        defer { socket.disconnect() }
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let session = try await socket.startDTLS(settings: settings)
        #expect(try await socket.ask("hello") == "hello")
        return session.peerCertificates.first?.dnsNames ?? []
    }

    /// With a size of 256 bytes, the ClientHello arrives in fragments.
    @Test(arguments: [nil, 256]) func eachNameHasItsSettings(size: Int?) async throws {
        let (listener, serving) = try Self.listener(Self.names())
        for (name, certificate) in [
            ("mail.example.org", "mail.example.org"), ("a.example.net", "*.example.net"),
            ("default.example.org", "default.example.org"),
        ] {
            #expect(try await Self.visit(listener, name, size: size) == [certificate])
        }
        await listener.close(timeout: .zero)
        try await serving.value
    }

    @Test func anUnknownNameIsRejectedWithItsAlert() async throws {
        let (listener, serving) = try Self.listener(Self.names(.reject))
        let (socket, settings) = try Self.client("nobody.example.org")
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let error = await #expect(throws: AsyncSocketError.self) { try await socket.startDTLS(settings: settings) }
        #expect(error?.tls?.code == .peerAlert && error?.tls?.alert == .unrecognizedName)
        #expect(try await Self.visit(listener, "mail.example.org") == ["mail.example.org"])
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// A function that suspends does not delay other clients.
    @Test func aFunctionChoosesWithoutDelayingOthers() async throws {
        let (slow, release) = AsyncStream.makeStream(of: Void.self)
        let asked = Locked<[String?]>([])
        let names = TLSServerNames { hello in
            asked.withLock { $0.append(hello.serverName) }
            if hello.serverName == "slow.example.org" { for await _ in slow { break } }
            return try Self.server(hello.serverName ?? "")
        }
        let (listener, serving) = try Self.listener(names)
        async let late = Self.visit(listener, "slow.example.org")
        try await eventually("the function is waiting") { asked.withLock { $0 } == ["slow.example.org"] }
        #expect(try await Self.visit(listener, "quick.example.org") == ["quick.example.org"])
        release.yield()
        #expect(try await late == ["slow.example.org"])
        // Retransmissions of the ClientHello do not call it again.
        #expect(asked.withLock { $0 } == ["slow.example.org", "quick.example.org"])
        await listener.close(timeout: .zero)
        try await serving.value
    }

    @Test(arguments: [true, false]) func aFunctionCanRefuseOrFail(fails: Bool) async throws {
        let names = TLSServerNames { _ in
            if fails { throw CocoaError(.fileNoSuchFile) }
            return nil
        }
        let (listener, serving) = try Self.listener(names)
        let (socket, settings) = try Self.client("mail.example.org")
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let error = await #expect(throws: AsyncSocketError.self) { try await socket.startDTLS(settings: settings) }
        #expect(error?.tls?.alert == (fails ? .internalError : .unrecognizedName))
        try await eventually("its place is free") { listener.hub.handshakeCount == 0 }
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// The time of the function is part of the handshake's, and its task is cancelled.
    @Test func aFunctionThatHangsEndsWithTheHandshake() async throws {
        let isCancelled = Locked(false)
        var settings = try Self.server("default.example.org")
        settings.handshakeTimeout = .milliseconds(200)
        settings.serverNames = TLSServerNames { _ in
            await withTaskCancellationHandler {
                _ = try? await eventually("it is cancelled") { isCancelled.withLock { $0 } }
            } onCancel: {
                isCancelled.withLock { $0 = true }
            }
            return nil
        }
        let errors = Locked<[AsyncSocketError.Code]>([])
        let listener = try DatagramListener(address: .loopback(), dtls: settings)
        let serving = Task {
            try await listener.run(
                onError: { error, _ in errors.withLock { $0.append((error as? AsyncSocketError)?.code ?? .closed) } }
            ) { _ in }
        }
        let (socket, clientSettings) = try Self.client("mail.example.org")
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        let visiting = Task { try await socket.startDTLS(settings: clientSettings) }
        try await eventually("the server gave up") { errors.withLock { $0 }.first == .handshakeTimeout }
        try await eventually("the function is cancelled") { isCancelled.withLock { $0 } }
        visiting.cancel()
        _ = await visiting.result
        await listener.close(timeout: .zero)
        try await serving.value
    }

    /// The closure of the settings that contain the names decides about the clients of every name.
    @Test func theTrustClosureIsNotSkipped() async throws {
        var named = try Self.server("mail.example.org")
        (named.clients, named.trustRoots) = (.certificates(.required), try TestCertificates.authority.roots)
        let judged = Locked<[String]>([])
        let (listener, serving) = try Self.listener(TLSServerNames(["mail.example.org": named])) { peer in
            judged.withLock { $0.append(peer.leaf?.commonName ?? "") }
            return false
        }
        let (socket, settings) = try Self.client("mail.example.org")
        var shown = settings
        shown.identity = try TestCertificates.authority.issue(.client(commonName: "mallory")).identity()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        await #expect(throws: AsyncSocketError.self) {
            try await socket.startDTLS(settings: shown)
            _ = try await socket.receive(timeout: .patient)
        }
        #expect(judged.withLock { $0 } == ["mallory"])
        await listener.close(timeout: .zero)
        try await serving.value
    }

    @Test func namesThatCannotBeUsedAreErrors() async throws {
        var settings = try Self.server("default.example.org")
        settings.serverNames = try Self.names()
        let (client, server) = try await StyledDatagramSocket.pair(.task)
        let direct = await #expect(throws: AsyncSocketError.self) { try await server.startDTLS(settings) }
        #expect(direct?.tls?.code == .invalidSettings && direct?.tls?.message.contains("requires a DatagramListener") == true)
        #expect(server.socket.isClosed && !client.socket.isClosed)
        var newer = try Self.server("mail.example.org")
        newer.minimumVersion = .tls13
        settings.serverNames = try TLSServerNames(["mail.example.org": newer])
        let wrong = #expect(throws: AsyncSocketError.self) { try DatagramListener(address: .loopback(), dtls: settings) }
        #expect(wrong?.tls?.code == .invalidSettings)
    }
}
