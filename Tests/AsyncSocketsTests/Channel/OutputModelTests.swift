import AsyncSocketsTesting
import Foundation
import Glibc
import SocketBuffers
import SocketTestSupport
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// The sending half of a UDP socket over a scripted channel: the kernel accepts some datagrams, fails some
/// and runs out of room, and host lookups and filters are slow. Each datagram completes once, in order, with
/// its own result.
@Suite struct OutputModelTests {
    @Test(arguments: UInt64(0)..<60) func eachDatagramCompletesOnceInOrder(seed: UInt64) throws {
        let model = try OutputModel(seed: seed)
        try model.run()
        #expect(model.answers == model.expected, "seed \(seed)")
        #expect(model.answers.map(\.tag) == Array(0..<model.answers.count), "seed \(seed)")
        #expect(model.output.isEmpty && model.answers.count == model.enqueuedCount)
    }

    /// A turn sends a limited number of datagrams, and reports that more are waiting.
    @Test func sendingContinuesInTheNextTurn() throws {
        let model = try OutputModel(seed: 0, isObstructed: false)
        for _ in 0..<1_300 { model.enqueue() }
        var pumps = 0
        while model.pump() { pumps += 1 }
        #expect(pumps == 2 && model.answers.count == 1_300 && model.answers == model.expected)
    }
}

/// The result of a datagram.
private struct SendAnswer: Equatable {
    let tag: Int
    let errno: Int32?
}

private final class OutputModel {
    private var dice: SeededGenerator
    private let outbox = EventOutbox<DatagramEvent>()
    private let channel: ScriptedChannel
    let output: DatagramOutput
    private(set) var enqueuedCount = 0
    private(set) var answers: [SendAnswer] = []
    private let target: InternetAddress
    /// Lookups that have not completed.
    private var queries: [HostQuery] = []
    /// The verdicts that the filter's queue has posted.
    private let posted = Locked<[DatagramMessage]>([])
    private let filterQueue = DispatchQueue(label: "test.filter")

    init(seed: UInt64, isObstructed: Bool = true) throws {
        dice = SeededGenerator(seed: seed)
        channel = try ScriptedChannel(seed: seed, isObstructed: isObstructed)
        target = InternetAddress(try .loopback("192.0.2.1", port: 9))
        output = DatagramOutput(outbox, DatagramCounts()) { [posted] message in posted.withLock { $0.append(message) } }
        var configuration = DatagramConfiguration()
        // The model resolves the hosts itself.
        configuration.resolver = Resolver(concurrency: 1) { .failure(ResolveError($0, code: EAI_AGAIN)) }
        output.configuration = DatagramConfiguration.Shared(configuration)
        guard isObstructed, Bool.random(using: &dice) else { return }
        let queue = Bool.random(using: &dice) ? filterQueue : nil
        output.setFilter(SendFilter(on: queue) { !Self.isDropped($0.tag) })
    }

    /// A datagram that the filter drops is reported as sent, and does not reach the channel.
    private static func isDropped(_ tag: Int) -> Bool { tag % 7 == 3 }

    /// The results that the channel's script implies.
    var expected: [SendAnswer] {
        (0..<enqueuedCount).map { SendAnswer(tag: $0, errno: channel.results[$0] ?? nil) }
    }

    func run() throws {
        for _ in 0..<Int.random(in: 50...300, using: &dice) {
            switch Int.random(in: 0..<8, using: &dice) {
            case 0...3: enqueue()
            case 4: findHost()
            case 5: judge()
            case 6: channel.output = .ready
            default: _ = pump()
            }
        }
        for _ in 0..<10_000 where !output.isEmpty {
            findHost()
            judge()
            channel.output = .ready
            _ = pump()
        }
        #expect(channel.isInOrder)
    }

    func enqueue() {
        var place = DatagramTarget.address(target)
        if channel.isObstructed, Int.random(in: 0..<6, using: &dice) == 0 {
            let query = HostQuery(host: "host\(Int.random(in: 0..<20, using: &dice)).example", port: 9)
            queries.append(query)
            place = .host(query)
        }
        let data = ScriptedChannel.data(of: enqueuedCount, size: Int.random(in: 4...200, using: &dice))
        output.enqueue(DatagramPacket(data, to: place, timeout: -1, completion: .delegate(tag: enqueuedCount)), .none)
        enqueuedCount += 1
    }

    private func findHost() {
        guard let index = queries.indices.randomElement(using: &dice) else { return }
        output.lookups.note(.success([target.socketAddress]), to: queries.remove(at: index))
    }

    /// The verdicts of the filter arrive.
    private func judge() {
        filterQueue.sync {}
        let messages = posted.withLock { posted in
            defer { posted = [] }
            return posted
        }
        for case .judgedSend(let number, let isAccepted) in messages { output.noteVerdict(isAccepted, on: number) }
    }

    func pump() -> Bool {
        let hasMore = output.pump([channel], .none)
        while let event = outbox.waiting.popFirst() {
            switch event {
            case .didSend(let tag): answers.append(SendAnswer(tag: tag, errno: nil))
            case .didNotSend(let tag, let error): answers.append(SendAnswer(tag: tag, errno: error.errno))
            default: break
            }
        }
        return hasMore
    }
}

/// A kernel that accepts some datagrams and fails others.
private final class ScriptedChannel: DatagramChannel {
    private var dice: SeededGenerator
    let isObstructed: Bool
    /// The error of each handled datagram by its tag; nil if it was accepted.
    private(set) var results: [Int: Int32?] = [:]
    private var lastTag = -1
    /// Whether each datagram was handled once, in order, with the right bytes.
    private(set) var isInOrder = true

    init(seed: UInt64, isObstructed: Bool) throws {
        dice = SeededGenerator(seed: seed ^ 0xFF)
        self.isObstructed = isObstructed
        super.init(try DatagramDescriptor(opening: .ipv4), maximumSize: 1, coalesces: false)
    }

    static func data(of tag: Int, size: Int) -> Data {
        withUnsafeBytes(of: UInt32(tag)) { Data($0) } + Data(repeating: UInt8(truncatingIfNeeded: tag), count: size - 4)
    }

    override func send(_ datagrams: UnsafeBufferPointer<OutgoingDatagram>) -> DatagramSendReport {
        var count = datagrams.count
        if isObstructed, Bool.random(using: &dice) { count = Int.random(in: 0...count, using: &dice) }
        var failures: [(position: Int, error: SystemError)] = []
        for position in 0..<count {
            let fails = isObstructed && Int.random(in: 0..<8, using: &dice) == 0
            let errno = fails ? [ECONNREFUSED, EACCES, EMSGSIZE, EIO].randomElement(using: &dice) : nil
            if let errno { failures.append((position, SystemError("sendmmsg", errno: errno))) }
            note(datagrams[position], errno)
        }
        guard count < datagrams.count else { return DatagramSendReport(handledCount: count, failures: failures) }
        let isExhausted = Bool.random(using: &dice)
        output = isExhausted ? .exhausted(until: nil) : .waiting
        return DatagramSendReport(handledCount: count, failures: failures, rest: isExhausted ? .exhausted : .wouldBlock)
    }

    private func note(_ datagram: OutgoingDatagram, _ errno: Int32?) {
        let tag = Int(datagram.bytes.loadUnaligned(as: UInt32.self))
        isInOrder = isInOrder && tag > lastTag && Self.data(of: tag, size: datagram.bytes.count).elementsEqual(datagram.bytes)
        lastTag = tag
        results[tag] = .some(errno)
    }
}
