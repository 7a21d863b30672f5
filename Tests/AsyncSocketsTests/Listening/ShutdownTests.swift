import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Connections and peers that were accepted before the listener closed, but have no task yet.
@Suite(.timeLimit(.patient)) struct ShutdownTests {
    /// Calls `test` with a listener that has accepted three clients without taking them: its only permit
    /// belongs to a silent client, so the accepting task is suspended. On a Unix-domain socket, that client
    /// keeps its permit.
    private func withWaitingClients(_ test: (SocketListener, [AsyncSocket]) async throws -> Void) async throws {
        let folder = try TemporaryFolder()
        let listener = try SocketListener(path: folder.path("listener"), tls: TestCertificates.server())
        listener.maximumHandshakes = 1
        let (address, slots) = (try #require(listener.localAddress), listener.preparation.slots)
        let running = Task { try await listener.run(onError: { _, _ in }) { try await $0.echo() } }
        var silent = [try RawSocket.connected(to: address)]
        try await eventually("the permit is taken") { slots.takenCount == 1 }
        // The accepting task may have checked for a permit before the first client took it.
        silent.append(try RawSocket.connected(to: address))
        try await eventually("the accepting task is suspended") { slots.waitingCount == listener.reception.servedCount }
        var clients: [AsyncSocket] = []
        for _ in 0..<3 {
            let client = AsyncSocket()
            try await client.connect(to: address)
            clients.append(client)
        }
        try await eventually("all are accepted") {
            listener.reception.quota.openCount == 5 && listener.reception.waitingCount >= 3
        }
        try await test(listener, clients)
        silent = []
        try await running.value
        #expect(listener.reception.servedCount == 0 && listener.reception.waitingCount == 0)
    }

    @Test func acceptedConnectionsAreServedAfterAShutdown() async throws {
        try await withWaitingClients { listener, clients in
            listener.beginClosing(timeout: nil)
            for client in clients {
                try await client.startTLS(settings: .ofTests())
                try await client.write("hello\n")
                #expect(try await client.readLine() == "hello")
                try await client.close()
            }
        }
    }

    @Test func theDeadlineOfAShutdownClosesConnectionsWithoutATask() async throws {
        try await withWaitingClients { listener, clients in
            await listener.close(timeout: .zero)
            for client in clients {
                let error = await #expect(throws: AsyncSocketError.self) { try await client.startTLS(settings: .ofTests()) }
                #expect(error?.code == .tls || error?.code == .connectionReset)
            }
        }
    }

    /// The sequence takes no connections while sixteen sockets are ready.
    @Test func theSequenceDeliversAcceptedConnectionsAfterAShutdown() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let address = try #require(listener.localAddress)
        var clients: [RawSocket] = []
        func connect() throws {
            let client = try RawSocket.connected(to: address, waitLimit: .patient)
            try client.send("x")
            clients.append(client)
        }
        var iterator = listener.connections.makeAsyncIterator()
        var served = 0
        func serve(_ socket: AsyncSocket) async throws {
            #expect(try await socket.read(exactly: 1) == Data("x"))
            try await socket.write("y")
            try await socket.close()
            served += 1
        }
        try connect()
        let first = try #require(await iterator.next())
        try await eventually("several connections wait") {
            // The listener accepts 64 connections ahead.
            if clients.count < 60 { try connect() }
            return listener.reception.waitingCount >= 5
        }
        try await eventually("all are accepted") { listener.reception.quota.openCount == clients.count }
        listener.beginClosing(timeout: nil)
        try await serve(first)
        while let socket = try await iterator.next() { try await serve(socket) }
        #expect(served == clients.count)
        for client in clients { #expect(try client.receiveAll() == "y") }
    }

    @Test func peersWithoutATaskAreDeliveredAfterAShutdown() async throws {
        let listener = try DatagramListener(address: .loopback(), idleTimeout: .patient)
        let address = try #require(listener.localAddress)
        var clients: [AsyncUDPSocket] = []
        func send() async throws {
            let client = try AsyncUDPSocket.bound("127.0.0.1")
            try await client.send(Data("x"), to: address)
            clients.append(client)
        }
        var iterator = listener.peers.makeAsyncIterator()
        var served = 0
        func serve(_ socket: AsyncUDPSocket) async throws {
            #expect(try await socket.receive().data == Data("x"))
            try await socket.send(Data("y"))
            socket.disconnectAfterSending()
            served += 1
        }
        try await send()
        try await serve(#require(await iterator.next()))
        try await eventually("several peers wait") {
            if clients.count < 60 { try await send() }
            return listener.reception.waitingCount >= 5
        }
        try await eventually("all are known") { listener.snapshot.openCount == clients.count - 1 }
        listener.beginClosing(timeout: nil)
        while let socket = try await iterator.next() { try await serve(socket) }
        #expect(served == clients.count)
        for client in clients { #expect(try await client.receive().data == Data("y")) }
    }

    /// The listener closes before, after, and at various moments while clients connect. A second
    /// descriptor keeps its socket open, so the kernel resets no connection. Each client is served either
    /// by the listener, or through the second descriptor.
    @Test(arguments: [.eventLoop, nil] as [ConnectionExecutor?])
    func noConnectionIsLostBetweenTheKernelAndATask(_ executor: ConnectionExecutor?) async throws {
        let (before, after) = (0, 1)
        for round in 0..<100 {
            let listener = try SocketListener(port: 0, interface: "127.0.0.1")
            let address = try #require(listener.localAddress)
            let copy = RawSocket(owning: try #require(listener.listener.duplicateDescriptor()), waitLimit: .patient)
            let accepted = Findings<Void>()
            let running = Task {
                try await listener.run(executor: executor) { socket in
                    accepted.add(())
                    #expect(try await socket.read(exactly: 1) == Data("x"))
                    try await socket.write("y")
                }
            }
            try await eventually("it accepts") { listener.reception.isBegun }
            let closing = Task {
                if round == after { try await eventually("all are served") { accepted.all.count == 8 } }
                for _ in 0..<round % 20 { await Task.yield() }
                listener.beginClosing(timeout: nil)
            }
            if round == before { try await closing.value }
            let clients = try (0..<8).map { _ in
                let client = try RawSocket.connected(to: address, waitLimit: .patient)
                try client.send("x")
                return client
            }
            try await closing.value
            try await running.value
            let left = clients.count - accepted.all.count
            for _ in 0..<left {
                let connection = try copy.accepted()
                #expect(try connection.receiveText() == "x")
                try connection.send("y")
            }
            for client in clients { #expect(try client.receiveAll() == "y") }
            if round == before { #expect(left == 8) }
            if round == after { #expect(left == 0) }
        }
    }

    /// The kernel has acknowledged the request, but `untilClosing` returns `nil`, so the task does not
    /// read it.
    @Test func aTaskThatStartsAfterTheCloseEndsItsConnectionOrderly() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        listener.listener.start()
        let client = try RawSocket.connected(to: try #require(listener.localAddress), waitLimit: .patient)
        try client.send("request\n")
        try await eventually("it is accepted") { listener.reception.waitingCount == 1 }
        listener.beginClosing(timeout: nil)
        try await listener.run { socket in
            while let line = try await listener.untilClosing({ try await socket.readLine() }) { try await socket.writeLine(line) }
        }
        #expect(try client.receiveAll().isEmpty)
    }

    /// The loop adds a peer while another thread closes the listener.
    @Test func aHubIsInUseWhileAPeerIsAdded() throws {
        var table = PeerTable(maximumPeers: 1)
        let key = PeerKey(peer: InternetAddress(try .loopback("127.0.0.1", port: 1)), local: nil)
        let isAdmitted = table.admit(key, hasHello: false, insteadOf: nil)
        table.isAccepting = false
        #expect(isAdmitted && !table.isUnused)
        table.giveUp()
        #expect(table.isUnused)
        let isAdmittedAgain = table.admit(key, hasHello: false, insteadOf: nil)
        #expect(!isAdmittedAgain && table.isUnused)
    }
}
