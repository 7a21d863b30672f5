import AsyncSockets
import CocoaClients
import Dispatch
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import CocoaAsyncSocket

/// The memory of the drop-in classes after operations and sockets have finished.
@Suite(.timeLimit(.patient)) struct AdapterSizeTests {
    private static let count = 10_000

    /// Reads that complete, that fail, and that end with their connection. Their buffers are released.
    @Test func readsThatEndedAreForgotten() {
        let ledger = ReadLedger()
        var buffers: [() -> NSMutableData?] = []
        for number in 0..<Self.count {
            weak var kept: NSMutableData?
            do {
                let buffer = NSMutableData(length: 4)
                kept = buffer
                let ticket = ledger.append(tag: number, buffer: buffer, offset: 0)
                #expect(ledger.tag(of: ticket) == number)
                switch number % 3 {
                case 0: #expect(ledger.take(ticket)?.tag == number)
                case 1: ledger.begin(clears: true)
                default: ledger.end(at: ledger.epoch)
                }
                #expect(ledger.take(ticket) == nil && ledger.tag(of: ticket) == nil)
            }
            if number % 100 < 3 { buffers.append { [weak kept] in kept } }
        }
        #expect(ledger.count == 0 && buffers.allSatisfy { $0() == nil })
        // A late close of an earlier connection does not remove the reads of the next connection.
        let earlier = ledger.epoch
        ledger.begin(clears: false)
        _ = ledger.append(tag: 1, buffer: nil, offset: 0)
        ledger.end(at: earlier)
        #expect(ledger.count == 1)
    }

    /// Reads on a socket that is not connected, and on a socket that disconnects.
    @Test func aSocketForgetsReadsThatCannotComplete() async throws {
        let idle = GCDAsyncSocket(delegate: nil, delegateQueue: nil)
        for _ in 0..<100 { idle.readData(withTimeout: -1, buffer: NSMutableData(), bufferOffset: 0, tag: 1) }
        #expect(idle.reads.count == 0)
        let wire = try await Wire.make()
        for _ in 0..<100 { wire.client.readData(withTimeout: -1, buffer: NSMutableData(), bufferOffset: 0, tag: 1) }
        #expect(wire.client.reads.count == 100)
        wire.client.disconnect()
        try await eventually("they are dropped") { wire.client.reads.count == 0 }
    }

    @Test func aQueueThatIsMarkedAgainIsKeptOnce() {
        let marks = SocketQueueMarks(nil)
        let (first, second) = (DispatchQueue(label: "first"), DispatchQueue(label: "second"))
        for _ in 0..<1_000 { for queue in [first, second] { marks.mark(queue) } }
        #expect(Contents(of: marks)["queues"] == 2)
        first.sync { #expect(marks.isCurrent) }
        for _ in 0..<1_000 {
            let queue = DispatchQueue(label: "third")
            marks.mark(queue)
            marks.unmark(queue)
        }
        #expect(Contents(of: marks)["queues"] == 2)
        for queue in [first, second] { marks.unmark(queue) }
        #expect(Contents(of: marks)["queues"] == 0)
        first.sync { #expect(!marks.isCurrent) }
    }

    /// A UDP socket that is used again has a new core each time.
    @Test func coresThatHaveClosedAreForgotten() {
        var facts = DatagramFacts(core: AsyncUDPSocket())
        for number in 0..<2_000 {
            let old = facts.core
            // The end is delivered before or after the socket is used again, or not at all.
            if number % 3 == 0 { _ = facts.noteEnd(of: old) }
            facts.retire(with: AsyncUDPSocket(), keepsOld: number % 3 != 2)
            if number % 3 == 1 { #expect(facts.noteEnd(of: old) === old) }
            #expect(Contents(of: facts)["retired"] == 0)
        }
    }

    @Test func sessionsOfFewPeersAreKept() {
        let sessions = PeerSessions()
        var stores: [() -> TLSInMemorySessionStore?] = []
        for number in 0..<Self.count {
            weak let store = sessions.store(for: Data("peer \(number)".utf8))
            stores.append { store }
            // One of them is used all the time.
            if number % 20 == 0 { _ = sessions.store(for: Data("peer".utf8)) }
        }
        #expect(Contents(of: sessions)["entries"] == 64)
        #expect(stores.count { $0() != nil } == 63)
        #expect(sessions.store(for: Data("peer \(Self.count - 1)".utf8)) === stores.last?())
    }
}
