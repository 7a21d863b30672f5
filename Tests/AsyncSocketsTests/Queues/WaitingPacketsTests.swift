import SocketBuffers
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Transcripts of `WaitingPackets`: waiting operations, the marker of `startTLS`, and both timers.
@Suite struct WaitingPacketsTests {
    private struct Packet: WaitingPacket {
        let name: Int
        var timeout = -1.0
        var completion: Completion<Void> = .delegate(tag: 0)
    }

    private final class Waiter: OperationWaiter {
        let deadline: Deadline?
        var lateError: any Error { Unexpected(description: "late") }

        init(_ deadline: Deadline?) {
            self.deadline = deadline
        }

        func complete(_ result: Result<Void, any Error>) {}
    }

    private func queue(_ names: ClosedRange<Int>) -> WaitingPackets<Packet> {
        var packets = WaitingPackets<Packet>()
        for name in names { packets.append(Packet(name: name)) }
        return packets
    }

    // MARK: - The marker

    @Test func nothingBehindTheMarkerIsServedBeforeItIsGone() {
        var packets = queue(1...2)
        packets.appendStartTLS()
        packets.append(Packet(name: 3))
        #expect(packets.front?.pointee.name == 1 && packets.packet(at: 1)?.pointee.name == 2)
        #expect(packets.packet(at: 2) == nil && packets.hasStartTLS && !packets.isAtStartTLS)
        packets.removeFront()
        // Too early.
        packets.removeStartTLS()
        packets.removeFront()
        #expect(packets.front == nil && packets.isAtStartTLS && !packets.isEmpty)
        packets.removeFront()
        #expect(packets.isAtStartTLS == true)
        packets.removeStartTLS()
        #expect(packets.front?.pointee.name == 3 && !packets.hasStartTLS)
    }

    @Test func aQueueWithTheMarkerAloneIsNotEmpty() {
        var packets = WaitingPackets<Packet>()
        packets.appendStartTLS()
        #expect(!packets.isEmpty && packets.isAtStartTLS && packets.front == nil)
        #expect(packets.drop() == nil)
        #expect(packets.isEmpty && !packets.hasStartTLS)
    }

    @Test func dropsTakeTheOldestOnBothSidesOfTheMarker() {
        var packets = queue(1...1)
        packets.appendStartTLS()
        packets.append(Packet(name: 2))
        var names: [Int] = []
        while let packet = packets.drop() { names.append(packet.name) }
        #expect(names == [1, 2] && packets.isEmpty)
    }

    // MARK: - Comparison with a model

    /// Appends, serves, cancels and upgrades in random order, and compares the result with a list.
    @Test(arguments: 0..<50) func theQueueIsThatOfAList(seed: Int) {
        var numbers = SeededGenerator(seed: UInt64(seed))
        var packets = WaitingPackets<Packet>()
        var (before, behind): ([Int], [Int]?) = ([], nil)
        var waiters: [Int: Waiter] = [:]
        for name in 0..<400 {
            switch Int.random(in: 0..<10, using: &numbers) {
            case 0..<5:
                let waiter = Waiter(nil)
                waiters[name] = waiter
                packets.append(Packet(name: name, completion: .waiter(waiter)))
                if behind == nil { before.append(name) } else { behind?.append(name) }
            case 5, 6:
                packets.removeFront()
                if !before.isEmpty { before.removeFirst() }
            case 7:
                let all = before + (behind ?? [])
                guard let chosen = all.randomElement(using: &numbers), let waiter = waiters[chosen] else { continue }
                let found = packets.find(waiter)
                #expect(found?.index == all.firstIndex(of: chosen) && found?.packet.pointee.name == chosen)
                if let found { packets.remove(at: found.index) }
                before.removeAll { $0 == chosen }
                behind?.removeAll { $0 == chosen }
                #expect(packets.find(waiter) == nil)
            case 8 where behind == nil:
                packets.appendStartTLS()
                behind = []
            default:
                packets.removeStartTLS()
                if before.isEmpty, let rest = behind { (before, behind) = (rest, nil) }
            }
            var names: [Int] = []
            packets.forEach { names.append($0.pointee.name) }
            #expect(names == before + (behind ?? []))
            #expect(packets.front?.pointee.name == before.first && packets.packet(at: before.count) == nil)
            #expect(packets.hasStartTLS == (behind != nil) && packets.isAtStartTLS == (before.isEmpty && behind != nil))
            #expect(packets.isEmpty == (before.isEmpty && behind == nil))
        }
    }

    // MARK: - Timers

    @Test func theClockIsTheOldestPacketsAndStartsAnewWithTheNext() {
        var packets = WaitingPackets<Packet>()
        packets.append(Packet(name: 1, timeout: 100))
        packets.append(Packet(name: 2, timeout: 1000))
        #expect(!packets.hasDeadline && packets.deadline == nil)
        packets.startClock()
        let first = packets.deadline
        packets.startClock()
        #expect(first != nil && packets.deadline == first && packets.number == 0)
        packets.removeFront()
        #expect(packets.deadline == nil && packets.number == 1)
        packets.startClock()
        if let first, let second = packets.deadline { #expect(first < second) } else { Issue.record("no clock runs") }
    }

    @Test func aLatePacketIsAskedAboutOnceAndMayGoOn() {
        var packets = WaitingPackets<Packet>()
        packets.append(Packet(name: 1, timeout: 0))
        packets.startClock()
        let progress = OperationProgress(tag: 7, bytesDone: 1, total: nil)
        guard let now = packets.deadline, let late = packets.takeLate(at: now, progress) else {
            Issue.record("the packet is not late")
            return
        }
        #expect(late.progress.tag == 7 && packets.takeLate(at: now, progress) == nil)
        // It continues, and later ends with its total time.
        #expect(packets.extend(late.number, by: 50) == nil && packets.hasDeadline)
        packets.removeFront()
        #expect(packets.extend(late.number, by: 0) == nil && !packets.hasDeadline)
    }

    /// At any position in the queue, even behind the marker.
    @Test func eachWaiterHasItsOwnTime() throws {
        let early = try #require(Deadline(after: 10))
        let later = try #require(Deadline(after: 20))
        let (first, second, third) = (Waiter(later), Waiter(early), Waiter(nil))
        var packets = WaitingPackets<Packet>()
        packets.append(Packet(name: 1, completion: .waiter(first)))
        packets.appendStartTLS()
        packets.append(Packet(name: 2, completion: .waiter(second)))
        packets.append(Packet(name: 3, completion: .waiter(third)))
        #expect(packets.deadline == early)
        #expect(packets.lateWaiter(at: .now) == nil)
        #expect(packets.lateWaiter(at: early) === second)
        if let found = packets.find(second) { packets.remove(at: found.index) }
        #expect(packets.lateWaiter(at: early) == nil)
        #expect(packets.deadline == later && packets.lateWaiter(at: later) === first)
    }
}
