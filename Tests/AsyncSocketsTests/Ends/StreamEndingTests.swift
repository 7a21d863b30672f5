import Testing

@testable import AsyncSockets

/// The rules of `StreamEnding` as transcripts of events and the resulting steps.
@Suite struct StreamEndingTests {
    private typealias Transcript = EndingTranscript

    /// How the peer's side ends, and the corresponding error code.
    enum PeerEnd: CaseIterable, Sendable {
        case fin, reset, truncation

        var event: StreamEnding.Event {
            switch self {
            case .fin: .finReceived
            case .reset: .resetReceived
            case .truncation: .truncated
            }
        }

        var code: AsyncSocketError.Code {
            switch self {
            case .fin: .closedByPeer
            case .reset: .connectionReset
            case .truncation: .truncated
            }
        }
    }

    @Test func withoutNewsNothingEnds() {
        var it = Transcript(hasWrites: true)
        #expect(!it.ending.mayDecide)
        #expect(it.decide() == [])
        #expect(it.ask(for: .waiting) == [])
        #expect(it.hear(.finishedWriting) == [])
        #expect(it.ending.isWritingFinished && !it.ending.mayDecide)
    }

    @Test(arguments: PeerEnd.allCases)
    func eachPieceOfNewsIsHeard(_ end: PeerEnd) {
        for news in [end.event, .sendFailed, .hangup, .wanted(.afterReads)] {
            var it = Transcript(reads: [.waiting], mayReceive: true)
            _ = it.hear(news)
            #expect(it.ending.mayDecide, "\(news)")
        }
    }

    // MARK: - Rule 1

    @Test(arguments: PeerEnd.allCases)
    func unreadBytesHoldUpAnyEndOfThePeer(_ end: PeerEnd) {
        var it = Transcript(hasUnreadBytes: true)
        #expect(it.hear(end.event) == [])
        #expect(it.wait(until: 1_000_000) == [])
        #expect(it.readSome() == [])
        #expect(it.readEverything() == [.close(end.code)])
    }

    @Test(arguments: [false, true])
    func whatTheReadsOfTasksLeaveHoldsUpAnOrderlyEnd(allowsHalfClose: Bool) {
        var it = Transcript(reads: [.waiting, .waiting], allowsHalfClose: allowsHalfClose)
        it.readsLeaveBytes = true
        if allowsHalfClose { _ = it.hear(.finishedWriting) }
        #expect(it.hear(.finReceived) == [.abandonRead(.closedByPeer), .abandonRead(.closedByPeer)])
        #expect(it.readEverything() == [.close(.closedByPeer)])
    }

    @Test func whatTheReadsOfTasksLeaveDoesNotHoldUpABreak() {
        var it = Transcript(reads: [.waiting, .waiting])
        it.readsLeaveBytes = true
        #expect(it.hear(.resetReceived) == [.close(.connectionReset)])
    }

    @Test(arguments: PeerEnd.allCases)
    func withoutUnreadBytesTheEndOfThePeerCountsAtOnce(_ end: PeerEnd) {
        for reads in [[], [.waiting], [.waiting, .waitingForEnd]] as [[StreamEnding.Situation.Reads]] {
            var it = Transcript(reads: reads, hasWrites: true)
            #expect(it.hear(end.event) == [.close(end.code)], "\(reads)")
        }
    }

    /// The bytes before the end belong to the engine, which determines the meaning of the end.
    @Test(arguments: PeerEnd.allCases)
    func anEndBeforeTheHandshakeWaitsForTheWritesBeforeIt(_ end: PeerEnd) {
        for allowsHalfClose in [false, true] {
            var it = Transcript(reads: [.atStartTLS], hasWrites: true, allowsHalfClose: allowsHalfClose)
            #expect(it.hear(end.event) == [])
            #expect(it.hear(.secured) == [])
            #expect(it.ending.readEnd == nil && !it.ending.mayDecide)
            it.reads = [.waiting]
            #expect(it.decide() == [])
            #expect(it.hear(.truncated) == (allowsHalfClose ? [.closeReadSide, .abandonRead(.truncated)] : [.close(.truncated)]))
        }
    }

    // MARK: - Rule 2

    @Test func aReadToTheEndIsCompleteWithAFin() {
        var it = Transcript(reads: [.waitingForEnd])
        #expect(it.hear(.finReceived) == [.completeReadToEnd, .close(.closedByPeer)])
    }

    @Test(arguments: [PeerEnd.reset, .truncation], [false, true])
    func anyOtherEndGivesAReadToTheEndUp(_ end: PeerEnd, allowsHalfClose: Bool) {
        var it = Transcript(reads: [.waitingForEnd, .waiting], allowsHalfClose: allowsHalfClose)
        let staysOpen = allowsHalfClose && end == .truncation
        let rest: [Transcript.Step] = staysOpen ? [.closeReadSide, .abandonRead(end.code)] : [.close(end.code)]
        #expect(it.hear(end.event) == [.abandonRead(end.code)] + rest)
    }

    @Test func theSecondOfTwoReadsToTheEndIsAReadLikeOthers() {
        var it = Transcript(reads: [.waitingForEnd, .waitingForEnd])
        #expect(it.hear(.finReceived) == [.completeReadToEnd, .close(.closedByPeer)])
        it = Transcript(reads: [.waitingForEnd, .waitingForEnd], allowsHalfClose: true)
        #expect(it.hear(.finReceived) == [.completeReadToEnd, .closeReadSide, .abandonRead(.closedByPeer)])
        it = Transcript(reads: [.waitingForEnd, .waitingForEnd])
        #expect(it.hear(.resetReceived) == [.abandonRead(.connectionReset), .close(.connectionReset)])
    }

    @Test func aReadToTheEndThatIsAskedForLateIsCompleteToo() {
        var it = Transcript(reads: [.waitingForEnd], allowsHalfClose: true)
        #expect(it.hear(.finReceived) == [.completeReadToEnd, .closeReadSide])
        #expect(it.ask(for: .waitingForEnd) == [.completeReadToEnd])
        #expect(it.ask(for: .waitingForEnd) == [.completeReadToEnd])
    }

    @Test func aReadToTheEndWaitsForAnEndOfThePeer() {
        var it = Transcript(reads: [.waitingForEnd], mayReceive: true)
        #expect(it.hear(.sendFailed) == [])
        #expect(it.hear(.hangup) == [])
        #expect(it.hear(.finReceived) == [.completeReadToEnd, .close(.closedByPeer)])
    }

    // MARK: - Rule 3

    /// A read reports the truncation. Our side is finished afterwards.
    @Test(arguments: [true, false]) func aTruncationIsNotToldAgainAtTheEnd(hasRead: Bool) {
        var it = Transcript(reads: hasRead ? [.waiting] : [], allowsHalfClose: true)
        #expect(it.hear(.truncated) == [.closeReadSide] + (hasRead ? [.abandonRead(.truncated)] : []))
        #expect(it.hear(.finishedWriting) == [.close(hasRead ? nil : .truncated)])
    }

    /// Whether half-close is allowed, whether our side is finished, and how the peer's side has ended.
    @Test(arguments: [false, true], [false, true])
    func anEndOfThePeersSideLeavesAnOpenSideOpen(isAllowed: Bool, isFinished: Bool) {
        for end in PeerEnd.allCases {
            for reads in [[], [.waiting], [.waiting, .waiting]] as [[StreamEnding.Situation.Reads]] {
                var it = Transcript(reads: reads, hasWrites: true, allowsHalfClose: isAllowed)
                if isFinished { #expect(it.hear(.finishedWriting) == []) }
                let halfClose = [.closeReadSide] + reads.map { _ in Transcript.Step.abandonRead(end.code) }
                let staysOpen = isAllowed && !isFinished && end != .reset
                #expect(it.hear(end.event) == (staysOpen ? halfClose : [.close(end.code)]), "\(end), \(reads)")
            }
        }
    }

    @Test func theClosedReadSideIsToldOnceAndLaterReadsAreGivenUp() {
        var it = Transcript(allowsHalfClose: true)
        #expect(it.hear(.finReceived) == [.closeReadSide])
        #expect(it.hear(.finReceived) == [])
        #expect(it.ask(for: .waiting) == [.abandonRead(.closedByPeer)])
        #expect(it.decide() == [])
        #expect(it.hear(.finishedWriting) == [.close(.closedByPeer)])
    }

    /// If the caller was told only that the read side is closed, the truncation is reported at the end.
    @Test(arguments: [false, true]) func aTruncationIsToldOnce(reads: Bool) {
        var it = Transcript(allowsHalfClose: true)
        #expect(it.hear(.truncated) == [.closeReadSide])
        if reads { #expect(it.ask(for: .waiting) == [.abandonRead(.truncated)]) }
        #expect(it.hear(.wanted(.afterWrites)) == [.close(reads ? nil : .truncated)])
    }

    @Test func readsToTheEndBehindAnotherReadAreGivenUpWithIt() {
        for behind in [[.waitingForEnd], [.waitingForEnd, .waitingForEnd]] as [[StreamEnding.Situation.Reads]] {
            var it = Transcript(reads: [.waiting] + behind, hasWrites: true, allowsHalfClose: true)
            let givenUp = [.abandonRead(.closedByPeer)] + behind.map { _ in Transcript.Step.abandonRead(.closedByPeer) }
            #expect(it.hear(.finReceived) == [.closeReadSide] + givenUp)
        }
    }

    @Test func theReadSideClosesWhenItsBytesHaveBeenRead() {
        var it = Transcript(hasUnreadBytes: true, allowsHalfClose: true)
        #expect(it.hear(.finReceived) == [])
        #expect(it.readSome() == [])
        #expect(it.readEverything() == [.closeReadSide])
    }

    @Test func unreadBytesHoldUpTheEndOfBothSides() {
        var it = Transcript(hasUnreadBytes: true, allowsHalfClose: true)
        #expect(it.hear(.finReceived, .finishedWriting) == [])
        #expect(it.readEverything() == [.close(.closedByPeer)])
    }

    @Test func whoTakesHalfCloseBackEndsTheConnection() {
        var it = Transcript(allowsHalfClose: true)
        #expect(it.hear(.finReceived) == [.closeReadSide])
        it.allowsHalfClose = false
        #expect(it.decide() == [.close(.closedByPeer)])
    }

    // MARK: - Rule 4

    @Test func theCallersEndWaitsForWhatTheCallerSaid() {
        for isForReads in [true, false] {
            for isForWrites in [true, false] where isForReads || isForWrites {
                var it = Transcript(reads: [.waiting], hasWrites: true)
                if isForReads { #expect(it.hear(.wanted(.afterReads)) == []) }
                if isForWrites { #expect(it.hear(.wanted(.afterWrites)) == []) }
                var (readsDone, writesDone) = (it, it)
                readsDone.reads = []
                #expect(readsDone.decide() == (isForWrites ? [] : [.close(nil)]))
                writesDone.hasWrites = false
                #expect(writesDone.decide() == (isForReads ? [] : [.close(nil)]))
                writesDone.reads = []
                #expect(writesDone.decide() == [.close(nil)])
            }
        }
    }

    @Test func whatTheCallerWantsComesBeforeAnyOtherEnd() {
        for event in [StreamEnding.Event.finReceived, .resetReceived, .truncated, .sendFailed, .fileBroken, .hangup] {
            for intent in [CloseIntent.afterReads, .afterWrites, [.afterReads, .afterWrites]] {
                var it = Transcript(hasUnreadBytes: true)
                #expect(it.hear(event, .wanted(intent)) == [.close(nil)], "\(event), \(intent)")
            }
        }
    }

    @Test(arguments: PeerEnd.allCases)
    func anEndThatComesBeforeWhatTheCallerWaitsForIsTold(_ end: PeerEnd) {
        var it = Transcript(reads: [.waiting])
        #expect(it.hear(.wanted(.afterReads)) == [])
        #expect(it.hear(end.event) == [.close(end.code)])
        it = Transcript(hasWrites: true)
        #expect(it.hear(.wanted(.afterWrites)) == [])
        #expect(it.hear(.sendFailed) == [.close(.system)])
    }

    @Test func aReadThatTheEndCompletesIsDoneForTheCaller() {
        var it = Transcript(reads: [.waitingForEnd])
        #expect(it.hear(.wanted(.afterReads), .finReceived) == [.completeReadToEnd, .close(nil)])
        // The last write was complete when the end was found.
        it = Transcript(reads: [.waitingForEnd])
        #expect(it.hear(.wanted(.afterWrites), .finReceived) == [.completeReadToEnd, .close(nil)])
        it = Transcript(reads: [.waiting], allowsHalfClose: true)
        #expect(it.hear(.wanted(.afterReads), .finReceived) == [.closeReadSide, .abandonRead(.closedByPeer), .close(nil)])
        it = Transcript(hasWrites: true, allowsHalfClose: true)
        #expect(it.hear(.wanted(.afterWrites), .finReceived) == [.closeReadSide])
        it.hasWrites = false
        #expect(it.decide() == [.close(nil)])
    }
}
