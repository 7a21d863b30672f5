import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Arrivals, replacements, refusals, restarts at the limit and closes in random order. After each step the
/// counts of a listener agree with a model, and finally no handshake or peer is left.
///
/// `HUB_SEED` is the first seed of `HUB_SCHEDULES`, 4 by default.
@Suite(.timeLimit(.patient)) struct HubPropertyTests {
    @Test func theCountsAgreeWithTheModel() async throws {
        let environment = ProcessInfo.processInfo.environment
        let count = environment["HUB_SCHEDULES"].flatMap { UInt64($0) } ?? 4
        let first = environment["HUB_SEED"].flatMap { UInt64($0) } ?? .random(in: 0..<1 << 40)
        for seed in first..<first + count {
            let schedule = try HubSchedule(seed: seed)
            do {
                try await schedule.run()
            } catch {
                Issue.record("seed \(seed): \(error)\n\(schedule.steps.joined(separator: "; "))")
                return
            }
        }
    }
}

private final class HubSchedule {
    /// A client that has begun a handshake and stopped sending.
    private struct SilentClient {
        let socket: AsyncUDPSocket
        let source: Int
        var hello: [UInt8]
    }

    private struct ServedClient {
        let client: ManualDTLS
        let source: Int
    }

    private var dice: SeededGenerator
    private let listener: DatagramListener
    private let bodies = Locked((begun: 0, ended: 0))
    private(set) var steps: [String] = []

    // The model. Silent clients are in the order in which their handshakes began.
    private var silent: [SilentClient] = []
    private var established: [ServedClient] = []
    private var establishedCount = 0
    private var refusedCount = 0
    /// When a source reached its number of handshakes.
    private var reached: [Int: Int] = [:]

    init(seed: UInt64) throws {
        dice = SeededGenerator(seed: seed)
        listener = try DatagramListener(
            address: .loopback("0.0.0.0"), dtls: TestCertificates.server(), maximumPeers: Int.random(in: 3...8, using: &dice),
            idleTimeout: nil, configure: { $0.firstRetransmission = .seconds(60) })
        listener.maximumHandshakes = Int.random(in: 1...6, using: &dice)
    }

    func run() async throws {
        let serving = Task { [listener, bodies] in
            try await listener.run(onError: { _, _ in }) { socket in
                bodies.withLock { $0.begun += 1 }
                defer { bodies.withLock { $0.ended += 1 } }
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        for _ in 0..<Int.random(in: 20...40, using: &dice) {
            try await step()
            try await check()
        }
        await listener.close(timeout: .zero)
        try await serving.value
        #expect(listener.hub.handshakeCount == 0 && listener.peerCount == 0)
        #expect(bodies.withLock { $0.begun == establishedCount && $0.ended == establishedCount })
    }

    /// Sockets take a moment to close, so this waits for the counts.
    private func check() async throws {
        try await eventually(
            "the counts agree: \(listener.hub.handshakeCount) of \(silent.count) handshakes, \(listener.peerCount) peers"
        ) {
            listener.hub.handshakeCount == silent.count && listener.peerCount == silent.count + established.count
                && bodies.withLock { $0.begun - $0.ended } == established.count
        }
        #expect(listener.refusedCount == refusedCount)
    }

    private func step() async throws {
        switch Int.random(in: 0..<12, using: &dice) {
        case 0...4: try await begin()
        case 5: try await restart()
        case 6...7: try await establish()
        case 8: try await restartEstablished()
        case 9: try await leave()
        case 10: try await repeatHello()
        default:
            listener.maximumHandshakes = Int.random(in: 1...6, using: &dice)
            steps.append("limit \(listener.maximumHandshakes)")
        }
    }

    // MARK: - The model

    private var isAtLimit: Bool {
        silent.count >= listener.maximumHandshakes || silent.count + established.count >= listener.maximumPeers
    }

    /// Whether a new client is admitted.
    private var isAdmitted: Bool {
        if !isAtLimit { return true }
        let excess = max(
            silent.count + 1 - listener.maximumHandshakes, silent.count + established.count + 1 - listener.maximumPeers)
        return excess == 1 && !silent.isEmpty
    }

    private func noteCount(of source: Int) {
        reached[source] = (reached.values.max() ?? 0) + 1
    }

    private func add(_ client: SilentClient) {
        silent.append(client)
        noteCount(of: client.source)
    }

    private func remove(at index: Int) -> SilentClient {
        noteCount(of: silent[index].source)
        return silent.remove(at: index)
    }

    /// Removes the oldest handshake of the source with the most handshakes.
    private func evictIfFull() {
        guard isAtLimit else { return }
        func count(_ source: Int) -> Int { silent.count { $0.source == source } }
        let most = Set(silent.map(\.source)).min { (count($1), reached[$0] ?? 0) < (count($0), reached[$1] ?? 0) }
        if let index = silent.firstIndex(where: { $0.source == most }) { _ = remove(at: index) }
        refusedCount += 1
    }

    // MARK: - Clients

    /// Sends a ClientHello with a cookie, and returns it. The server replies unless it refuses the client.
    private func sayHello(on socket: AsyncUDPSocket, isAdmitted: Bool) async throws -> [UInt8] {
        let client = try DTLSHello()
        try await socket.send(Data(client.hello()))
        // Datagrams of an earlier handshake may still be waiting.
        var request: Data
        repeat { request = try await socket.receive().data } while request.count < 14 || request[13] != 3
        let hello = client.hello(answering: request)
        try await socket.send(Data(hello))
        if isAdmitted {
            // A ServerHello.
            repeat { request = try await socket.receive().data } while request.count < 14 || request[13] != 2
        } else {
            refusedCount += 1
            try await eventually("it is refused") { listener.refusedCount == refusedCount }
        }
        return hello
    }

    private func makeSocket(_ source: Int) async throws -> AsyncUDPSocket {
        let socket = try AsyncUDPSocket.bound("127.0.0.\(source + 1)")
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        return socket
    }

    private func begin() async throws {
        let (source, isAdmitted) = (Int.random(in: 0..<3, using: &dice), isAdmitted)
        steps.append("\(source) begins\(isAdmitted ? "" : " and is refused")")
        let socket = try await makeSocket(source)
        let hello = try await sayHello(on: socket, isAdmitted: isAdmitted)
        guard isAdmitted else { return }
        evictIfFull()
        add(SilentClient(socket: socket, source: source, hello: hello))
    }

    /// A silent client starts a new handshake from the same port, possibly at the limit.
    private func restart() async throws {
        guard let index = silent.indices.randomElement(using: &dice), silent.count <= listener.maximumHandshakes else { return }
        var client = remove(at: index)
        steps.append("\(client.source) begins again")
        client.hello = try await sayHello(on: client.socket, isAdmitted: true)
        add(client)
    }

    private func establish() async throws {
        guard isAdmitted else { return }
        let source = Int.random(in: 0..<3, using: &dice)
        steps.append("\(source) is served")
        let socket = try await makeSocket(source)
        evictIfFull()
        noteCount(of: source)
        let client = try ManualDTLS(TestCertificates.client(), on: socket)
        _ = try await client.shakeHands()
        try await client.send(client.encrypt("hello"))
        #expect(try await client.receive() == "hello")
        noteCount(of: source)
        established.append(ServedClient(client: client, source: source))
        establishedCount += 1
    }

    /// An established client starts a new handshake from the same port, and then stops sending.
    private func restartEstablished() async throws {
        guard let index = established.indices.randomElement(using: &dice), silent.count < listener.maximumHandshakes else {
            return
        }
        let served = established.remove(at: index)
        steps.append("\(served.source) was served, and begins again")
        let hello = try await sayHello(on: served.client.socket, isAdmitted: true)
        add(SilentClient(socket: served.client.socket, source: served.source, hello: hello))
    }

    private func leave() async throws {
        guard let index = established.indices.randomElement(using: &dice) else { return }
        steps.append("a peer closes")
        let served = established.remove(at: index)
        try await served.client.send(served.client.close())
    }

    /// The network repeats a datagram. The counts do not change.
    private func repeatHello() async throws {
        guard let client = silent.randomElement(using: &dice) else { return }
        steps.append("\(client.source) repeats itself")
        try await client.socket.send(Data(client.hello))
    }
}
