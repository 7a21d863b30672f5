import Testing

@testable import AsyncSockets

/// The rules of `StreamEnding` for failures: broken files, failed writes and hangups, and how the connection
/// is closed.
@Suite struct StreamEndingFailureTests {
    private typealias Transcript = EndingTranscript

    // MARK: - Rule 5

    @Test func aBrokenFileEndsTheConnectionAtOnce() {
        for reads in [[], [.waiting], [.waitingForEnd], [.atStartTLS]] as [[StreamEnding.Situation.Reads]] {
            var it = Transcript(
                reads: reads, hasUnreadBytes: true, mayReceive: true, hasWrites: true, gracePeriod: .infinity)
            #expect(it.hear(.fileBroken) == [.close(.badParameter)], "\(reads)")
        }
    }

    @Test func aBrokenFileIsToldBeforeTheEndOfThePeer() {
        for event in [StreamEnding.Event.finReceived, .resetReceived, .truncated] {
            var it = Transcript(reads: [.waiting], hasWrites: true)
            #expect(it.hear(event, .fileBroken) == [.close(.badParameter)])
            it = Transcript(hasUnreadBytes: true, hasWrites: true, allowsHalfClose: true)
            #expect(it.hear(event, .fileBroken) == [.close(.badParameter)])
        }
    }

    // MARK: - Rule 6

    @Test func aFailedWriteEndsTheConnectionWhenNoByteIsLeft() {
        for reads in [[], [.waiting], [.waitingForEnd], [.atStartTLS]] as [[StreamEnding.Situation.Reads]] {
            var it = Transcript(reads: reads, hasWrites: true)
            #expect(it.hear(.sendFailed) == [.close(.system)], "\(reads)")
        }
    }

    @Test func aFailedWriteWaitsForWhatTheKernelHas() {
        for hasWrites in [false, true] {
            var it = Transcript(reads: [.waiting], mayReceive: true, hasWrites: hasWrites)
            #expect(it.hear(.sendFailed) == [])
            #expect(it.wait(until: 1_000_000) == [])
            #expect(it.wakeTime == nil)
            it.mayReceive = false
            #expect(it.decide() == [.close(.system)])
        }
    }

    @Test func unreadBytesHoldUpAFailureThatNoOneWaitsFor() {
        var it = Transcript(hasUnreadBytes: true)
        #expect(it.hear(.sendFailed) == [])
        #expect(it.wakeTime == nil)
        #expect(it.wait(until: 1_000_000) == [])
        #expect(it.readEverything() == [.close(.system)])
    }

    @Test func aWriteThatWaitsIsToldAfterTheGracePeriod() {
        var it = Transcript(hasUnreadBytes: true, hasWrites: true, gracePeriod: 5)
        it.time = 10
        #expect(it.hear(.sendFailed) == [])
        #expect(it.wakeTime == 15)
        #expect(it.wait(until: 14.999) == [])
        #expect(it.wakeTime == 15)
        #expect(it.wait(until: 15) == [.close(.system)])
    }

    @Test func aWriteThatWaitsIsToldWhenTheBytesHaveBeenRead() {
        var it = Transcript(hasUnreadBytes: true, hasWrites: true, gracePeriod: 5)
        #expect(it.hear(.sendFailed) == [])
        it.time = 1
        #expect(it.readEverything() == [.close(.system)])
    }

    @Test func theGracePeriodBeginsAgainWithEachRead() {
        var it = Transcript(hasUnreadBytes: true, hasWrites: true, gracePeriod: 5)
        #expect(it.hear(.sendFailed) == [])
        #expect(it.wakeTime == 5)
        it.time = 4
        #expect(it.readSome() == [])
        #expect(it.wakeTime == 9)
        #expect(it.wait(until: 8.999) == [])
        #expect(it.wait(until: 9) == [.close(.system)])
    }

    @Test func aReadThatStillWaitsStopsTheGracePeriod() {
        var it = Transcript(hasUnreadBytes: true, mayReceive: true, hasWrites: true, gracePeriod: 5)
        #expect(it.hear(.sendFailed) == [])
        it.time = 4
        #expect(it.ask(for: .waiting) == [])
        #expect(it.wakeTime == nil)
        #expect(it.wait(until: 100) == [])
    }

    @Test func aWriteThatIsAskedForLaterBeginsTheGracePeriod() {
        var it = Transcript(hasUnreadBytes: true, gracePeriod: 5)
        #expect(it.hear(.sendFailed) == [])
        it.time = 10
        it.hasWrites = true
        #expect(it.decide() == [])
        #expect(it.wakeTime == 15)
        // The write was cancelled, so nothing is waiting.
        it.hasWrites = false
        #expect(it.wait(until: 15) == [])
    }

    /// An obsolete deadline would wake the loop repeatedly.
    @Test func aWriteThatIsCancelledTakesTheGracePeriodWithIt() {
        var it = Transcript(hasUnreadBytes: true, hasWrites: true, gracePeriod: 5)
        #expect(it.hear(.sendFailed) == [])
        #expect(it.wakeTime == 5)
        it.hasWrites = false
        #expect(it.decide() == [])
        #expect(it.wakeTime == nil)
        // The next write has its own grace period.
        it.time = 10
        it.hasWrites = true
        #expect(it.decide() == [])
        #expect(it.wakeTime == 15)
        #expect(it.wait(until: 15) == [.close(.system)])
    }

    @Test func anInfiniteGracePeriodNeverEnds() {
        var it = Transcript(hasUnreadBytes: true, hasWrites: true, gracePeriod: .infinity)
        #expect(it.hear(.sendFailed) == [])
        #expect(it.wakeTime == nil)
        #expect(it.wait(until: 1_000_000_000) == [])
        #expect(it.readEverything() == [.close(.system)])
    }

    @Test func withoutAGracePeriodAWriteThatWaitsIsToldAtOnce() {
        var it = Transcript(hasUnreadBytes: true, hasWrites: true, gracePeriod: 0)
        #expect(it.hear(.sendFailed) == [.close(.system)])
    }

    // MARK: - Rule 7

    @Test(arguments: StreamEndingTests.PeerEnd.allCases)
    func ofTwoEndsThePeersIsTold(_ end: StreamEndingTests.PeerEnd) {
        for events in [[end.event, .sendFailed], [.sendFailed, end.event]] {
            var it = Transcript(reads: [.waiting], mayReceive: true, hasWrites: true)
            #expect(it.hear(events[0], events[1]) == [.close(end.code)])
            it = Transcript(hasUnreadBytes: true, hasWrites: true)
            #expect(it.hear(events[0], events[1]) == [])
            #expect(it.wait(until: 1) == [.close(end.code)])
            // The writes before the handshake can never be sent.
            it = Transcript(reads: [.atStartTLS], hasWrites: true)
            #expect(it.hear(events[0], events[1]) == [.close(end.code)])
        }
    }

    @Test func whereOnlyTheReadSideHasClosedTheFailedWriteIsTold() {
        var it = Transcript(hasWrites: true, allowsHalfClose: true)
        #expect(it.hear(.finReceived) == [.closeReadSide])
        #expect(it.hear(.sendFailed) == [.close(.system)])
        it = Transcript(hasUnreadBytes: true, hasWrites: true, allowsHalfClose: true)
        #expect(it.hear(.finReceived, .sendFailed) == [])
        #expect(it.wait(until: 1) == [.close(.system)])
        it = Transcript(hasWrites: true, allowsHalfClose: true)
        #expect(it.hear(.finishedWriting, .finReceived, .sendFailed) == [.close(.closedByPeer)])
        it = Transcript(hasWrites: true, allowsHalfClose: true)
        #expect(it.hear(.resetReceived, .sendFailed) == [.close(.connectionReset)])
    }

    // MARK: - Rule 8

    @Test func aHangupIsLeftToWhoeverReads() {
        for reads in [[], [.waiting], [.waitingForEnd]] as [[StreamEnding.Situation.Reads]] {
            var it = Transcript(reads: reads)
            #expect(it.hear(.hangup) == [], "\(reads)")
            #expect(it.ending.mayDecide)
        }
    }

    @Test func aHangupWhileNoOneReadsHasTheKernelAskedOnce() {
        var it = Transcript(reads: [.atStartTLS], hasWrites: true)
        #expect(it.hear(.hangup) == [.askKernel])
        #expect(it.decide() == [])
        #expect(!it.ending.mayDecide)
        #expect(it.hear(.hangup) == [.askKernel])
    }

    @Test func aHangupAfterTheReadSideHasClosedHasTheKernelAsked() {
        var it = Transcript(hasWrites: true, allowsHalfClose: true)
        #expect(it.hear(.finReceived, .hangup) == [.closeReadSide, .askKernel])
        #expect(it.decide() == [])
        #expect(it.hear(.hangup) == [.askKernel])
    }

    @Test func unreadBytesHoldUpAHangup() {
        var it = Transcript(hasUnreadBytes: true, allowsHalfClose: true)
        #expect(it.hear(.finReceived, .hangup) == [])
        #expect(it.readEverything() == [.closeReadSide, .askKernel])
    }

    // MARK: - Rule 9

    private static let failed = AsyncSocketError.played(.closedByPeer)
    private static let alert = AsyncSocketError.played(.tls, tls: TLSError(.protocolViolation, "played"))
    private static let late = AsyncSocketError.played(.handshakeTimeout)

    @Test func theLastWordLingers() {
        let ending = StreamEnding()
        #expect(ending.parting(with: nil) == .atOnce)
        #expect(ending.parting(with: Self.failed) == .atOnce)
        #expect(ending.parting(with: Self.alert) == .lingering)
        #expect(ending.parting(with: Self.late) == .lingering)
    }

    @Test func theEndOfTheDataThatTheCallerWaitedForLingers() {
        for (intent, parting) in [
            (.afterReads, .atOnce), (.afterWrites, .lingering), ([.afterReads, .afterWrites], .lingering),
        ] as [(CloseIntent, StreamEnding.Parting)] {
            var it = Transcript(reads: [.waiting], hasWrites: true)
            #expect(it.hear(.wanted(intent)) == [])
            #expect(it.ending.parting(with: nil) == parting, "\(intent)")
            #expect(it.ending.parting(with: Self.failed) == parting, "\(intent)")
        }
    }

    @Test func aBrokenFileIsAReset() {
        var it = Transcript(hasWrites: true)
        #expect(it.hear(.wanted(.afterWrites), .fileBroken) == [.close(.badParameter)])
        for error in [nil, Self.failed, Self.alert, Self.late] { #expect(it.ending.parting(with: error) == .reset) }
        it = Transcript(hasWrites: true)
        #expect(it.hear(.sendFailed) == [.close(.system)])
        #expect(it.ending.parting(with: Self.failed) == .atOnce)
    }
}
