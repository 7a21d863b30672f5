import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Two generations of a UDP server in one process.
@Suite(.timeLimit(.patient)) struct DatagramHandoverTests {
    private let folder: TemporaryFolder
    private let path: String

    init() throws {
        folder = try TemporaryFolder()
        path = folder.path("restart")
    }

    /// A generation of a server that echoes each datagram with its name in front.
    private struct Generation {
        let restart: HotRestart
        let listener: DatagramListener
        let serving: Task<Void, any Error>
        let handingOver: Task<Bool, any Error>

        init(_ name: String, _ path: String, interface: String? = "127.0.0.1", dtls: TLSServerSettings? = nil) async throws {
            let restart = try await HotRestart(path: path)
            let inherited = restart.descriptors(named: "greeter")
            let listener =
                inherited.isEmpty
                ? try DatagramListener(port: 0, interface: interface, dtls: dtls, idleTimeout: .patient)
                : try DatagramListener(inherited: inherited, dtls: dtls, idleTimeout: .patient)
            (self.restart, self.listener) = (restart, listener)
            try await restart.takeOver(datagrams: ["greeter": listener])
            serving = Task {
                try await listener.run { socket in
                    for try await datagram in socket.datagrams {
                        if datagram.data == Data("bye".utf8) { return }
                        try await socket.send(Data("\(name) ".utf8) + datagram.data)
                    }
                }
            }
            handingOver = Task { try await restart.untilReplaced(closeTimeout: nil) }
        }

        func end() async throws {
            await listener.close(timeout: .zero)
            #expect(try await handingOver.value == false)
            try await serving.value
        }
    }

    private func client(_ host: String, _ server: Generation, _ isSecure: Bool = false) async throws -> AsyncUDPSocket {
        let client = AsyncUDPSocket()
        try await client.connect(to: host, port: server.listener.localPort)
        if isSecure { try await client.startDTLS(settings: TestCertificates.client()) }
        return client
    }

    /// Peers stay with the process that knows them, whichever of its addresses they use.
    @Test(arguments: [("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"]), (nil, ["127.0.0.1", "127.0.0.2", "::1"])], [false, true])
    func peersStayAndStrangersGoToTheSuccessor(_ place: (interface: String?, hosts: [String]), _ isSecure: Bool) async throws {
        let dtls = isSecure ? try TestCertificates.server() : nil
        let first = try await Generation("first", path, interface: place.interface, dtls: dtls)
        var early: [AsyncUDPSocket] = []
        for host in place.hosts { early.append(try await client(host, first, isSecure)) }
        for client in early { #expect(try await client.ask("a") == "first a") }
        let second = try await Generation("second", path, dtls: dtls)
        #expect(try await first.handingOver.value == true)
        #expect(second.listener.localPort == first.listener.localPort)
        for round in 0..<3 {
            for client in early { #expect(try await client.ask("\(round)") == "first \(round)") }
            for host in place.hosts { #expect(try await client(host, second, isSecure).ask("b") == "second b") }
        }
        // Other users cannot share the port: the sockets of the peers share it with SO_REUSEPORT.
        let intruder = AsyncUDPSocket()
        try intruder.setOption(.reuseAddress, to: true)
        #expect(throws: AsyncSocketError.self) {
            try intruder.bind(toPort: second.listener.localPort, interface: place.hosts[0])
        }
        // Peers leave one after another. The first process finishes when none remains.
        for client in early {
            try await client.send(Data("bye".utf8))
            if isSecure { continue }
            // A datagram is lost if it arrives while the first process closes the peer's socket.
            var reply: Data?
            while reply == nil {
                try await client.send(Data("again".utf8))
                reply = try? await client.receive(timeout: .milliseconds(100)).data
            }
            #expect(reply == Data("second again".utf8))
        }
        try await first.serving.value
        try await eventually("they are gone") { first.listener.snapshot.openCount == 0 }
        let third = try await Generation("third", path, dtls: dtls)
        #expect(try await second.handingOver.value == true)
        #expect(try await client(place.hosts[0], third, isSecure).ask("c") == "third c")
        await second.listener.close(timeout: .zero)
        try await second.serving.value
        let port = third.listener.localPort
        try await third.end()
        try await eventually("no socket is left at the port") {
            (try? AsyncUDPSocket().bind(toPort: port, interface: "127.0.0.1")) != nil
        }
    }

    /// However often processes replace each other, each request gets one reply, and a client gets all its
    /// replies from the same process.
    @Test(arguments: [false, true]) func noDatagramIsLostOrMisled(_ isSecure: Bool) async throws {
        let dtls = isSecure ? try TestCertificates.server() : nil
        var generations = [try await Generation("0", path, dtls: dtls)]
        let port = generations[0].listener.localPort
        // Idle peers make a handover take longer.
        var idle: [AsyncUDPSocket] = []
        for _ in 0..<(isSecure ? 5 : 200) {
            idle.append(try await client("127.0.0.1", generations[0], isSecure))
            if !isSecure { #expect(try await idle.last?.ask("idle") == "0 idle") }
        }
        let isOver = Locked(false)
        defer { isOver.withLock { $0 = true } }
        let load = (0..<4).map { number in
            Task {
                var clientCount = 0
                while !isOver.withLock({ $0 }) {
                    let client = AsyncUDPSocket()
                    client.firstRetransmission = .milliseconds(50)
                    try await client.connect(to: "127.0.0.1", port: port)
                    if isSecure { try await client.startDTLS(settings: TestCertificates.client()) }
                    var names: Set<Substring> = []
                    // The first three arrive together, from a stranger.
                    for count in [3, 1, 2, 3, 1, 1, 1] {
                        for round in 0..<count { try await client.send(Data("\(number) \(round)".utf8)) }
                        // A handover may change the order of datagrams.
                        var answered: Set<Substring> = []
                        for _ in 0..<count {
                            let reply = String(decoding: try await client.receive(timeout: .patient).data, as: UTF8.self)
                            let words = reply.split(separator: " ", maxSplits: 1)
                            names.insert(words[0])
                            answered.insert(words[1])
                        }
                        #expect(answered == Set((0..<count).map { "\(number) \($0)" }))
                    }
                    #expect(names.count == 1)
                    try await client.send(Data("bye".utf8))
                    client.disconnect()
                    clientCount += 1
                }
                return clientCount
            }
        }
        for number in 1...5 {
            generations.append(try await Generation("\(number)", path, dtls: dtls))
            #expect(try await generations[number - 1].handingOver.value == true)
            try await eventually("it serves") { generations[number].listener.snapshot.acceptedCount >= 5 }
        }
        isOver.withLock { $0 = true }
        for client in idle { try await client.send(Data("bye".utf8)) }
        for task in load { #expect(try await task.value > 0) }
        for generation in generations.dropLast() { try await generation.serving.value }
        try await generations[5].end()
    }

    /// A device that restarts connects from the same port. Its earlier connection is in the old process.
    @Test func aClientThatConnectsAgainIsServedByTheSuccessor() async throws {
        let dtls = try TestCertificates.server()
        let first = try await Generation("first", path, dtls: dtls)
        let device = try ManualDTLS(TestCertificates.client())
        try await device.socket.connect(to: "127.0.0.1", port: first.listener.localPort)
        _ = try await device.shakeHands()
        try await device.send(device.encrypt("a"))
        #expect(try await device.receive() == "first a")
        let port = device.socket.localPort
        device.socket.disconnect()
        let second = try await Generation("second", path, dtls: dtls)
        #expect(try await first.handingOver.value == true)
        let again = AsyncUDPSocket()
        again.firstRetransmission = .milliseconds(50)
        try await eventually("the port is free") { (try? again.bind(toPort: port, interface: "127.0.0.1")) != nil }
        try await again.connect(to: "127.0.0.1", port: second.listener.localPort)
        try await again.startDTLS(settings: TestCertificates.client())
        #expect(try await again.ask("b") == "second b")
        try await first.serving.value
        try await second.end()
    }

    /// The successor has failed after it was ready.
    @Test(arguments: [false, true]) func theSocketsAreUsedAgain(_ isSecure: Bool) async throws {
        let first = try await Generation("first", path, dtls: isSecure ? TestCertificates.server() : nil)
        let early = try await client("127.0.0.1", first, isSecure)
        #expect(try await early.ask("a") == "first a")
        for round in 0..<3 {
            await first.listener.leaveSockets()
            #expect(try await early.ask("b \(round)") == "first b \(round)")
            let late = AsyncUDPSocket()
            late.firstRetransmission = .milliseconds(50)
            try await late.connect(to: "127.0.0.1", port: first.listener.localPort)
            async let secured = Result.of { if isSecure { try await late.startDTLS(settings: TestCertificates.client()) } }
            if !isSecure { try await late.send(Data("c".utf8)) }
            await first.listener.resumeSockets()
            try (await secured).get()
            if isSecure { try await late.send(Data("c".utf8)) }
            #expect(try await late.receive(timeout: .patient).data == Data("first c".utf8))
            #expect(try await early.ask("d \(round)") == "first d \(round)")
            try await late.send(Data("bye".utf8))
        }
        try await first.end()
    }

    @Test func aProcessMayHandOverBothKinds() async throws {
        let first = try await HotRestart(path: path)
        let stream = try SocketListener(port: 0, interface: "127.0.0.1")
        let datagrams = try DatagramListener(port: 0, interface: "127.0.0.1")
        await #expect(throws: AsyncSocketError.self) { try await first.takeOver(["dns": stream], datagrams: ["dns": datagrams]) }
        try await first.takeOver(["tcp": stream], datagrams: ["udp": datagrams])
        let handingOver = Task { try await first.untilReplaced() }
        let second = try await HotRestart(path: path)
        let (tcp, udp) = (second.descriptors(named: "tcp"), second.descriptors(named: "udp"))
        #expect(tcp.map(\.localAddress) == [stream.localAddress])
        #expect(udp.map(\.localAddress) == [datagrams.localAddresses.first])
        // A socket of the wrong kind stays usable.
        #expect(throws: AsyncSocketError.self) { try DatagramListener(inherited: tcp) }
        #expect(throws: AsyncSocketError.self) { try SocketListener(inherited: udp) }
        let listener = try SocketListener(inherited: tcp)
        try await second.takeOver(["tcp": listener], datagrams: ["udp": try DatagramListener(inherited: udp)])
        #expect(try await handingOver.value == true)
        #expect(!stream.isListening && !datagrams.isListening)
    }

    @Test func onlyServersSocketsAreInherited() throws {
        func errno(_ descriptors: [Int32]) -> Int32? {
            let error = #expect(throws: AsyncSocketError.self) {
                try DatagramListener(inherited: descriptors.map { InheritedDescriptor($0, name: "udp") })
            }
            return error?.errno
        }
        #expect(errno([]) == EINVAL)
        #expect(errno([socket(AF_INET, Int32(SOCK_DGRAM.rawValue), 0)]) == EINVAL)
        #expect(errno([socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)]) == ESOCKTNOSUPPORT)
        let connected = try DatagramDescriptor(opening: .ipv4)
        try connected.connect(to: .loopback(port: 9))
        #expect(errno([dup(connected.socket.rawValue)]) == EISCONN)
    }
}
