import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Two ends that exchange, upgrade, decide and close in any order, in both styles at a time, against a model:
/// each call is answered once; what was sent behind `startDTLS` is never on the wire, and never comes in front
/// of it; each message comes once, and over a road that keeps all it comes, in order.
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

    /// Certificates, with and without tickets and a judge, and keys.
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
    /// Something was closed or cancelled: calls may fail, and what is on the way may be lost.
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
        // A receive that waits would end the socket, and has a test of its own.
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

    /// From now on the road loses, repeats and reorders, and also corrupts once both are secure.
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

    /// Receives what has not been received.
    private func drain() async throws {
        for end in [client, server] {
            end.socket.pauseReceiving()
            let expected = other(of: end).sent.count { $0.isSecret == end.isUpgrading }
            // What was in plaintext and not read is dropped by an upgrade.
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

/// One end of a schedule, and what it has seen.
private final class ScheduledEnd {
    struct Message: Hashable {
        static let secret = Data("secret".utf8)

        let number: UInt32
        let isSecret: Bool
        let size: Int

        init(number: UInt32, isSecret: Bool, size: Int) {
            (self.number, self.isSecret, self.size) = (number, isSecret, size)
        }

        /// A message as it was sent; nil: it is none, such as that of a corrupted datagram.
        init?(_ data: Data) {
            number = data.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
            isSecret = data.dropFirst(4).starts(with: Self.secret)
            size = data.count
            guard data == self.data else { return nil }
        }

        var data: Data {
            var data = Data(count: size)
            data.replaceSubrange(0..<4, with: Swift.withUnsafeBytes(of: number.bigEndian) { Data($0) })
            data.replaceSubrange(4..<10, with: isSecret ? Self.secret : Data("plain-".utf8))
            return data
        }
    }

    let name: String
    let socket: AsyncUDPSocket
    private let recorder: DatagramRecorder
    private(set) var isUpgrading = false
    private(set) var upgrading: Task<Void, any Error>?
    private(set) var sent: [Message] = []
    private(set) var taken: [Message] = []
    private(set) var receives: [(task: Task<Datagram, any Error>, wasSecure: Bool)] = []
    private var sends: [Task<Void, any Error>] = []
    private var tags: [Int] = []

    init(_ name: String, _ dice: inout SeededGenerator) throws {
        self.name = name
        recorder = DatagramRecorder(trust: { _ in
            await Task.yield()
            return true
        })
        let unbound =
            switch Int.random(in: 0..<3, using: &dice) {
            case 0: AsyncUDPSocket(inlineDelegate: recorder)
            case 1: AsyncUDPSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
            default: AsyncUDPSocket(inlineDelegate: recorder, socketQueue: DispatchQueue(label: "socket"))
            }
        unbound.firstRetransmission = .milliseconds(20)
        socket = try AsyncUDPSocket.bound("127.0.0.1", unbound)
    }

    func sendByDelegate(_ message: Message) {
        sent.append(message)
        tags.append(Int(message.number))
        socket.send(message.data, withTimeout: -1, tag: Int(message.number))
    }

    func sendByTask(_ message: Message) {
        sent.append(message)
        sends.append(Task.immediate { [socket] in try await socket.send(message.data) })
    }

    func receive(isShort: Bool) {
        receives.append(
            (Task.immediate { [socket] in try await socket.receive(timeout: isShort ? .milliseconds(1) : nil) }, socket.isSecure))
    }

    func upgrade(_ settings: TLSSettings<some TLSSide>, byTask: Bool) throws {
        isUpgrading = true
        guard byTask else { return try socket.beginDTLS(settings: settings) }
        upgrading = Task.immediate { [socket] in
            if settings.trustEvaluation == .delegate {
                try await socket.startDTLS(
                    settings: settings,
                    trust: { _ in
                        await Task.yield()
                        return true
                    })
            } else {
                try await socket.startDTLS(settings: settings)
            }
        }
    }

    /// Takes the results of receives that are over or can be cancelled.
    func collect(mayFail: Bool) async throws {
        for (task, wasSecure) in receives {
            task.cancel()
            do {
                try take(await task.value, wasSecure: wasSecure)
            } catch is CancellationError {
            } catch let error as AsyncSocketError where error.code == .readTimeout || mayFail {}
        }
        receives = []
    }

    func take(timeout: Duration) async throws {
        let wasSecure = socket.isSecure
        try take(await socket.receive(timeout: timeout), wasSecure: wasSecure)
    }

    private func take(_ datagram: Datagram, wasSecure: Bool) throws {
        guard let message = try message(in: datagram, wasSecure: wasSecure) else { return }
        guard message.isSecret ? socket.isSecure : !wasSecure else {
            throw Unexpected(description: "a task of the \(name) got \(message) on the other side of its upgrade")
        }
        taken.append(message)
    }

    /// A message as it was sent. Nil: a record of the handshake that the other end has begun in front of ours.
    private func message(in datagram: Datagram, wasSecure: Bool) throws -> Message? {
        if let message = Message(datagram.data) { return message }
        guard !wasSecure, datagram.data.count > 13, (20...22).contains(datagram.data[0]), datagram.data[1] == 0xFE else {
            throw Unexpected(description: "\(name) got something else: \(Array(datagram.data.prefix(20)))")
        }
        return nil
    }

    var delivered: [Message] {
        recorder.history.compactMap { if case .received(let datagram) = $0 { Message(datagram.data) } else { nil } }
    }

    // MARK: - The end

    func secured() async throws {
        if let upgrading { try await upgrading.value }
        if isUpgrading { try await eventually("\(name) is secure") { socket.isSecure } }
    }

    func allAreSent() async throws {
        for task in sends { try await task.value }
        try await eventually("all sends of the delegate are answered") {
            recorder.history.count { if case .sent = $0 { true } else { false } } == tags.count
        }
    }

    /// Waits for the end, and for every call.
    func ends(mayFail: Bool) async throws {
        _ = try await recorder.closed()
        for task in sends {
            do { try await task.value } catch is AsyncSocketError where mayFail {}
        }
        do { try await upgrading?.value } catch is CancellationError where mayFail {} catch is AsyncSocketError where mayFail {}
    }

    /// Each send is answered once and in order, the end is last, and neither side of the upgrade has what
    /// belongs to the other.
    func checkAnswers(mayFail: Bool) throws {
        var (answered, isSecure, history): ([Int], Bool, [DatagramTold]) = ([], false, recorder.history)
        guard case .closed(let end)? = history.popLast() else {
            throw Unexpected(description: "the end of the \(name) is not last")
        }
        guard end == nil || mayFail || end?.code == .closedByPeer else { throw Unexpected(description: "\(name): \(end as Any)") }
        for told in history {
            switch told {
            case .sent(let tag): answered.append(tag)
            case .notSent(let tag, let error):
                guard mayFail else { throw error }
                answered.append(tag)
            case .secured: isSecure = true
            case .received(let datagram):
                guard let message = try message(in: datagram, wasSecure: isSecure) else { continue }
                // An upgrade in a task is not told to the delegate.
                guard message.isSecret == isSecure || upgrading != nil else {
                    throw Unexpected(description: "the delegate of the \(name) got \(message) on the other side of its upgrade")
                }
            case .closed: throw Unexpected(description: "the \(name) has closed twice")
            case .connected, .notConnected, .highWater, .lowWater, .failedToReach, .asked: break
            }
        }
        guard Set(answered).count == answered.count else { throw Unexpected(description: "\(name): answers \(answered)") }
        // A send after the end has no answer: the delegate has had its last callback.
        guard mayFail || answered == tags else { throw Unexpected(description: "\(name): answers \(answered), not \(tags)") }
    }
}
