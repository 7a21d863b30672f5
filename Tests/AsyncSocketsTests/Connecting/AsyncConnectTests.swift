import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Connecting in a task, and `withDeadline` around connecting and other operations.
@Suite(.timeLimit(.patient)) struct AsyncConnectTests {
    // MARK: - connect

    @Test func aConnectThatFailsSaysWhyAndLeavesTheSocketFree() async throws {
        let refusing = try RawSocket.refusing()
        let full = try FullBacklog()
        let folder = try TemporaryFolder()
        let socket = AsyncSocket()
        let port = try refusing.localPort
        #expect(await outcome { try await socket.connect(to: "127.0.0.1", port: port) } == .failed(.connectFailed))
        #expect(
            await outcome { try await socket.connect(to: full.address, timeout: .milliseconds(20)) }
                == .failed(.connectTimeout))
        #expect(await outcome { try await socket.connect(to: full.address, timeout: .seconds(-1)) } == .failed(.connectTimeout))
        #expect(await outcome { try await socket.connect(toPath: folder.path("none")) } == .failed(.connectFailed))
        #expect(await outcome { try await socket.connect(toPath: "") } == .failed(.badParameter))
        #expect(await outcome { try await socket.connect(toPath: String(repeating: "x", count: 200)) } == .failed(.badParameter))
        #expect(await outcome { try await socket.connect(to: "127.0.0.1", port: 0) } == .failed(.badParameter))
        #expect(
            await outcome { try await socket.connect(to: "127.0.0.1", port: 1, interface: "no-such-if") }
                == .failed(.badParameter))
        var settings = try TestCertificates.client()
        (settings.minimumVersion, settings.maximumVersion) = (.tls13, .tls12)
        let peer = try ScriptedPeer.listening([.send("hello")])
        // It fails before a connection is made or a byte is sent.
        #expect(await outcome { try await socket.connect(to: "127.0.0.1", port: peer.port, tls: settings) } == .failed(.tls))
        #expect(socket.isDisconnected)
        try await socket.connect(to: "127.0.0.1", port: peer.port)
        #expect(try await socket.read(exactly: 5) == Data("hello"))
    }

    @Test(arguments: [false, true])
    func aPathIsConnectedTo(isSecure: Bool) async throws {
        let folder = try TemporaryFolder()
        let listener = try RawSocket.listening(on: folder.address("socket"))
        let client = AsyncSocket()
        let path = folder.path("socket")
        // The kernel completes the connection before it is accepted.
        let connect = Task.immediate {
            try await client.connect(toPath: path, tls: isSecure ? TestCertificates.client() : nil)
        }
        let server = try AsyncSocket(adopting: listener.accepted().duplicate())
        if isSecure { try await server.startTLS(settings: TestCertificates.server()) }
        try await connect.value
        #expect(client.isSecure == isSecure)
        try await server.write("over a path\n")
        #expect(try await client.readLine() == "over a path")
    }

    @Test func whoConnectsWithTLSSendsNothingInPlaintext() async throws {
        let (socket, peer) = try await connectedSocket([.expect("hello"), .expectEnd], isSecure: true)
        #expect(socket.isSecure)
        try await socket.write("hello")
        try await socket.close()
        #expect(try await peer.finish().session != nil)
        // If the peer is not trusted, the socket does not become connected.
        let stranger = try ScriptedPeer.listening([.startTLS(try TestCertificates.server(for: ["other"]))])
        #expect(
            await outcome { try await socket.connect(to: "127.0.0.1", port: stranger.port, tls: TestCertificates.client()) }
                == .failed(.tls))
        #expect(!socket.isConnected)
        #expect(await outcome { try await socket.write("secret") } == .failed(.tls))
        await #expect(throws: LoopbackError.self) { _ = try await stranger.finish() }
    }

    /// While a task connects, other tasks can already read and write.
    @Test func readsAndWritesMayWaitForTheConnection() async throws {
        let folder = try TemporaryFolder()
        let socket = AsyncSocket()
        let full = try FullBacklog()
        let connect = Task.immediate { try await socket.connect(to: full.address) }
        let read = Task.immediate { try await socket.read() }
        let write = Task.immediate { try await socket.write("hello") }
        let second = Task.immediate { try await socket.connect(toPath: folder.path("x")) }
        #expect(await second.outcome == .failed(.badConfiguration))
        let closing = Task.immediate { try await socket.close() }
        #expect(await closing.outcome == .failed(.closed))
        for outcome in [await connect.outcome, await read.outcome, await write.outcome] {
            #expect(outcome == .failed(.closed))
        }
    }

    // MARK: - Deadlines

    @Test(arguments: [false, true])
    func theEarliestDeadlineCounts(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("01234567"), .wait(for: try TestSignal())], isSecure: isSecure)
        #expect(
            await outcome {
                try await withDeadline(.milliseconds(20)) {
                    try await withDeadline(.seconds(3600)) { try await socket.read(exactly: 9) }
                }
            } == .failed(.deadlineExceeded))
        #expect(
            await outcome {
                try await withDeadline(.seconds(3600)) {
                    try await withDeadline(.milliseconds(20)) { try await socket.readLine() }
                }
            } == .failed(.deadlineExceeded))
        #expect(
            await outcome {
                try await withDeadline(.milliseconds(20)) { try await socket.read(exactly: 9, timeout: .seconds(3600)) }
            } == .failed(.deadlineExceeded))
        #expect(
            await outcome {
                try await withDeadline(.seconds(3600)) { try await socket.read(exactly: 9, timeout: .milliseconds(20)) }
            } == .failed(.readTimeout))
        // The outer deadline is unchanged.
        let data = try await withDeadline(.seconds(3600)) {
            _ = await outcome { try await withDeadline(.zero) { try await socket.read() } }
            return try await socket.read(exactly: 8)
        }
        #expect(data == Data("01234567"))
    }

    @Test(arguments: [false, true], [Duration.zero, .milliseconds(20), .seconds(-1)])
    func afterTheDeadlineEveryOperationFailsAtOnce(isSecure: Bool, deadline: Duration) async throws {
        let (socket, peer) = try await connectedSocket([.send("0123"), .expect("later")], isSecure: isSecure)
        try await socket.hasBuffered(4)
        await withDeadline(deadline) {
            if deadline > .zero { #expect(await outcome { try await socket.read(exactly: 9) } == .failed(.deadlineExceeded)) }
            #expect(await outcome { try await socket.read() } == .failed(.deadlineExceeded))
            #expect(await outcome { try await socket.read(exactly: 0) } == .failed(.deadlineExceeded))
            #expect(await outcome { try await socket.readLine() } == .failed(.deadlineExceeded))
            #expect(await outcome { try await socket.readToEnd() } == .failed(.deadlineExceeded))
            #expect(await outcome { try await socket.write("never") } == .failed(.deadlineExceeded))
            #expect(await outcome { try await socket.write(contentsOfFile: "/dev/null") } == .failed(.deadlineExceeded))
            #expect(await outcome { for try await _ in socket.chunks {} } == .failed(.deadlineExceeded))
            #expect(await outcome { try await AsyncSocket().connect(to: "127.0.0.1", port: 1) } == .failed(.deadlineExceeded))
            // Tasks created in the body inherit the deadline. Detached tasks do not.
            let child = Task { try await socket.read() }
            #expect(await child.outcome == .failed(.deadlineExceeded))
            let other = Task.detached { try await socket.read(exactly: 1) }
            #expect(await other.outcome == .served)
        }
        #expect(try await socket.read(exactly: 3) == Data("123"))
        try await socket.write("later")
        _ = try await peer.finish()
    }

    @Test func aDeadlineEndsAConnect() async throws {
        let full = try FullBacklog()
        let socket = AsyncSocket()
        // A socket whose deadline has expired can be reused immediately.
        for _ in 0..<20 {
            #expect(
                await outcome { try await withDeadline(.milliseconds(2)) { try await socket.connect(to: full.address) } }
                    == .failed(.deadlineExceeded))
            #expect(socket.isDisconnected)
        }
    }

    @Test func aDeadlineEndsAHandshakeAndTheConnection() async throws {
        let (socket, peer) = try await connectedSocket([.expectClientHello, .wait(for: try TestSignal())])
        #expect(
            await outcome {
                try await withDeadline(.milliseconds(50)) { try await socket.startTLS(settings: TestCertificates.client()) }
            } == .failed(.deadlineExceeded))
        #expect(!socket.isConnected)
        #expect(await outcome { try await socket.write("secret") } == .failed(.deadlineExceeded))
        peer.stop()
        let (late, atLate) = try await connectedSocket([.expectEnd])
        #expect(
            await outcome { try await withDeadline(.zero) { try await late.startTLS(settings: TestCertificates.client()) } }
                == .failed(.deadlineExceeded))
        #expect(await outcome { try await late.write("secret") } == .failed(.closed))
        _ = try await atLate.finish()
    }

    @Test(arguments: [false, true])
    func aDeadlineEndsAWriteThatWaits(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, data) = (pair.client, pattern(16 << 20))
        await withDeadline(.milliseconds(50)) {
            #expect(await outcome { try await client.write(data) } == .failed(.deadlineExceeded))
            #expect(await outcome { try await client.write("never") } == .failed(.deadlineExceeded))
        }
        let rest = Task.immediate { try await client.write("rest") }
        #expect(try await pair.server.read(exactly: data.count + 4) == data + Data("rest"))
        #expect(await rest.outcome == .served)
    }
}
