import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// A listener, its clients, and a model of its counts.
final class HubSchedule {
    /// Clients are identified by their position among the silent, the established or the departed clients.
    /// Steps without such a client have no effect.
    enum Step: Sendable {
        /// A client from a source starts a handshake and stops sending.
        case begin(Int)
        /// A silent client starts another handshake from the same port.
        case restart(Int)
        /// A silent client finishes its handshake.
        case finish(Int)
        /// A client from a source completes a handshake.
        case establish(Int)
        /// An established client starts a handshake from the same port and stops sending.
        case restartEstablished(Int)
        case leave(Int)
        /// The network repeats a ClientHello of a client.
        case repeatHello(Int), repeatEstablishedHello(Int)
        /// The network repeats the first ClientHello of a client that has sent several.
        case repeatFirstHello(Int), repeatFirstEstablishedHello(Int)
        /// The network repeats the ClientHello of the client that was last replaced or has last left.
        case `return`
        /// A client from a source starts a handshake that times out.
        case timeOut(Int)
        case handshakeLimit(Int), peerLimit(Int), sourceLimit(Int)
        /// The server's settings are replaced.
        case reload
        /// A stranger sends something else.
        case noise, helloWithoutCookie
        /// The listener stops accepting peers.
        case stop
    }

    private var course: Course<Step>
    private let listener: DatagramListener
    private let bodies = Locked((begun: 0, ended: 0))
    private let errors = Locked<[AsyncSocketError.Code]>([])
    /// The steps so far.
    private(set) var log: [String] = []

    // The model. Silent clients are in the order in which their handshakes began.
    private var silent: [HubClient] = []
    private var established: [HubClient] = []
    private var departed: [HubClient] = []
    private var isStopped = false
    private var servedCount = 0
    private var refusedCount = 0
    private var ignoredCount = 0
    private var replacedCount = 0
    private var lateCount = 0
    /// When a source reached its number of handshakes.
    private var reached: [Int: Int] = [:]

    init(_ plan: Plan) throws {
        course = Course(fixed: plan.steps)
        listener = try Self.listener(maximumPeers: plan.maximumPeers)
        listener.maximumHandshakes = plan.maximumHandshakes
    }

    init(seed: UInt64) throws {
        var dice = SeededGenerator(seed: seed)
        listener = try Self.listener(maximumPeers: Int.random(in: 3...8, using: &dice))
        listener.maximumHandshakes = Int.random(in: 1...6, using: &dice)
        course = Course(random: dice, count: 20...40)
    }

    private static func listener(maximumPeers: Int) throws -> DatagramListener {
        try DatagramListener(
            address: .loopback("0.0.0.0"), dtls: settings(timeout: .patient), maximumPeers: maximumPeers, idleTimeout: nil,
            configure: { $0.firstRetransmission = .seconds(60) })
    }

    private static func settings(timeout: Duration) throws -> TLSServerSettings {
        var settings = try TestCertificates.server()
        settings.handshakeTimeout = timeout
        return settings
    }

    func run() async throws {
        let serving = Task { [listener, bodies, errors] in
            try await listener.run(onError: { error, _ in
                if let error = error as? AsyncSocketError { errors.withLock { $0.append(error.code) } }
            }) { socket in
                bodies.withLock { $0.begun += 1 }
                defer { bodies.withLock { $0.ended += 1 } }
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        while let step = course.next({ randomStep(&$0) }) { try await take(step) }
        for client in established { try await client.expectEcho() }
        await listener.close(timeout: .zero)
        try await serving.value
        #expect(listener.hub.handshakeCount == 0 && listener.snapshot.openCount == 0)
        let rest = Contents(of: listener.hub)
        #expect(rest["state.peers"] == 0 && rest["state.handshakes.places"] == 0 && rest["state.handshakes.sources"] == 0)
        #expect(bodies.withLock { $0.begun == servedCount && $0.ended == servedCount })
    }

    private func randomStep(_ dice: inout SeededGenerator) -> Step {
        let (source, position) = (Int.random(in: 0..<3, using: &dice), Int.random(in: 0..<8, using: &dice))
        func of(_ clients: [HubClient]) -> Int { clients.isEmpty ? 0 : position % clients.count }
        return switch Int.random(in: 0..<22, using: &dice) {
        case 0...5: .begin(source)
        case 6: .restart(of(silent))
        case 7: .finish(of(silent))
        case 8...10: .establish(source)
        case 11: .restartEstablished(of(established))
        case 12: .leave(of(established))
        case 13: .repeatHello(of(silent))
        case 14: .repeatFirstHello(of(silent))
        case 15: .repeatFirstEstablishedHello(of(established))
        case 16: .return
        case 17: .peerLimit(3 + position % 6)
        case 18: .reload
        case 19: .sourceLimit(1 + position % 6)
        default: .handshakeLimit(1 + position % 6)
        }
    }

    private func take(_ step: Step) async throws {
        log.append("\(step)")
        switch step {
        case .begin(let source): try await begin(HubClient(source, of: listener))
        case .restart(let position): if let client = silent.element(at: position) { try await begin(client) }
        case .finish(let position): if let client = silent.element(at: position) { try await finish(client) }
        case .establish(let source):
            let client = try await HubClient(source, of: listener)
            if try await begin(client) { try await finish(client) }
        case .restartEstablished(let position): if let client = established.element(at: position) { try await begin(client) }
        case .leave(let position):
            guard let client = established.element(at: position) else { break }
            established.removeAll { $0 === client }
            departed.append(client)
            try await client.close()
        case .repeatHello(let position): try await silent.element(at: position)?.sendLastHello()
        case .repeatEstablishedHello(let position): try await established.element(at: position)?.sendLastHello()
        case .repeatFirstHello(let position): try await repeatFirst(of: silent.element(at: position))
        case .repeatFirstEstablishedHello(let position): try await repeatFirst(of: established.element(at: position))
        case .return: if let client = departed.popLast() { try await begin(client, isRepeated: true) }
        case .timeOut(let source): try await timeOut(source)
        case .handshakeLimit(let limit): listener.maximumHandshakes = limit
        case .peerLimit(let limit): listener.maximumPeers = limit
        case .sourceLimit(let limit): listener.maximumPeersPerSource = limit
        case .reload: try listener.replaceTLS(Self.settings(timeout: .patient))
        case .noise:
            try await stranger().send(Data("noise".utf8))
            ignoredCount += 1
        case .helloWithoutCookie:
            let stranger = try await stranger()
            try await stranger.send(Data(DTLSHello().hello()))
            // The server only replies with a cookie.
            _ = try await stranger.receive()
        case .stop:
            listener.beginClosing(timeout: nil)
            isStopped = true
        }
        try await check()
    }

    /// Sockets close asynchronously, so the counts are polled.
    private func check() async throws {
        do {
            try await eventually("the counts agree") { counts == expectedCounts }
        } catch {
            throw Unexpected(description: "the counts are \(counts), not \(expectedCounts)")
        }
    }

    private var expectedCounts: [Int] {
        [
            silent.count, silent.count + established.count, established.count, refusedCount, ignoredCount, replacedCount,
            lateCount,
        ]
    }

    private var counts: [Int] {
        let errors = errors.withLock { $0 }
        let snapshot = listener.snapshot
        return [
            snapshot.handshakeCount, snapshot.openCount, bodies.withLock { $0.begun - $0.ended },
            snapshot.refused.total - snapshot.refused.invalid, snapshot.refused.invalid,
            errors.count { $0 == .tooManyHandshakes }, errors.count { $0 == .handshakeTimeout },
        ]
    }

    // MARK: - The model

    /// How far a new handshake would exceed the limits in total, in place of `earlier`.
    private func excess(insteadOf earlier: HubClient) -> Int {
        let shaking = silent.count { $0 !== earlier }
        let peers = shaking + established.count { $0 !== earlier }
        return max(shaking + 1 - listener.maximumHandshakes, peers + 1 - listener.maximumPeers)
    }

    /// How far it would exceed the limit of its source.
    private func excessOfSource(insteadOf earlier: HubClient) -> Int {
        (silent + established).count { $0 !== earlier && $0.source == earlier.source } + 1 - listener.maximumPeersPerSource
    }

    private func isAdmitted(insteadOf earlier: HubClient) -> Bool {
        let (ofSource, total) = (excessOfSource(insteadOf: earlier), excess(insteadOf: earlier))
        guard !isStopped, max(ofSource, total) <= 1 else { return false }
        return max(ofSource, total) <= 0 || silent.contains { $0 !== earlier && (ofSource <= 0 || $0.source == earlier.source) }
    }

    private func noteCount(of source: Int) {
        reached[source] = (reached.values.max() ?? 0) + 1
    }

    private func removeSilent(_ client: HubClient) {
        guard let index = silent.firstIndex(where: { $0 === client }) else { return }
        noteCount(of: silent.remove(at: index).source)
    }

    /// Removes the oldest handshake of a source, or of the source with the most handshakes.
    private func replaceOldest(of source: Int? = nil) {
        func count(_ source: Int) -> Int { silent.count { $0.source == source } }
        let most = Set(silent.map(\.source)).min { (count($1), reached[$0] ?? 0) < (count($0), reached[$1] ?? 0) }
        guard let oldest = silent.first(where: { $0.source == source ?? most }) else { return }
        removeSilent(oldest)
        departed.append(oldest)
        refusedCount += 1
        replacedCount += 1
    }

    /// Notes the handshake of a client that is admitted.
    private func note(_ client: HubClient) {
        let (ofSource, total) = (excessOfSource(insteadOf: client), excess(insteadOf: client))
        removeSilent(client)
        established.removeAll { $0 === client }
        if ofSource > 0 { replaceOldest(of: client.source) } else if total > 0 { replaceOldest() }
        silent.append(client)
        noteCount(of: client.source)
    }

    // MARK: - Clients

    private func stranger() async throws -> AsyncUDPSocket {
        let socket = try AsyncUDPSocket.bound()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
        return socket
    }

    /// Starts a handshake. The server replies unless it refuses the client, which then keeps its earlier
    /// connection.
    ///
    /// - Parameter isRepeated: Whether the network repeats an earlier ClientHello.
    @discardableResult
    private func begin(_ client: HubClient, isRepeated: Bool = false) async throws -> Bool {
        let isAdmitted = isAdmitted(insteadOf: client)
        if isRepeated { try await client.repeatLastHello() } else { try await client.sayHello() }
        if isAdmitted {
            note(client)
            if isRepeated { try await check() } else { try await client.receiveServerHello() }
        } else {
            log.append("  refused")
            if !isRepeated { client.undoHello() }
            refusedCount += 1
            try await check()
        }
        return isAdmitted
    }

    private func finish(_ client: HubClient) async throws {
        guard client.canFinish else { return }
        try await client.finish()
        removeSilent(client)
        established.append(client)
        servedCount += 1
    }

    /// An earlier ClientHello is not that of a new connection.
    private func repeatFirst(of client: HubClient?) async throws {
        guard let client, client.hellos.count > 1 else { return }
        try await client.sendFirstHello()
        ignoredCount += 1
    }

    private func timeOut(_ source: Int) async throws {
        try listener.replaceTLS(Self.settings(timeout: .milliseconds(1)))
        let client = try await HubClient(source, of: listener)
        if isAdmitted(insteadOf: client) {
            note(client)
            removeSilent(client)
            departed.append(client)
            lateCount += 1
        } else {
            refusedCount += 1
        }
        try await client.sayHello()
        try await check()
        try listener.replaceTLS(Self.settings(timeout: .patient))
    }
}

extension Array {
    fileprivate func element(at position: Int) -> Element? { indices.contains(position) ? self[position] : nil }
}
