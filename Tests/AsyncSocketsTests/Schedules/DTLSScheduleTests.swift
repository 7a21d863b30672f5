import AsyncSocketsTesting
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Compares two ends that exchange, upgrade, evaluate trust and close in random order, in both styles, with a
/// model. Each call completes once. Data sent after `startDTLS` is never sent in plaintext, and never
/// delivered before the upgrade. Each message arrives at most once. If no datagrams are lost, all messages
/// arrive in order.
///
/// Each fixed schedule covers one order of these events, with each kind of credentials and delegate. Other
/// orders are random: `DTLS_SCHEDULES` is the number of schedules, 150 by default; `DTLS_SEED` is the first
/// seed.
@Suite(.timeLimit(.minutes(60))) struct DTLSScheduleTests {
    @Test func everyScheduleKeepsThePromises() async throws {
        let meetings = try Self.meetings()
        let first = Seeds.first("DTLS_SEED")
        for seed in first..<first + Seeds.count("DTLS_SCHEDULES", 150) {
            let schedule = try DTLSSchedule(seed: seed, meetings: meetings)
            guard await check(schedule, "DTLS_SEED=\(seed)") else { return }
        }
    }

    @Test(arguments: DTLSSchedule.Plan.fixed) func fixedSchedulesKeepThePromises(_ plan: DTLSSchedule.Plan) async throws {
        for (number, meeting) in try Self.meetings().enumerated() {
            for style in 0..<3 {
                let schedule = try DTLSSchedule(plan, meeting, styles: (style, (style + number) % 3))
                guard await check(schedule, "\(plan), meeting \(number), style \(style)") else { return }
            }
        }
    }

    private func check(_ schedule: DTLSSchedule, _ name: String) async -> Bool {
        do {
            try await schedule.run()
            return true
        } catch {
            Issue.record("\(name): \(error): \(schedule.log.joined(separator: "; "))")
            return false
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

extension DTLSSchedule {
    /// A fixed schedule.
    struct Plan: Sendable, CustomStringConvertible {
        let description: String
        let steps: [Step]

        init(_ description: String, _ steps: [Step]...) { (self.description, self.steps) = (description, Array(steps.joined())) }

        private static let exchange: [Step] = [
            .send(.client, byTask: true, [16, 700]), .send(.server, byTask: false, [1_200]),
            .send(.client, byTask: false, [400]), .send(.server, byTask: true, [100, 16]),
        ]
        private static let upgrade: [Step] = [.upgrade(.client, byTask: true), .upgrade(.server, byTask: false)]

        static let fixed: [Plan] = [
            Plan("plaintext only", exchange, [.receive(.server, isShort: false), .beginReceiving(.client)], exchange),
            Plan("both upgrade in tasks", [.upgrade(.client, byTask: true), .upgrade(.server, byTask: true)], exchange),
            Plan(
                "both upgrade by their delegates",
                [.upgrade(.server, byTask: false), .upgrade(.client, byTask: false)], exchange),
            Plan(
                "data before and after the upgrade",
                exchange, upgrade, exchange, [.beginReceiving(.server), .receive(.client, isShort: false)], exchange),
            Plan(
                "the server waits for the client",
                [.upgrade(.server, byTask: true)], exchange, [.upgrade(.client, byTask: true)]),
            Plan(
                "the client does not wait for the server",
                [.upgrade(.client, byTask: false)], exchange, [.upgrade(.server, byTask: true)]),
            Plan(
                "the delegates receive throughout",
                [.beginReceiving(.client), .beginReceiving(.server)], exchange, upgrade, exchange, [.pause(.client)], exchange,
                [.beginReceiving(.client), .pause(.server)]),
            Plan(
                "tasks receive throughout",
                upgrade,
                [
                    .receive(.client, isShort: false), .receive(.server, isShort: true), .receive(.server, isShort: false),
                ], exchange,
                [
                    .cancelReceive(.client, 0), .receive(.client, isShort: true), .collect(.client), .collect(.server),
                ]),
            Plan(
                "a receive is cancelled before the upgrade",
                [.receive(.client, isShort: false), .receive(.server, isShort: false), .cancelReceive(.client, 0)], upgrade,
                exchange),
            Plan("the network is bad from the first flight", upgrade, [.harm(20)], exchange),
            Plan("the network becomes bad later", exchange, upgrade, exchange, [.collect(.client), .harm(30)], exchange),
            Plan("the client closes before the server upgrades", [.upgrade(.client, byTask: true), .close(.client, .close)]),
            Plan("the client disconnects during the upgrade", upgrade, [.close(.client, .disconnect)], exchange),
            Plan("the server closes during the upgrade", upgrade, [.close(.server, .close)], exchange),
            Plan("the server disconnects while data is queued", upgrade, exchange, [.close(.server, .disconnect)]),
            Plan(
                "the client closes after sending",
                exchange, upgrade, exchange, [.close(.client, .closeAfterSending)], exchange),
            Plan(
                "the server closes after sending, without an upgrade",
                exchange, [.receive(.client, isShort: false), .close(.server, .closeAfterSending)], exchange),
            Plan(
                "an upgrade is cancelled",
                [.upgrade(.client, byTask: true), .close(.client, .cancelUpgrade), .upgrade(.server, byTask: true)], exchange),
            Plan(
                "both close",
                upgrade, exchange,
                [
                    .close(.client, .closeAfterSending), .close(.server, .closeAfterSending), .close(.client, .close),
                ]),
        ]
    }
}
