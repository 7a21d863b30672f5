import AsyncSockets
import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Connections to Unix-domain sockets, by path and by abstract name.
@Suite(.timeLimit(.patient)) struct UnixConnectTests {
    @Test func aConnectionToAPathReportsThePath() async throws {
        let folder = try TemporaryFolder()
        let path = folder.path("a socket")
        let listener = try RawSocket.listening(on: folder.address("a socket"))
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toPath: path, withTimeout: .patient)
        #expect(try await recorder.connectedTo() == path)
        #expect(client.connectedPath == path)
        #expect(client.connectedAddress?.unixPath == path)
        #expect(client.connectedHost == nil && client.connectedPort == nil && !client.isIPv4 && !client.isIPv6)
        let peer = try listener.accepted()
        try peer.send("over a path")
        client.readData(toLength: 11, withTimeout: .patient, tag: 0)
        #expect(try await recorder.readText() == "over a path")
        client.write(Data("and back"), withTimeout: .patient, tag: 0)
        #expect(try peer.receive(atLeast: 8) == "and back")
        withExtendedLifetime(folder) {}
    }

    @Test func aConnectionToAnAbstractNameReportsTheName() async throws {
        let name = "AsyncSockets-\(UUID().uuidString)"
        let address = try #require(SocketEndpoint(abstractName: name))
        let listener = try RawSocket.listening(on: address)
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toAddress: address, withTimeout: .patient)
        guard case .connected(let host, port: 0) = await recorder.next() else {
            Issue.record("not told")
            return
        }
        #expect(host == "unix:@\(name)")
        #expect(client.connectedPath == nil && client.connectedAddress?.abstractName == name)
        let peer = try listener.accepted()
        client.write(Data("abstract"), withTimeout: .patient, tag: 0)
        #expect(try peer.receive(atLeast: 8) == "abstract")
    }

    @Test func aPathWithoutASocketIsAFailureThatNamesIt() async throws {
        let folder = try TemporaryFolder()
        let path = folder.path("missing")
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toPath: path, withTimeout: .patient)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectFailed && error.errno == ENOENT)
        #expect(error.message.contains(path))
        withExtendedLifetime((client, folder)) {}
    }

    @Test func whatIsNoPathOfASocketIsRefusedAtOnce() throws {
        let client = AsyncSocket()
        let long = "/tmp/" + String(repeating: "x", count: 103)
        for path in [long, "", "/tmp/a\0b"] {
            let error = #expect(throws: AsyncSocketError.self) { try client.connect(toPath: path, withTimeout: .patient) }
            #expect(error?.code == .badParameter)
        }
        let address = try #require(SocketEndpoint(unixPath: "/tmp/socket"))
        #expect(throws: AsyncSocketError.self) { try client.connect(toAddress: address, viaInterface: "lo") }
            .map { #expect($0.code == .badParameter) }
        #expect(client.isDisconnected)
    }

    /// The kernel returns EAGAIN, and never reports that there is room again.
    @Test func aFullBacklogIsWaitedFor() async throws {
        let folder = try TemporaryFolder()
        let path = folder.path("full")
        let address = try folder.address("full")
        let listener = try RawSocket.listening(on: address, backlog: 0)
        let first = try RawSocket.connected(to: address)
        let loop = try SocketEventLoop()
        let atLate = Recorder()
        let late = AsyncSocket(inlineDelegate: atLate)
        late.stay(on: loop)
        try late.connect(toPath: path, withTimeout: 0.1)
        #expect(try await atLate.disconnected()?.code == .connectTimeout)
        try await eventually("the loop is empty") { loop.registrationCount == 0 }
        let recorder = Recorder(recordsSteps: true)
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toPath: path, withTimeout: .patient)
        guard case .progressed(.trying) = await recorder.next() else {
            Issue.record("not tried")
            return
        }
        let firstPeer = try listener.accepted()
        guard case .progressed(.connected) = await recorder.next() else {
            Issue.record("not connected")
            return
        }
        #expect(client.isConnected)
        withExtendedLifetime((first, firstPeer, late, folder)) {}
    }

    @Test func tlsRunsOverAUnixSocket() async throws {
        let folder = try TemporaryFolder()
        let path = folder.path("tls")
        let listener = try RawSocket.listening(on: folder.address("tls"))
        let (atClient, atServer) = (Recorder(), Recorder())
        let client = AsyncSocket(inlineDelegate: atClient)
        try client.connect(toPath: path, withTimeout: .patient)
        _ = try await atClient.connectedTo()
        let server = try AsyncSocket(adopting: listener.accepted().duplicate(), inlineDelegate: atServer)
        #expect(server.connectedPath == nil && server.connectedAddress?.family == .unix)
        try server.beginTLS(settings: TestCertificates.server())
        try client.beginTLS(settings: TestCertificates.client())
        client.write(Data("secret"), withTimeout: .patient, tag: 0)
        try await atServer.secured()
        server.readData(toLength: 6, withTimeout: .patient, tag: 0)
        #expect(try await atServer.readText() == "secret")
        withExtendedLifetime((client, server, folder)) {}
    }
}
