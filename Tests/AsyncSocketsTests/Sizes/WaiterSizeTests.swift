import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// The memory of queues after their operations, events and messages were completed.
@Suite(.timeLimit(.patient)) struct WaiterSizeTests {
    private static let count = 10_000
    private let tally = Tally()

    /// A waiter that counts while it exists.
    private final class Waiter<Value: Sendable>: OperationWaiter, Sendable {
        let deadline: Deadline?
        let isAbandoned: Bool
        private let token: any AnyObject & Sendable

        init(_ tally: Tally, isLate: Bool = false, isAbandoned: Bool = false) {
            deadline = isLate ? .now : nil
            self.isAbandoned = isAbandoned
            token = tally.token()
        }

        var lateError: any Error { withExtendedLifetime(token) { AsyncSocketError.closing(.close) } }
        func complete(_ result: Result<Value, any Error>) {}
    }

    private var error: AsyncSocketError { .closing(.close) }

    // MARK: - Waiters of connections

    private enum End: CaseIterable {
        case served, removed, late, refused
    }

    @Test func waitersForAConnectionAreForgotten() {
        var waiters = LifecycleWaiters()
        for number in 0..<Self.count {
            let end = End.allCases[number % 4]
            let waiter = Waiter<Void>(tally, isLate: end == .late)
            if number % 8 < 4 { waiters.add(connected: waiter) } else { waiters.add(ended: waiter) }
            switch end {
            case .served where number % 8 < 4:
                let isAnswered = waiters.answerConnected()
                #expect(isAnswered)
            case .served, .refused: waiters.answerEnd(error)
            case .removed: waiters.remove(waiter)?(error)
            case .late: if let (waiter, error) = waiters.late(at: .now) { waiters.remove(waiter)?(error) }
            }
            #expect(waiters.isEmpty && waiters.deadline == nil)
        }
        #expect(tally.alive == 0 && Contents(of: waiters) == Contents(of: LifecycleWaiters()))
        // Abandoned waiters are removed when a waiter is added.
        for _ in 0..<Self.count { waiters.add(ended: Waiter<Void>(tally, isAbandoned: true)) }
        #expect(waiters.count == 1 && tally.alive == 1)
    }

    @Test func waitersForAnUpgradeAreForgotten() {
        var waiters = UpgradeWaiters()
        for number in 0..<Self.count {
            let end = End.allCases[number % 4]
            let waiter = Waiter<HandshakeNews>(tally, isLate: end == .late)
            waiters.add(waiter, decidesTrust: number % 8 < 4)
            switch end {
            case .served:
                let isAnswered = waiters.answer(.secured(nil))
                #expect(isAnswered)
            case .refused: waiters.refuseAll(error)
            case .removed: waiters.remove(waiter)?(error)
            case .late: if let (waiter, error) = waiters.late(at: .now) { waiters.remove(waiter)?(error) }
            }
            #expect(waiters.isEmpty && waiters.deadline(with: nil) == nil)
        }
        #expect(tally.alive == 0 && Contents(of: waiters) == Contents(of: UpgradeWaiters()))
    }

    // MARK: - Queues of operations

    @Test func datagramsThatWereSentAreForgotten() {
        let queue = DatagramSendQueue()
        for number in 0..<Self.count {
            let waiters = (0..<3).map { _ in Waiter<Void>(tally) }
            for waiter in waiters {
                queue.append(
                    DatagramPacket(Data(count: number % 100), to: .peer, timeout: -1, completion: .waiter(waiter)))
            }
            #expect(queue.cancel(waiters[1]) != nil && queue.cancel(waiters[1]) == nil)
            if number % 2 == 0 {
                while queue.removeFront() != nil {}
            } else {
                queue.appendStartTLS()
                while queue.drop() != nil {}
            }
            #expect(queue.isEmpty && queue.waitingByteCount == 0)
        }
        #expect(tally.alive == 0)
    }

    @Test func readsAndWritesThatEndedAreForgotten() {
        let (reads, writes) = (ReadHalf(), WriteHalf())
        for number in 0..<Self.count {
            let (read, write) = (Waiter<Data>(tally), Waiter<Void>(tally))
            reads.packets.append(ReadPacket.make(.anyBytes, maxLength: 10, timeout: -1, completion: .waiter(read)))
            writes.append(WritePacket(data: Data(count: number % 50 + 1), timeout: -1, completion: .waiter(write)))
            switch number % 3 {
            case 0:
                reads.packets.removeFront()
                writes.handOn(number % 50 + 1)
                while writes.removeHandedOn() != nil {}
            case 1:
                for _ in 0..<2 {
                    _ = reads.cancel(read)
                    _ = writes.cancel(write)
                }
            default:
                while reads.packets.drop() != nil {}
                while writes.drop() != nil {}
            }
            #expect(reads.packets.isEmpty && writes.isEmpty && writes.waitingByteCount == 0)
        }
        #expect(tally.alive == 0)
    }

    // MARK: - Exchanges

    @Test func exchangesThatEndedAreForgotten() throws {
        var exchanges = Exchanges()
        let peers = try (0..<250).map { InternetAddress(try .loopback("10.0.0.\($0 + 1)", port: 9)) }
        let arrival = DatagramArrival(ArrivalFacts(), fullSize: 0, isTruncated: false)
        for number in 0..<Self.count {
            let (peer, token) = (peers[number % 250], tally.token())
            let exchange = Exchange(with: peer) { _ in withExtendedLifetime(token) { true } }
            let waiter = DatagramWaiter(.exchange, OperationLimit(number % 6 == 3 ? .zero : .patient))
            exchanges.begin(exchange)
            let datagram = Datagram(Data([1]), from: peer, arrival)
            let isEarly = number % 6 == 0 && exchanges.take(datagram)
            let isAwaited = exchanges.await(exchange, waiter)
            #expect(isAwaited && isEarly == (number % 6 == 0))
            switch number % 6 {
            case 1:
                let isTaken = exchanges.take(datagram)
                #expect(isTaken)
            case 2:
                let isCancelled = [exchanges.cancel(waiter, CancellationError()), exchanges.cancel(waiter, CancellationError())]
                #expect(isCancelled == [true, false])
            case 3: exchanges.expire(at: .now, nil)
            case 4: exchanges.refuse(.closing(.close))
            default: break
            }
            exchanges.end(exchange)
            let isKept = exchanges.await(exchange, waiter)
            #expect(!exchanges.isPending && !isKept)
        }
        #expect(Contents(of: exchanges).without("deadline") == Contents(of: Exchanges()) && tally.alive == 0)
    }

    // MARK: - Lookups

    @Test func lookupsThatEndedAreForgotten() {
        let resolver = Resolver(concurrency: 1) { _ in .success([]) }
        var lookups = HostLookups()
        for number in 0..<Self.count {
            let query = HostQuery(host: "host\(number).test", port: 1)
            for _ in 0..<number % 3 + 1 { lookups.begin(query, asking: resolver) { _ in } }
            if number % 2 == 0 { lookups.note(.success([]), to: query) }
            for _ in 0..<number % 3 + 1 { lookups.end(query) }
            // A late result, and an operation without a host.
            lookups.note(.success([]), to: query)
            lookups.end(query)
            lookups.end(nil)
        }
        #expect(Contents(of: lookups) == Contents(of: HostLookups()))
    }

    // MARK: - Events

    private struct Note: SocketEvent {
        let token: any AnyObject & Sendable

        var isEnd: Bool { false }
        var isProgress: Bool { false }
        mutating func absorb(_ next: Note) -> Bool { false }
    }

    /// A block takes events, returns some of them, and delivers them later.
    @Test func eventsThatWereDeliveredAreForgotten() {
        let backlog = EventBacklog<Note>()
        let (before, sequels) = (Contents(of: backlog), Locked(0))
        for number in 0..<Self.count {
            var ring = Ring<Note>()
            for _ in 0..<3 { ring.append(Note(token: tally.token())) }
            let ticket = backlog.take(&ring, isOnLoop: number % 2 == 0) ?? 0
            if number % 2 == 0 { #expect(backlog.takeTicket() == ticket) }
            let token = tally.token()
            #expect(!backlog.isIdle { withExtendedLifetime(token) { sequels.withLock { $0 += 1 } } })
            let taken = backlog.begin(upTo: number % 3 == 0 ? ticket : ticket - 1) ?? []
            if number % 5 == 0 { backlog.putBack(taken[1...]) }
            #expect(backlog.next()?.isEmpty != true)
            while backlog.next() != nil {}
            while backlog.begin(upTo: ticket) != nil { while backlog.next() != nil {} }
            backlog.finish()
        }
        #expect(sequels.withLock { $0 } == Self.count)
        #expect(Contents(of: backlog) == before && tally.alive == 0)
        #expect(backlog.isIdle {})
    }

    // MARK: - Messages

    private final class Owner: TurnOwner, Sendable {
        let turn: SocketTurn<any AnyObject & Sendable>

        init(queue: DispatchQueue? = nil) { turn = SocketTurn(queue: queue) }

        func receive(_ message: any AnyObject & Sendable) {}
        func finishTurn(on executor: TurnExecutor) -> Bool { false }
        var isCallingUser: Bool { false }
        func leaveRestToLoop() { drainTurn(on: .loop) }
        func askForTurn() {}
        func drainTurn(on executor: TurnExecutor) { turn.drain(self, on: executor) }
    }

    /// From several threads at once, and on a queue.
    @Test(arguments: [false, true]) func messagesThatWereHandledAreReleased(isOnQueue: Bool) async throws {
        let owner = Owner(queue: isOnQueue ? DispatchQueue(label: "turn") : nil)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<4 {
                group.addTask { [tally] in for _ in 0..<Self.count / 4 { owner.turn.post(tally.token(), to: owner) } }
            }
        }
        try await eventually("all are released") { tally.alive == 0 }
    }

    /// A turn with pending messages releases them when it is destroyed.
    @Test func messagesOfATurnThatEndsAreReleased() {
        do {
            let owner = Owner()
            let isInside = owner.turn.enterIfFree()
            #expect(isInside)
            for _ in 0..<Self.count { owner.turn.post(tally.token(), to: owner) }
            #expect(tally.alive == Self.count)
        }
        #expect(tally.alive == 0)
    }

    // MARK: - Buffers

    @Test func aReadBufferKeepsFewAnchors() {
        let buffer = ReadBuffer(capacity: 4096)
        for number in 0..<Self.count {
            let offset = number * 7 % 4_000
            [UInt8](repeating: UInt8(number & 0xFF), count: 8).withUnsafeBytes { buffer.store($0, at: offset) }
            #expect(buffer.view(at: offset, count: 8) == Data(repeating: UInt8(number & 0xFF), count: 8))
            if number % 100 == 0 { buffer.removeAll() }
        }
        #expect(Contents(of: buffer)["contents.anchors"] <= 16 + 4)
    }
}
