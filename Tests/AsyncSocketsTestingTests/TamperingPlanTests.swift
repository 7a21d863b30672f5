import Testing

@testable import AsyncSocketsTesting

@Suite struct TamperingPlanTests {
    private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    /// Returns a plan's actions at the start and for each of the texts.
    private func actions(_ tamperings: [Tampering], _ texts: String...) -> [TamperingPlan.Action] {
        var plan = TamperingPlan(tamperings)
        var actions = plan.actions(for: [])
        for text in texts { actions += plan.actions(for: text.utf8) }
        return actions
    }

    @Test func withoutTamperingSegmentsPassAsTheyCame() {
        #expect(actions([], "abc", "de") == [.forward(bytes("abc")), .forward(bytes("de"))])
    }

    @Test func injectedBytesShareTheSegment() {
        #expect(actions([.inject(bytes("XY"), at: 3)], "abcde") == [.forward(bytes("abcXYde"))])
    }

    @Test func injectionDoesNotWaitForTheNextByte() {
        #expect(actions([.inject(bytes("XY"), at: 3)], "abc") == [.forward(bytes("abcXY"))])
    }

    @Test func injectionAtTheBeginningWaitsForNoOne() {
        #expect(actions([.inject(bytes("XY"), at: 0)]) == [.forward(bytes("XY"))])
    }

    @Test func injectionCanHaveASegmentOfItsOwn() {
        let plan: [Tampering] = [.newSegment(at: 1), .inject(bytes("X"), at: 1), .newSegment(at: 1)]
        #expect(actions(plan, "ab") == [.forward(bytes("a")), .forward(bytes("X")), .forward(bytes("b"))])
    }

    @Test func piecesAreCounted() {
        #expect(actions([.pieces(of: 2)], "abcde") == [.forward(bytes("ab")), .forward(bytes("cd")), .forward(bytes("e"))])
    }

    @Test func truncationPassesWhatIsBeforeItAndNothingElse() {
        #expect(actions([.truncate(at: 4)], "abc", "def", "g") == [.forward(bytes("abc")), .forward(bytes("d")), .finish])
    }

    @Test func resetIsTheLastThingThatHappens() {
        #expect(actions([.reset(at: 1), .inject(bytes("X"), at: 2)], "abc") == [.forward(bytes("a")), .reset])
    }

    @Test func oneByteIsAltered() {
        #expect(actions([.alter(at: 1, xor: 0x20)], "abc") == [.forward(bytes("aBc"))])
    }

    @Test func droppedBytesStillCount() {
        #expect(actions([.drop(1..<3), .inject(bytes("X"), at: 3)], "abcd") == [.forward(bytes("aXd"))])
    }

    @Test func holdLiesBetweenTheBytes() throws {
        let signal = try TestSignal()
        let expected: [TamperingPlan.Action] = [.forward(bytes("ab")), .hold(signal), .forward(bytes("c"))]
        #expect(actions([.hold(at: 2, until: signal)], "abc") == expected)
    }
}
