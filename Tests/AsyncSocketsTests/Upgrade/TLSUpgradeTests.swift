import AsyncSocketsTesting
import SocketTLS
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Transcripts of `TLSUpgrade`: its state after each step, and when data may be transferred.
@Suite struct TLSUpgradeTests {
    private func queued() throws -> TLSUpgrade {
        let settings = TLSSettings.client(serverName: "localhost")
        return .queuedTLS(TLSRequest(settings: settings.values, context: try .context(for: settings.values)), drained: [])
    }

    private func secure() throws -> TLSUpgrade {
        var upgrade = try queued()
        upgrade.begin()
        upgrade.succeed()
        return upgrade
    }

    /// In whichever order the queues reach their markers.
    @Test(arguments: [[TLSUpgrade.DrainedQueues.startingReadTLS, .startingWriteTLS], [.startingWriteTLS, .startingReadTLS]])
    func theHandshakeBeginsWhenBothQueuesAreAtTheirMarkers(_ order: [TLSUpgrade.DrainedQueues]) throws {
        var upgrade = try queued()
        for _ in 0..<2 {
            let isEarly = upgrade.note(order[0]) == nil
            #expect(isEarly && upgrade.isOpenForData && upgrade.refusedRole == nil)
        }
        let isDue = upgrade.note(order[1]) != nil
        let isClient = if case .client = upgrade.refusedRole { true } else { false }
        #expect(isDue && isClient)
        upgrade.begin()
        let isOver = upgrade.note(.both) == nil
        #expect(isOver && !upgrade.isOpenForData && upgrade.refusedRole == nil)
    }

    @Test func aVerdictIsAboutOneQuestion() throws {
        var upgrade = try queued()
        upgrade.begin()
        let first = upgrade.awaitTrust()
        #expect(upgrade.question == first && !upgrade.isOpenForData && !upgrade.isSecure)
        upgrade.resume()
        #expect(upgrade.question == nil && !upgrade.isOpenForData)
        let second = upgrade.awaitTrust()
        #expect(second != first && upgrade.question == second)
        // Only a verdict completes it.
        upgrade.succeed()
        #expect(upgrade.question == second && !upgrade.isSecure)
    }

    /// Data is transferred until the client's response arrives, and then paused until the trust decision.
    @Test func aRequestOfAServerLeavesItSecureAllTheWay() throws {
        var upgrade = try secure()
        #expect(upgrade.isSettled && upgrade.isSecure && upgrade.isOpenForData)
        upgrade.authenticate()
        #expect(!upgrade.isSettled && upgrade.isOpenForData)
        upgrade.noteAnswer()
        #expect(upgrade.isSecure && !upgrade.isOpenForData)
        let question = upgrade.awaitTrust()
        #expect(upgrade.question == question && upgrade.isSecure && !upgrade.isOpenForData)
        upgrade.resume()
        #expect(upgrade.question == nil && !upgrade.isOpenForData)
        upgrade.succeed()
        #expect(upgrade.isSettled && upgrade.isOpenForData)
    }

    /// An unexpected step has no effect. It can neither return to plaintext nor bypass a decision.
    @Test func aStepOutOfTurnChangesNothing() throws {
        var upgrade = try queued()
        upgrade.authenticate()
        upgrade.noteAnswer()
        upgrade.resume()
        upgrade.succeed()
        _ = upgrade.awaitTrust()
        #expect(upgrade.isOpenForData && !upgrade.isSecure && upgrade.question == nil)
        upgrade.begin()
        upgrade.authenticate()
        #expect(!upgrade.isSecure && !upgrade.isOpenForData)
        upgrade.succeed()
        upgrade.begin()
        upgrade.noteAnswer()
        _ = upgrade.awaitTrust()
        #expect(upgrade.isSettled && upgrade.question == nil)
    }
}
