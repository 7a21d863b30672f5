import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport

@testable import AsyncSockets

/// Two peers, a relay between them, and a model of the messages that each peer receives.
final class DTLSSchedule {
    enum Side: Sendable { case client, server }
    enum Ending: CaseIterable { case close, closeAfterSending, cancelUpgrade, disconnect }

    enum Step: Sendable {
        /// An end sends messages of these sizes.
        case send(Side, byTask: Bool, [Int])
        case beginReceiving(Side), pause(Side)
        case receive(Side, isShort: Bool)
        /// A task that receives is cancelled. Positions count from the oldest one.
        case cancelReceive(Side, Int)
        case collect(Side)
        case upgrade(Side, byTask: Bool)
        /// The relay drops, duplicates, reorders and corrupts this percentage of datagrams.
        case harm(Int)
        case close(Side, Ending)
    }

    struct Meeting: Sendable {
        let client: TLSClientSettings
        let server: TLSServerSettings
    }

    private var course: Course<Step>
    private let meeting: Meeting
    private let relay: DatagramRelay
    private let client: ScheduledEnd
    private let server: ScheduledEnd
    private var isHarmed = false
    /// Set after a close or a cancellation: calls may fail, and data in transit may be lost.
    private var mayFail = false
    private var nextNumber: UInt32 = 0
    /// The steps so far.
    private(set) var log: [String] = []

    init(seed: UInt64, meetings: [Meeting]) throws {
        var dice = SeededGenerator(seed: seed)
        meeting = meetings[Int.random(in: 0..<meetings.count, using: &dice)]
        client = try ScheduledEnd("client", style: Int.random(in: 0..<3, using: &dice))
        server = try ScheduledEnd("server", style: Int.random(in: 0..<3, using: &dice))
        relay = try DatagramRelay(to: server.socket.localPort, seed: seed)
        course = Course(random: dice, count: 5...40)
    }

    init(_ plan: Plan, _ meeting: Meeting, styles: (client: Int, server: Int)) throws {
        self.meeting = meeting
        client = try ScheduledEnd("client", style: styles.client)
        server = try ScheduledEnd("server", style: styles.server)
        relay = try DatagramRelay(to: server.socket.localPort, seed: 1)
        course = Course(fixed: plan.steps)
    }

    func run() async throws {
        defer { relay.close() }
        try await meet()
        while let step = course.next({ randomStep(&$0) }) { try await take(step) }
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

    private func randomStep(_ dice: inout SeededGenerator) -> Step? {
        let side: Side = Bool.random(using: &dice) ? .client : .server
        func sizes() -> [Int] {
            (0..<Int.random(in: 1...3, using: &dice)).map { _ in Int.random(in: 16...1_200, using: &dice) }
        }
        switch Int.random(in: 0..<24, using: &dice) {
        case 0...3: return .send(side, byTask: false, sizes())
        case 4...6: return .send(side, byTask: true, sizes())
        case 7...8: return .beginReceiving(side)
        case 9: return .pause(side)
        case 10...12: return .receive(side, isShort: Bool.random(using: &dice))
        case 13: return .cancelReceive(side, Int.random(in: 0..<4, using: &dice))
        case 14: return .collect(side)
        case 15...18: return .upgrade(side, byTask: Bool.random(using: &dice))
        case 19: return .harm(Int.random(in: 1...30, using: &dice))
        default:
            guard Int.random(in: 0..<12, using: &dice) == 0 else { return nil }
            return .close(side, Ending.allCases.randomElement(using: &dice) ?? .close)
        }
    }

    private func end(_ side: Side) -> ScheduledEnd { side == .client ? client : server }

    private func take(_ step: Step) async throws {
        switch step {
        case .send(let side, let byTask, let sizes): send(from: end(side), byTask: byTask, sizes)
        case .beginReceiving(let side):
            try await allow(end(side), "begins to receive") { try end(side).socket.beginReceiving() }
        case .pause(let side):
            log.append("\(end(side).name) pauses")
            end(side).socket.pauseReceiving()
        case .receive(let side, let isShort):
            log.append("\(end(side).name): a task receives")
            end(side).receive(isShort: isShort)
        case .cancelReceive(let side, let position):
            let receives = end(side).receives
            if !receives.isEmpty { receives[position % receives.count].task.cancel() }
        case .collect(let side): try await collect(end(side))
        case .upgrade(let side, let byTask): try await upgrade(end(side), byTask: byTask)
        case .harm(let part): harm(part)
        case .close(let side, let ending): close(end(side), ending)
        }
    }

    private func allow(_ end: ScheduledEnd, _ name: String, _ body: () async throws -> Void) async throws {
        log.append("\(end.name) \(name)")
        do { try await body() } catch let error as AsyncSocketError where mayFail { log.append("  \(error.code)") }
    }

    private func send(from end: ScheduledEnd, byTask: Bool, _ sizes: [Int]) {
        for size in sizes where end.sent.count < 40 {
            let message = ScheduledEnd.Message(number: nextNumber, isSecret: end.isUpgrading, size: size)
            nextNumber += 1
            log.append("\(end.name) sends \(message.number)\(message.isSecret ? ", secret" : "")")
            if byTask { end.sendByTask(message) } else { end.sendByDelegate(message) }
        }
    }

    private func upgrade(_ end: ScheduledEnd, byTask: Bool) async throws {
        guard !end.isUpgrading else { return }
        // A pending receive would close the socket, which has its own test.
        try await collect(end)
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
    private func harm(_ part: Int) {
        guard client.isUpgrading, server.isUpgrading else { return }
        let isSecure = client.socket.isSecure && server.socket.isSecure
        log.append("the road gets worse\(isSecure ? ", and corrupts" : "")")
        isHarmed = true
        relay.setHarm(.all(part, corrupts: isSecure))
    }

    private func close(_ end: ScheduledEnd, _ ending: Ending) {
        mayFail = true
        switch ending {
        case .close: end.socket.disconnect()
        case .closeAfterSending: end.socket.disconnectAfterSending()
        case .cancelUpgrade: end.upgrading?.cancel()
        case .disconnect: end.socket.disconnect()
        }
        log.append("\(end.name) closes")
    }

    private func collect(_ end: ScheduledEnd) async throws {
        try await end.collect(mayFail: mayFail)
    }

    // MARK: - The end

    private func finish() async throws {
        for end in [client, server] { try await collect(end) }
        if mayFail {
            for end in [client, server] { end.socket.disconnect() }
        } else {
            if client.isUpgrading || server.isUpgrading {
                for end in [client, server] { try await upgrade(end, byTask: end === client) }
            }
            for end in [client, server] { try await end.secured() }
            for end in [client, server] { try await end.allAreSent() }
            if !isHarmed { try await drain() }
            for end in [client, server] { end.socket.disconnectAfterSending() }
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
