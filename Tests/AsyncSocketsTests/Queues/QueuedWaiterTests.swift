import Foundation
import SocketBuffers
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Waiters in the read and write queues: deadlines and removal.
@Suite struct QueuedWaiterTests {
    private final class Waiter<Value: Sendable>: OperationWaiter {
        let deadline: Deadline?
        let lateError: any Error = Unexpected(description: "late")

        init(after seconds: Double = -1) { deadline = Deadline(after: seconds) }

        func complete(_ result: Result<Value, any Error>) {}
    }

    /// In any order, and also after the first of them is removed.
    @Test(arguments: [[60.0, 3600], [3600, 60], [3600, 60, 7200], [-1, 60, -1, 3600]])
    func theEarliestDeadlineCounts(_ times: [Double]) throws {
        let (reads, writes) = (ReadHalf(), WriteHalf())
        let readers = times.map { Waiter<Data>(after: $0) }
        let writers = times.map { Waiter<Void>(after: $0) }
        for reader in readers { reads.packets.append(ReadPacket.make(.anyBytes, timeout: -1, completion: .waiter(reader))) }
        for writer in writers { writes.append(WritePacket(data: Data("x"), timeout: -1, completion: .waiter(writer))) }
        for seconds in [60.0, 3600] {
            let index = try #require(times.firstIndex(of: seconds))
            let deadlines = (reads.packets.deadline, writes.packets.deadline)
            #expect(deadlines.0 == readers[index].deadline && deadlines.1 == writers[index].deadline)
            let now = try #require(Deadline(after: seconds + 1))
            let late = (reads.packets.lateWaiter(at: now), writes.packets.lateWaiter(at: now))
            #expect(late.0 === readers[index] && late.1 === writers[index])
            _ = (reads.cancel(readers[index]), writes.cancel(writers[index]))
            let isNextLate = reads.packets.lateWaiter(at: now) != nil || writes.packets.lateWaiter(at: now) != nil
            #expect(!isNextLate)
        }
    }

    @Test func aCancelledFileWaitsNoLonger() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "waiting-\(UUID().uuidString)")
        try Data(count: 100).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let writes = WriteHalf()
        for length in [100, 60] {
            let waiter = Waiter<Void>()
            let region = try FileRegion(path: file.path, offset: 0, length: length)
            writes.append(WritePacket(file: region, timeout: -1, completion: .waiter(waiter)))
            writes.append(WritePacket(data: Data("hello"), timeout: -1, tag: 1))
            let before = (writes.waitingByteCount, writes.waitingMemoryByteCount)
            _ = writes.cancel(waiter)
            let after = (writes.waitingByteCount, writes.waitingMemoryByteCount)
            let inMemory = length == 100 ? 5 : 10
            #expect(before == (length + inMemory, inMemory) && after == (inMemory, inMemory))
        }
    }

    /// A write on an empty queue is sent directly. If it bypassed the marker, it would be sent in plaintext.
    @Test func aMarkerAloneWaitsToo() {
        let (reads, writes) = (ReadHalf(), WriteHalf())
        var found: [Bool] = []
        for change in [{}, { reads.packets.appendStartTLS() }, { reads.packets.removeStartTLS() }] {
            change()
            found.append(reads.packets.isEmpty)
        }
        for change in [{}, { writes.appendStartTLS() }, { writes.packets.removeStartTLS() }] {
            change()
            found.append(writes.isEmpty)
        }
        #expect(found == [true, false, true, true, false, true])
    }
}
