import AsyncSocketsTesting
import Foundation
import Logging
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Two generations of a server. In most of these tests they are in the same process.
@Suite(.timeLimit(.patient)) struct HotRestartTests {
    private let folder: TemporaryFolder
    private let path: String

    init() throws {
        folder = try TemporaryFolder()
        path = folder.path("restart")
    }

    /// A generation of a server that answers each line with its name.
    private struct Generation {
        let restart: HotRestart
        let listener: SocketListener
        let serving: Task<Void, any Error>
        let handingOver: Task<Bool, any Error>

        /// - Parameter isServing: Whether it accepts connections.
        init(
            _ name: String, _ path: String, tls: TLSServerSettings? = nil, closeTimeout: Duration = .patient,
            startTimeout: Duration = .patient, isServing: Bool = true,
            listen: ([InheritedDescriptor]) throws -> SocketListener? = { _ in nil }
        ) async throws {
            let restart = try await HotRestart(path: path)
            let inherited = restart.descriptors(named: "greeter")
            var tls = tls
            if tls?.sessionTickets != nil { tls?.sessionTickets = .issued(2, keys: restart.ticketKeys) }
            let configure: (AsyncSocket) -> Void = { $0.logger = LogRecorder.logger(of: path) }
            let listener =
                try listen(inherited)
                ?? (inherited.isEmpty
                    ? SocketListener(port: 0, interface: "127.0.0.1", tls: tls, configure: configure)
                    : SocketListener(inherited: inherited, tls: tls, configure: configure))
            (self.restart, self.listener) = (restart, listener)
            let isServing = isServing
            serving = Task {
                guard isServing else { return }
                try await listener.run { socket in
                    for try await line in socket.lines { try await socket.write("\(name) \(line)\n") }
                }
            }
            try await restart.takeOver(["greeter": listener])
            handingOver = Task {
                try await restart.untilReplaced(closeTimeout: closeTimeout, startTimeout: startTimeout)
            }
        }

        /// Waits until the successor has taken over and all connections are closed.
        func replaced() async throws {
            #expect(try await handingOver.value == true)
            try await serving.value
        }

        /// - Parameter isReplaced: Whether another process has the sockets and continues.
        func end(isReplaced: Bool = false) async throws {
            await listener.close(timeout: .zero)
            #expect(try await handingOver.value == isReplaced)
            try await serving.value
        }
    }

    private func expect(_ reply: String, _ client: AsyncSocket) async throws {
        try await client.write("hello\n")
        #expect(try await client.readLine(timeout: .patient) == "\(reply) hello")
    }

    private func connected(to listener: SocketListener) async throws -> AsyncSocket {
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        return client
    }

    /// New connections belong to the successor, and old ones finish.
    @Test func aSuccessorTakesOver() async throws {
        let first = try await Generation("first", path)
        #expect(!first.restart.hasPredecessor)
        let early = try await connected(to: first.listener)
        try await expect("first", early)
        let second = try await Generation("second", path)
        #expect(second.restart.hasPredecessor && second.listener.localPort == first.listener.localPort)
        #expect(try await first.handingOver.value == true)
        #expect(!first.listener.isListening)
        for _ in 0..<20 {
            let client = try await connected(to: second.listener)
            try await expect("second", client)
        }
        try await expect("first", early)
        try await early.close()
        try await first.replaced()
        let third = try await Generation("third", path)
        try await second.replaced()
        try await expect("third", try await connected(to: third.listener))
        try await third.end()
        #expect(try folder.names == [])
    }

    /// The successor accepts the connections that nobody has accepted before.
    @Test func theBacklogIsNotLost() async throws {
        let first = try await Generation("first", path, isServing: false)
        var clients: [AsyncSocket] = []
        for _ in 0..<20 { clients.append(try await connected(to: first.listener)) }
        for client in clients { try await client.write("hello\n") }
        let second = try await Generation("second", path)
        #expect(try await first.handingOver.value == true)
        for client in clients {
            let line = try await client.readLine(timeout: .patient)
            #expect(line == "second hello")
        }
        try await second.end()
    }

    /// Under TLS, the successor resumes the sessions of its predecessor.
    @Test(arguments: TLSProtocolVersion.tested) func sessionsAreResumed(_ version: TLSProtocolVersion) async throws {
        var server = try TestCertificates.server()
        server.sessionTickets = .issued(2)
        var client = try TestCertificates.client().only(version)
        client.resumption = .store(TLSInMemorySessionStore())
        let settings = client
        func isResumed(at listener: SocketListener) async throws -> Bool? {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: settings) { socket in
                try await socket.writeLine("hello")
                #expect(try await socket.readLine()?.hasSuffix("hello") == true)
                return socket.tlsSession?.isResumed
            }
        }
        let first = try await Generation("first", path, tls: server)
        #expect(try await isResumed(at: first.listener) == false)
        let second = try await Generation("second", path, tls: server)
        try await first.replaced()
        #expect(try await isResumed(at: second.listener) == true)
        try await second.end()
    }

    /// The predecessor continues if its successor is released before it is ready.
    @Test func aFailedSuccessorChangesNothing() async throws {
        let first = try await Generation("first", path)
        for _ in 0..<3 {
            var failed: HotRestart? = try await HotRestart(path: path)
            #expect(failed?.descriptors(named: "greeter").first?.localAddress == first.listener.localAddress)
            #expect(failed?.descriptors(named: "greeter").isEmpty == true)
            failed = nil
        }
        try await eventually("it is logged") {
            LogRecorder.warnings(of: path).count { $0.message.contains("did not take over") } == 3
        }
        try await expect("first", try await connected(to: first.listener))
        let second = try await Generation("second", path)
        try await first.replaced()
        try await second.end()
    }

    /// If one successor does not become ready in time, the next one in the queue can take over.
    @Test func aSlowSuccessorLosesItsTurn() async throws {
        let first = try await Generation("first", path, startTimeout: .seconds(5))
        let slow = try await HotRestart(path: path)
        let listener = try SocketListener(inherited: slow.descriptors(named: "greeter"))
        let second = try await Generation("second", path)
        try await first.replaced()
        await #expect {
            try await slow.takeOver(["greeter": listener])
        } throws: {
            "\($0)".contains("started too slowly")
        }
        await listener.close(timeout: .zero)
        try await expect("second", try await connected(to: second.listener))
        try await second.end()
        #expect(try folder.names == [])
    }

    /// If a process stops while its offer is open, the successor serves on the same socket file.
    @Test func aPredecessorMayStopDuringItsOffer() async throws {
        let socket = folder.path("greeter")
        let first = try await Generation("first", path) { _ in try SocketListener(path: socket) }
        let restart = try await HotRestart(path: path)
        let listener = try SocketListener(inherited: restart.descriptors(named: "greeter"))
        try await first.end(isReplaced: true)
        try await restart.takeOver(["greeter": listener])
        try await serving(listener, { try await $0.echo() }) { _ in
            let client = AsyncSocket()
            try await client.connect(toPath: socket)
            try await client.write("hello\n")
            #expect(try await client.readLine(timeout: .patient) == "hello")
            try await client.close()
        }
        #expect(try await restart.untilReplaced() == false)
        #expect(try folder.names == [])
    }

    /// A socket that the successor does not continue with is closed, and its file is removed.
    @Test func anUnusedSocketFileIsRemoved() async throws {
        let (first, unused) = (try SocketListener(path: folder.path("first")), try SocketListener(path: folder.path("unused")))
        let old = try await HotRestart(path: path)
        try await old.takeOver(["first": first, "unused": unused])
        let replacing = Task { try await old.untilReplaced() }
        let new = try await HotRestart(path: path)
        let listener = try SocketListener(inherited: new.descriptors(named: "first"))
        try await new.takeOver(["first": listener])
        #expect(try await replacing.value == true)
        #expect(try folder.names.sorted() == ["first", "restart"])
        await listener.close(timeout: .zero)
        #expect(try await new.untilReplaced() == false)
        #expect(try folder.names == [])
    }

    /// After the task is cancelled, the process stays in service and keeps its file.
    @Test func aCancelledOfferIsWithdrawn() async throws {
        let socket = folder.path("greeter")
        let first = try await Generation("first", path) { _ in try SocketListener(path: socket) }
        let restart = try await HotRestart(path: path)
        let listener = try SocketListener(inherited: restart.descriptors(named: "greeter"))
        first.handingOver.cancel()
        await #expect(throws: CancellationError.self) { try await first.handingOver.value }
        await #expect(throws: AsyncSocketError.self) { try await restart.takeOver(["greeter": listener]) }
        await #expect(throws: AsyncSocketError.self) { try await restart.untilReplaced() }
        await listener.close(timeout: .zero)
        let client = AsyncSocket()
        try await client.connect(toPath: socket)
        try await expect("first", client)
        try await client.close()
        await first.listener.close(timeout: .zero)
        try await first.serving.value
        #expect(try folder.names == [])
    }

    /// The file of a Unix-domain socket stays until the last generation closes it.
    @Test func theSocketFileHasOneOwner() async throws {
        let socket = folder.path("greeter")
        let first = try await Generation("first", path) { _ in try SocketListener(path: socket) }
        let second = try await Generation("second", path) { try SocketListener(inherited: $0) }
        try await first.replaced()
        let client = AsyncSocket()
        try await client.connect(toPath: socket)
        try await expect("second", client)
        try await client.close()
        try await second.end()
        #expect(try folder.names == [])
    }

    /// A successor that is not ready leaves the file to its predecessor.
    @Test func aFailedSuccessorKeepsTheSocketFile() async throws {
        let socket = folder.path("greeter")
        let first = try await Generation("first", path) { _ in try SocketListener(path: socket) }
        do {
            let failed = try await HotRestart(path: path)
            let listener = try SocketListener(inherited: failed.descriptors(named: "greeter"))
            await listener.close(timeout: .zero)
        }
        let client = AsyncSocket()
        try await client.connect(toPath: socket)
        try await expect("first", client)
        try await client.close()
        try await first.end()
        #expect(try folder.names == [])
    }

    /// The path is free when the listener closes, and when the task is cancelled.
    @Test func thePathIsFreedWithoutASuccessor() async throws {
        let first = try await Generation("first", path)
        try await first.end()
        #expect(try folder.names == [])
        let second = try await Generation("second", path)
        second.handingOver.cancel()
        await #expect(throws: CancellationError.self) { try await second.handingOver.value }
        #expect(try folder.names == [])
        #expect(second.listener.isListening)
        await second.listener.close(timeout: .zero)
        try await second.serving.value
    }

    /// Misuse is refused without harm to the running process.
    @Test func unusableListenersAreRefused() async throws {
        let first = try await Generation("first", path)
        let restart = try await HotRestart(path: path)
        await #expect(throws: AsyncSocketError.self) { try await restart.takeOver([:]) }
        let closed = try SocketListener(port: 0, interface: "127.0.0.1")
        await closed.close(timeout: .zero)
        await #expect(throws: AsyncSocketError.self) { try await restart.takeOver(["greeter": closed]) }
        await #expect(throws: AsyncSocketError.self) { try await restart.untilReplaced() }
        await #expect(throws: AsyncSocketError.self) { try await HotRestart(path: "") }
        try await expect("first", try await connected(to: first.listener))
        try await first.end(isReplaced: true)
        // A file that is not a socket is not replaced.
        try Data().write(to: folder.url("file"))
        let other = try await HotRestart(path: folder.path("file"))
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        await #expect(throws: AsyncSocketError.self) { try await other.takeOver(["greeter": listener]) }
        #expect(listener.isListening)
    }

    /// The mode of the file keeps other users out, and so does the check of the user.
    @Test(.enabled(if: geteuid() == 0, "only root can become another user")) func otherUsersGetNothing() async throws {
        chmod(folder.path, 0o755)
        let first = try await Generation("first", path)
        let script = """
            import os, socket, sys
            os.setuid(65534)
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                s.connect(sys.argv[1])
                print("received", len(s.recv(65536)))
            except PermissionError:
                print("refused")
            """
        #expect(try await output(of: script, path) == "refused\n")
        chmod(path, 0o777)
        #expect(try await output(of: script, path) == "received 0\n")
        try await first.end()
    }

    @Test func aSuccessorThatDoesNotFollowTheProtocolIsRejected() async throws {
        let first = try await Generation("first", path)
        let script = """
            import socket, sys
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(sys.argv[1])
            s.recv(65536), s.recv(65536)
            s.send(b"hello")
            print(s.recv(100).decode())
            """
        #expect(try await output(of: script, path) == "late\n")
        try await expect("first", try await connected(to: first.listener))
        try await first.end()
    }

    private func output(of script: String, _ argument: String) async throws -> String {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/python3")
        process.arguments = ["-c", script, argument]
        let pipe = Pipe()
        process.standardOutput = pipe
        let (ends, end) = AsyncStream<Int32>.makeStream()
        process.terminationHandler = { end.yield($0.terminationStatus) }
        try process.run()
        for await status in ends {
            #expect(status == 0)
            break
        }
        return String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    }
}
