import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Compares two ends that exchange, upgrade, evaluate trust and close in random order, in both styles, with a
/// model. Each call completes once. Data sent after `startDTLS` is never sent in plaintext, and never
/// delivered before the upgrade. Each message arrives at most once. If no datagrams are lost, all messages
/// arrive in order.
///
/// `DTLS_SCHEDULES` is the number of schedules, 150 by default; `DTLS_SEED` is the first seed.
@Suite(.timeLimit(.minutes(60))) struct DTLSScheduleTests {
    @Test func everyScheduleKeepsThePromises() async throws {
        let environment = ProcessInfo.processInfo.environment
        let count = environment["DTLS_SCHEDULES"].flatMap { UInt64($0) } ?? 150
        let first = environment["DTLS_SEED"].flatMap { UInt64($0) } ?? .random(in: 0..<1 << 40)
        let meetings = try Self.meetings()
        for seed in first..<first + count {
            let schedule = try DTLSSchedule(seed: seed, meetings: meetings)
            do {
                try await schedule.run()
            } catch {
                Issue.record("seed \(seed): \(error): \(schedule.steps.joined(separator: "; "))")
                return
            }
        }
    }

    /// Certificates with and without tickets and trust evaluation, and pre-shared keys.
    private static func meetings() throws -> [DTLSSchedule.Meeting] {
        var judging = try TestCertificates.client()
        judging.trustEvaluation = .delegate
        let key = try TLSPreSharedKey(identity: "alice", key: [UInt8](repeating: 7, count: 32))
        let pairs = [
            (try TestCertificates.client(), try TestCertificates.server()), (judging, try TestCertificates.server()),
            (
                TLSSettings.client(serverName: "localhost", preSharedKey: key).only(.tls12),
                TLSSettings.server(preSharedKeys: TLSPreSharedKeys { $0 == key.identity ? key : nil }).only(.tls12)
            ),
        ]
        return pairs.map { client, server in
            var (client, server) = (client, server)
            client.handshakeTimeout = .seconds(600)
            server.handshakeTimeout = .seconds(600)
            return DTLSSchedule.Meeting(client: client, server: server)
        }
    }
}

private final class DTLSSchedule {
    struct Meeting {
        let client: TLSClientSettings
        let server: TLSServerSettings
    }

    private var dice: SeededGenerator
    private let meeting: Meeting
    private let relay: DatagramRelay
    private let client: ScheduledEnd
    private let server: ScheduledEnd
    private var isHarmed = false
    /// Set after a close or a cancellation: calls may fail, and data in transit may be lost.
    private var mayFail = false
    private var nextNumber: UInt32 = 0
    private(set) var steps: [String] = []

    init(seed: UInt64, meetings: [Meeting]) throws {
        dice = SeededGenerator(seed: seed)
        meeting = meetings[Int.random(in: 0..<meetings.count, using: &dice)]
        client = try ScheduledEnd("client", &dice)
        server = try ScheduledEnd("server", &dice)
        relay = try DatagramRelay(to: server.socket.localPort, seed: seed)
    }

    func run() async throws {
        defer { relay.close() }
        try await meet()
        for _ in 0..<Int.random(in: 5...40, using: &dice) { try await step() }
        try await finish()
    }

    /// Connects both, through the relay.
    private func meet() async throws {
        try await client.socket.connect(to: .loopback(port: relay.port))
        try await client.socket.send(Data("hello".utf8))
        try await server.socket.connect(to: server.socket.receive().sender)
    }

    private func other(of end: ScheduledEnd) -> ScheduledEnd { end === client ? server : client }

    // MARK: - Steps

    private func step() async throws {
        let end = Bool.random(using: &dice) ? client : server
        switch Int.random(in: 0..<24, using: &dice) {
        case 0...3: sendSome(from: end) { end.sendByDelegate($0) }
        case 4...6: sendSome(from: end) { end.sendByTask($0) }
        case 7...8: try await allow(end, "begins to receive") { try end.socket.beginReceiving() }
        case 9:
            steps.append("\(end.name) pauses")
            end.socket.pauseReceiving()
        case 10...12:
            steps.append("\(end.name): a task receives")
            end.receive(isShort: Bool.random(using: &dice))
        case 13: end.receives.randomElement(using: &dice)?.task.cancel()
        case 14: try await collect(end)
        case 15...18: try await upgrade(end)
        case 19: harm()
        default:
            guard Int.random(in: 0..<12, using: &dice) == 0 else { return }
            close(end)
        }
    }

    private func allow(_ end: ScheduledEnd, _ name: String, _ body: () async throws -> Void) async throws {
        steps.append("\(end.name) \(name)")
        do { try await body() } catch let error as AsyncSocketError where mayFail { steps.append("  \(error.code)") }
    }

    private func sendSome(from end: ScheduledEnd, _ send: (ScheduledEnd.Message) -> Void) {
        for _ in 0..<Int.random(in: 1...3, using: &dice) where end.sent.count < 40 {
            let message = ScheduledEnd.Message(
                number: nextNumber, isSecret: end.isUpgrading, size: Int.random(in: 16...1_200, using: &dice))
            nextNumber += 1
            steps.append("\(end.name) sends \(message.number)\(message.isSecret ? ", secret" : "")")
            send(message)
        }
    }

    private func upgrade(_ end: ScheduledEnd) async throws {
        guard !end.isUpgrading else { return }
        // A pending receive would close the socket, which has its own test.
        try await collect(end)
        let byTask = Bool.random(using: &dice)
        try await allow(end, "upgrades, \(byTask ? "in a task" : "by its delegate")") {
            if end === client {
                try end.upgrade(meeting.client, byTask: byTask)
            } else {
                try end.upgrade(meeting.server, byTask: byTask)
            }
        }
    }

    /// From now on the relay drops, duplicates and reorders datagrams, and once both ends are secure also
    /// corrupts them.
    private func harm() {
        guard client.isUpgrading, server.isUpgrading else { return }
        let isSecure = client.socket.isSecure && server.socket.isSecure
        steps.append("the road gets worse\(isSecure ? ", and corrupts" : "")")
        isHarmed = true
        relay.setHarm(.all(Int.random(in: 1...30, using: &dice), corrupts: isSecure))
    }

    private func close(_ end: ScheduledEnd) {
        mayFail = true
        switch Int.random(in: 0..<4, using: &dice) {
        case 0: end.socket.close()
        case 1: end.socket.closeAfterSending()
        case 2: end.upgrading?.cancel()
        default: end.socket.disconnect()
        }
        steps.append("\(end.name) closes")
    }

    private func collect(_ end: ScheduledEnd) async throws {
        try await end.collect(mayFail: mayFail)
    }

    // MARK: - The end

    private func finish() async throws {
        for end in [client, server] { try await collect(end) }
        if mayFail {
            for end in [client, server] { end.socket.close() }
        } else {
            if client.isUpgrading || server.isUpgrading {
                for end in [client, server] { try await upgrade(end) }
            }
            for end in [client, server] { try await end.secured() }
            for end in [client, server] { try await end.allAreSent() }
            if !isHarmed { try await drain() }
            for end in [client, server] { end.socket.closeAfterSending() }
        }
        for end in [client, server] { try await end.ends(mayFail: mayFail) }
        for end in [client, server] { try check(end) }
        let leaked = relay.seen.contains { Data($0).range(of: ScheduledEnd.Message.secret) != nil }
        guard !leaked else { throw Unexpected(description: "what was sent behind startDTLS is on the wire") }
    }

    /// Receives all remaining messages.
    private func drain() async throws {
        for end in [client, server] {
            end.socket.pauseReceiving()
            let expected = other(of: end).sent.count { $0.isSecret == end.isUpgrading }
            // An upgrade drops unread plaintext.
            try await eventually("\(end.name) has all") {
                if end.delivered.count(where: { $0.isSecret == end.isUpgrading })
                    + end.taken.count(where: { $0.isSecret == end.isUpgrading }) >= expected
                {
                    return true
                }
                do { try await end.take(timeout: .milliseconds(5)) } catch let error as AsyncSocketError
                    where error.code == .readTimeout
                {}
                return false
            }
        }
    }

    private func check(_ end: ScheduledEnd) throws {
        try end.checkAnswers(mayFail: mayFail)
        let (delivered, taken, sent) = (end.delivered, end.taken, other(of: end).sent)
        let foreign = Set(delivered + taken).subtracting(sent)
        guard foreign.isEmpty else { throw Unexpected(description: "\(end.name) has what was not sent: \(foreign)") }
        let secrets = (delivered + taken).filter(\.isSecret).map(\.number)
        guard Set(secrets).count == secrets.count else { throw Unexpected(description: "\(end.name) has one twice: \(secrets)") }
        guard !isHarmed else { return }
        for (who, messages) in [("the delegate", delivered), ("tasks", taken)] {
            let numbers = messages.map(\.number)
            guard numbers == numbers.sorted() else {
                throw Unexpected(description: "\(who) of the \(end.name) got another order: \(numbers)")
            }
        }
        guard !mayFail else { return }
        let expected = sent.filter { $0.isSecret && end.isUpgrading }.map(\.number)
        guard secrets.sorted() == expected else {
            throw Unexpected(description: "\(end.name) has \(secrets.sorted()), not \(expected)")
        }
    }
}
