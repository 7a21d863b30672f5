import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import Logging
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Synchronization
import Testing

@testable import AsyncSockets

/// Connections that a listener serves in tasks.
@Suite(.timeLimit(.patient)) struct SocketListenerTests {
    @Test(arguments: [false, true])
    func manyConnectionsAreServedAtOnce(isSecure: Bool) async throws {
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: isSecure ? TestCertificates.server() : nil)
        let count = 200
        let gate = Gate(count)
        try await serving(listener, { try await $0.echo() }) { _ in
            try await withThrowingTaskGroup { group in
                for number in 0..<count {
                    group.addTask {
                        try await AsyncSocket.withConnection(
                            to: "127.0.0.1", port: listener.localPort, tls: isSecure ? .ofTests() : nil
                        ) { socket in
                            // All are connected before any of them continues.
                            await gate.pass()
                            try await socket.write("hello \(number)\n")
                            #expect(try await socket.readLine(timeout: .patient) == "hello \(number)")
                        }
                    }
                }
                try await group.waitForAll()
            }
        }
        #expect(!listener.isListening)
    }

    @Test func whatABodyReturnsFromIsClosedInOrder() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        try await serving(listener, { try await $0.write("bye") }) { _ in
            let bytes = try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
                try await socket.readToEnd()
            }
            #expect(bytes == Data("bye"))
        }
    }

    @Test func theErrorOfOneConnectionLeavesTheOthers() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let errors = Findings<String>()
        try await serving(
            listener, onError: { error, socket in errors.add("\(error) \(socket.isConnected) \(socket.connectedHost ?? "")") },
            { socket in
                for try await line in socket.lines {
                    if line == "fail" { throw Failure() }
                    try await socket.write(line + "\n")
                }
            }
        ) { _ in
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { first in
                try await first.write("one\n")
                #expect(try await first.readLine() == "one")
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { second in
                    try await second.write("fail\n")
                    #expect(try await second.read() == nil)
                }
                try await first.write("two\n")
                #expect(try await first.readLine() == "two")
            }
        }
        #expect(errors.all == ["Failure() false 127.0.0.1"])
    }

    private struct Failure: Error {}

    @Test func aHandshakeThatNeverEndsHoldsUpNoOne() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        try await serving(listener, { try await $0.echo() }) { _ in
            let address = try #require(listener.localAddress)
            let silent = [try RawSocket.connected(to: address), try .connected(to: address), try .connected(to: address)]
            try silent[1].send([0x16, 0x03, 0x01])
            try await AsyncSocket.withConnection(to: address, tls: .ofTests()) { socket in
                try await socket.write("hello\n")
                #expect(try await socket.readLine() == "hello")
            }
            for socket in silent { #expect(!socket.hasInput) }
        }
    }

    @Test func aFailedHandshakeReachesOnErrorAndNoBody() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        let (errors, bodies) = (Findings<AsyncSocketError.Code?>(), Findings<Bool>())
        try await serving(
            listener, onError: { error, _ in errors.add((error as? AsyncSocketError)?.code) }, { bodies.add($0.isSecure) }
        ) { _ in
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send("GET / HTTP/1.0\r\n\r\n")
            _ = try client.receiveAll()
            try await eventually("the error is known") { errors.all == [.tls] }
        }
        #expect(bodies.all.isEmpty)
    }

    @Test func theTaskRunsOnTheLoopOfItsConnection() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let places = Findings<Bool>()
        try await serving(
            listener,
            { socket in
                places.add(socket.executor?.isCurrent ?? false)
                for try await _ in socket.chunks { places.add(socket.executor?.isCurrent ?? false) }
            }
        ) { _ in
            for _ in 0..<4 {
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { try await $0.write("x") }
            }
            try await eventually("all have come") { places.all.count >= 8 }
        }
        #expect(places.all == Array(repeating: true, count: 8))
    }

    @Test func withoutAnExecutorNoTaskRunsOnALoop() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let places = Findings<Bool>()
        try await serving(listener, executor: nil, { places.add($0.executor?.isCurrent ?? true) }) { _ in
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { _ = try await $0.read() }
        }
        #expect(places.all == [false])
    }

    /// The task must not wait for itself.
    @Test func theTaskOfAConnectionMayShutTheListenerDown() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let serving = Task {
            try await listener.run { socket in
                await listener.close()
                try await socket.write("bye\n")
            }
        }
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
            let line = try await socket.readLine()
            #expect(line == "bye")
        }
        try await serving.value
        let peers = try DatagramListener(address: .loopback())
        let answering = Task {
            try await peers.run { socket in
                let datagram = try await socket.receive()
                await peers.close()
                try await socket.send(datagram.data)
            }
        }
        let client = AsyncUDPSocket()
        try await client.connect(to: "127.0.0.1", port: peers.localPort)
        try await client.send(Data([1]))
        #expect(try await client.receive().data == Data([1]))
        try await answering.value
    }

    /// With such a limit, the listener would not serve any connections.
    @Test func atTheLimitConnectionsWaitInTheKernel() async throws {
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", maximumConnections: 2,
            configure: { $0.logger = LogRecorder.logger(of: "a limit of 2") })
        let open = Findings<Int>()
        let count = Atomic(0)
        try await serving(
            listener,
            { socket in
                open.add(count.add(1, ordering: .relaxed).newValue)
                defer { count.subtract(1, ordering: .relaxed) }
                try await socket.echo()
            }
        ) { _ in
            try await withThrowingTaskGroup { group in
                for _ in 0..<20 {
                    group.addTask {
                        try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
                            try await socket.write("hello\n")
                            #expect(try await socket.readLine() == "hello")
                        }
                    }
                }
                try await group.waitForAll()
            }
        }
        #expect(open.all.count == 20)
        #expect(open.all.max() ?? 3 <= 2)
        #expect(listener.maximumConnections == 2)
        // A listener without free descriptors also warns.
        #expect(LogRecorder.warnings(of: "a limit of 2").compactMap { $0.metadata["limit"] } == ["2"])
    }

    @Test func aUnixSocketIsServedAndItsFileRemoved() async throws {
        let folder = try TemporaryFolder()
        let listener = try SocketListener(path: folder.path("s"), tls: TestCertificates.server())
        #expect(listener.localPort == 0)
        try await serving(listener, { try await $0.echo() }) { _ in
            try await AsyncSocket.withConnection(to: try #require(listener.localAddress), tls: .ofTests()) { socket in
                try await socket.write("hello\n")
                #expect(try await socket.readLine() == "hello")
            }
        }
        #expect(try folder.names == [])
    }

    // MARK: - Failures to start

    /// The addresses stay the same after the end.
    @Test func everyAddressIsReported() async throws {
        let listener = try SocketListener(port: 0, interface: "localhost")
        let addresses = listener.localAddresses
        #expect(addresses.first == listener.localAddress)
        for address in addresses {
            #expect(address.port == listener.localPort)
            _ = try RawSocket.connected(to: address)
        }
        let hosts = addresses.compactMap(\.host)
        // A machine without IPv6 has one address.
        let ipv6 = try? RawSocket.connected(to: .loopback("::1", port: listener.localPort))
        #expect(hosts == (ipv6 == nil ? ["127.0.0.1"] : ["127.0.0.1", "::1"]))
        await listener.close()
        #expect(listener.localAddresses == addresses)
    }

    @Test func whatCannotBeServedThrowsAtOnce() throws {
        let taken = try RawSocket.listening()
        let address = try taken.localAddress
        let inUse = #expect(throws: AsyncSocketError.self) { try SocketListener(address: address) }
        #expect(inUse?.code == .system && inUse?.errno == EADDRINUSE)
        var mutual = try TestCertificates.mutual().server
        mutual.trustEvaluation = .manual
        let undecided = #expect(throws: AsyncSocketError.self) { try SocketListener(port: 0, tls: mutual) }
        #expect(undecided?.code == .badConfiguration)
        var unusable = try TestCertificates.server()
        unusable.maximumCertificateChainLength = 0
        let refused = #expect(throws: AsyncSocketError.self) { try SocketListener(port: 0, tls: unusable) }
        #expect(refused?.code == .tls)
        let disabled = #expect(throws: AsyncSocketError.self) {
            try SocketListener(port: 0, configure: { model in (model.isIPv4Enabled, model.isIPv6Enabled) = (false, false) })
        }
        #expect(disabled?.code == .badConfiguration)
        let nowhere = #expect(throws: AsyncSocketError.self) { try SocketListener(port: 0, interface: "nowhere0") }
        #expect(nowhere?.code == .badParameter)
        let none = #expect(throws: AsyncSocketError.self) { try SocketListener(inherited: []) }
        #expect(none?.code == .system)
        let nameless = #expect(throws: AsyncSocketError.self) { try SocketListener(path: "") }
        #expect(nameless?.code == .badParameter)
    }

    @Test func whatConfigureSetsIsThatOfTheSockets() async throws {
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1",
            configure: { model in
                try model.setOption(.keepAlive, to: true)
                model.writeHighWaterMark = 4711
            })
        let found = Findings<String>()
        try await serving(listener, { found.add("\(try $0.option(.keepAlive)) \($0.writeHighWaterMark ?? 0)") }) { _ in
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { _ = try await $0.read() }
        }
        #expect(found.all == ["true 4711"])
    }
}
