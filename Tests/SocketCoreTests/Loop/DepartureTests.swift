import Testing

@testable import SocketCore

/// When a loop returns memory to the system.
@Suite struct DepartureTests {
    private final class Handler: EventHandler {
        func handle(_ events: LoopEvents) {}
    }

    /// Returns how many are registered at each noted departure if all leave one by one.
    private func notes(whenLeaving count: Int, of total: Int? = nil) -> [Int] {
        var table = LoopTable()
        let registrations = (0..<(total ?? count)).map { _ in table.insert(Handler()) }
        var notes: [Int] = []
        for registration in registrations.prefix(count) {
            _ = table.remove(registration)
            if table.noteDeparture() { notes.append(table.registrationCount) }
        }
        return notes
    }

    @Test func aDepartureIsNotedWhenAnEighthHasGone() {
        #expect(
            notes(whenLeaving: 4000) == [
                3500, 3063, 2681, 2346, 2053, 1797, 1573, 1377, 1205, 1055, 924, 796, 668, 540, 412, 284, 156, 28,
            ])
        #expect(notes(whenLeaving: 512) == [384, 256, 128, 0])
        #expect(notes(whenLeaving: 300) == [172, 44])
    }

    /// Many stay, but the memory of those that leave is still returned.
    @Test func aBurstBesideManyThatStayIsNoted() {
        #expect(notes(whenLeaving: 9000, of: 19_000).first == 16_625)
    }

    @Test func fewDeparturesAreNone() {
        #expect(notes(whenLeaving: 127) == [])
    }

    @Test func whoComesAndGoesInEqualNumbersAsksForNothing() {
        var table = LoopTable()
        var registrations = (0..<1000).map { _ in table.insert(Handler()) }
        for index in 0..<10_000 {
            _ = table.remove(registrations[index % 1000])
            let isNoted = table.noteDeparture()
            #expect(!isNoted)
            registrations[index % 1000] = table.insert(Handler())
        }
    }

    /// `HeapTrimmer`, rule 5.
    @Test func blocksAreWantedOnceForEachGrowthAndEachDeparture() {
        var table = LoopTable()
        var notes: [Int] = []
        var registrations: [LoopRegistration] = []
        func fill(to count: Int) {
            while registrations.count < count {
                registrations.append(table.insert(Handler()))
                if table.takeWishForBlocks() { notes.append(registrations.count) }
            }
        }
        fill(to: 400)
        #expect(notes == [128, 256, 384])
        // The same number again is not a growth, except after a departure.
        for registration in registrations.suffix(100) { _ = table.remove(registration) }
        registrations.removeLast(100)
        fill(to: 400)
        #expect(notes == [128, 256, 384])
        for registration in registrations.suffix(300) { _ = table.remove(registration) }
        registrations.removeLast(300)
        let haveLeft = table.noteDeparture()
        let wants = (table.takeWishForBlocks(), table.takeWishForBlocks())
        #expect(haveLeft)
        #expect(wants == (true, false))
        fill(to: 200)
        #expect(notes == [128, 256, 384, 128])
    }
}
