import AsyncSockets
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import Testing

/// Connections to Unix-domain sockets, by path and by abstract name.
@Suite(.timeLimit(.minutes(5))) struct UnixConnectTests {
    /// A directory with a short name, gone with its owner.
    private final class Directory {
        let url: URL

        init() throws {
            url = URL(filePath: "/tmp/as-\(UUID().uuidString.prefix(8))")
            try FileManager.default.createDirectory(at: url, withIntermediateDirectories: false)
        }

        deinit { try? FileManager.default.removeItem(at: url) }
    }

    private static func listen(at url: URL, backlog: CInt = 8) throws -> RawSocket {
        try RawSocket.listening(on: try #require(SocketAddress(unixPath: url.path)), backlog: backlog)
    }

    @Test func aPathIsConnectedToAndTold() async throws {
        let directory = try Directory()
        let url = directory.url.appending(path: "a socket")
        let listener = try Self.listen(at: url)
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toPath: url.path, withTimeout: 60)
        #expect(try await recorder.connectedTo() == url.path)
        #expect(client.connectedPath == url.path)
        #expect(client.connectedAddress?.unixPath == url.path)
        #expect(client.connectedHost == nil && client.connectedPort == 0 && !client.isIPv4 && !client.isIPv6)
        let peer = try listener.accepted()
        peer.send("over a path")
        client.readData(toLength: 11, withTimeout: 60, tag: 0)
        #expect(try await recorder.readText() == "over a path")
        client.write(Data("and back"), withTimeout: 60, tag: 0)
        #expect(peer.receive(8) == "and back")
        withExtendedLifetime(directory) {}
    }

    @Test func anAbstractNameIsConnectedToAndTold() async throws {
        let name = "AsyncSockets-\(UUID().uuidString)"
        let address = try #require(SocketAddress(abstractName: name))
        let listener = try RawSocket.listening(on: address)
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toAddress: address, withTimeout: 60)
        guard case .connected(let host, port: 0) = await recorder.next() else {
            Issue.record("not told")
            return
        }
        #expect(host == "unix:@\(name)")
        #expect(client.connectedPath == nil && client.connectedAddress?.abstractName == name)
        let peer = try listener.accepted()
        client.write(Data("abstract"), withTimeout: 60, tag: 0)
        #expect(peer.receive(8) == "abstract")
    }

    @Test func aPathWithoutASocketIsAFailureThatNamesIt() async throws {
        let directory = try Directory()
        let url = directory.url.appending(path: "nobody")
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toPath: url.path, withTimeout: 60)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectFailed && error.errno == ENOENT)
        #expect(error.message.contains(url.path))
        withExtendedLifetime((client, directory)) {}
    }

    @Test func whatIsNoPathOfASocketIsRefusedAtOnce() throws {
        let client = AsyncSocket()
        let long = "/tmp/" + String(repeating: "x", count: 103)
        for path in [long, "", "/tmp/a\0b"] {
            let error = #expect(throws: AsyncSocketError.self) { try client.connect(toPath: path) }
            #expect(error?.code == .badParameter)
        }
        let address = try #require(SocketAddress(unixPath: "/tmp/socket"))
        #expect(throws: AsyncSocketError.self) { try client.connect(toAddress: address, viaInterface: "lo") }
            .map { #expect($0.code == .badParameter) }
        #expect(client.isDisconnected)
    }

    /// The kernel says EAGAIN, and never that there is room again.
    @Test func aFullBacklogIsWaitedFor() async throws {
        let directory = try Directory()
        let url = directory.url.appending(path: "full")
        let listener = try Self.listen(at: url, backlog: 0)
        let first = try RawSocket.connected(to: try #require(SocketAddress(unixPath: url.path)))
        let loop = try EventLoop()
        let atLate = Recorder()
        let late = AsyncSocket(inlineDelegate: atLate)
        late.stay(on: loop)
        try late.connect(toPath: url.path, withTimeout: 0.1)
        #expect(try await atLate.disconnected()?.code == .connectTimeout)
        try await eventually("the loop is empty") { loop.registrationCount == 0 }
        let recorder = Recorder(recordsSteps: true)
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toPath: url.path, withTimeout: 60)
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
        withExtendedLifetime((first, firstPeer, late, directory)) {}
    }

    @Test func tlsRunsOverAUnixSocket() async throws {
        let directory = try Directory()
        let url = directory.url.appending(path: "tls")
        let listener = try Self.listen(at: url)
        let (atClient, atServer) = (Recorder(), Recorder())
        let client = AsyncSocket(inlineDelegate: atClient)
        try client.connect(toPath: url.path, withTimeout: 60)
        _ = try await atClient.connectedTo()
        let server = try AsyncSocket(adopting: listener.accepted().duplicate(), inlineDelegate: atServer)
        #expect(server.connectedPath == nil && server.connectedAddress?.family == .unix)
        try server.startTLS(settings: TestCertificates.server())
        try client.startTLS(settings: TestCertificates.client())
        client.write(Data("secret"), withTimeout: 60, tag: 0)
        try await atServer.secured()
        server.readData(toLength: 6, withTimeout: 60, tag: 0)
        #expect(try await atServer.readText() == "secret")
        withExtendedLifetime((client, server, directory)) {}
    }
}
