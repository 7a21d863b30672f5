import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport

@testable import AsyncSockets

/// A UDP socket, a peer, and a model of what each receives.
final class DatagramSchedule {
    enum Filter: CaseIterable { case unfiltered, inline, queue }

    enum Step: Sendable {
        case bind, connect, dissolveAssociation, receiveOnce, beginReceiving, pause, collect, disconnect, disconnectAfterSending
        /// Datagrams of these sizes.
        case sendByDelegate(Int), sendByTask(Int), sendFromPeer([Int])
        case receive(isShort: Bool)
        /// A task that receives is cancelled. Positions count from the oldest one.
        case cancelReceive(Int)
        case join(Int)
    }

    private var course: Course<Step>
    private let recorder = DatagramRecorder()
    private let socket: AsyncUDPSocket
    private let peer: DatagramParty
    private let dropsSome: Bool
    /// The steps so far.
    private(set) var log: [String] = []

    // The model.
    private var isConnected = false
    private var mayBeClosed = false
    private var nextNumber: UInt32 = 0
    private var nextTag = 0
    /// The datagrams that the peer has sent and the filter accepts.
    private var expected: [UInt32] = []
    private var sends: [(number: UInt32, task: Task<Void, any Error>)] = []
    private var delegateSends: [Int: UInt32] = [:]
    private var receives: [Task<Datagram, any Error>] = []
    private var taken: [UInt32] = []

    convenience init(seed: UInt64) throws {
        var dice = SeededGenerator(seed: seed)
        let style = Int.random(in: 0..<3, using: &dice)
        let filter = Filter.allCases.randomElement(using: &dice) ?? .unfiltered
        try self.init(Course(random: dice, count: 5...40), style: style, filter)
    }

    /// - Parameter style: How the delegate is called, 0 to 2.
    convenience init(_ plan: Plan, style: Int, _ filter: Filter) throws {
        try self.init(Course(fixed: plan.steps), style: style, filter)
    }

    private init(_ course: Course<Step>, style: Int, _ filter: Filter) throws {
        self.course = course
        peer = try DatagramParty()
        switch style {
        case 0: socket = AsyncUDPSocket(inlineDelegate: recorder)
        case 1: socket = AsyncUDPSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
        default: socket = AsyncUDPSocket(inlineDelegate: recorder, socketQueue: DispatchQueue(label: "socket"))
        }
        dropsSome = filter != .unfiltered
        guard dropsSome else { return }
        let queue = filter == .queue ? DispatchQueue(label: "filter") : nil
        socket.setReceiveFilter(on: queue) { Self.isDropped($0.data.number) ? .drop : .accept(context: $0.data.number) }
    }

    private static func isDropped(_ number: UInt32) -> Bool { number % 5 == 0 }

    func run() async throws {
        while let step = course.next({ randomStep(&$0) }) { try await take(step) }
        try await finish()
    }

    // MARK: - Steps

    private func randomStep(_ dice: inout SeededGenerator) -> Step? {
        func size() -> Int { Int.random(in: 4...1_500, using: &dice) }
        switch Int.random(in: 0..<24, using: &dice) {
        case 0: return .bind
        case 1...4: return .sendByDelegate(size())
        case 5...7: return .sendByTask(size())
        case 8...12: return .sendFromPeer((0..<Int.random(in: 1...4, using: &dice)).map { _ in size() })
        case 13: return .receiveOnce
        case 14: return .beginReceiving
        case 15: return .pause
        case 16...17: return .receive(isShort: Bool.random(using: &dice))
        case 18: return .cancelReceive(Int.random(in: 0..<4, using: &dice))
        case 19: return .connect
        case 20: return .dissolveAssociation
        case 21: return .join(Int.random(in: 1...3, using: &dice))
        case 22: return .collect
        default:
            guard Int.random(in: 0..<4, using: &dice) == 0 else { return nil }
            return Bool.random(using: &dice) ? .disconnect : .disconnectAfterSending
        }
    }

    private func take(_ step: Step) async throws {
        switch step {
        case .bind: try allow("bind", [.badConfiguration]) { try socket.bind(toPort: 0) }
        case .sendByDelegate(let size): try sendByDelegate(size)
        case .sendByTask(let size): try sendByTask(size)
        case .sendFromPeer(let sizes): try sendFromPeer(sizes)
        case .receiveOnce: try allow("receiveOnce", [.badConfiguration]) { try socket.receiveOnce() }
        case .beginReceiving: try allow("beginReceiving", [.badConfiguration]) { try socket.beginReceiving() }
        case .pause: socket.pauseReceiving()
        case .receive(let isShort): receive(isShort: isShort)
        case .cancelReceive(let position): if !receives.isEmpty { receives[position % receives.count].cancel() }
        case .connect: try await connect()
        case .dissolveAssociation: try await dissolveAssociation()
        case .join(let number):
            try allow("join", [.badConfiguration, .system]) {
                try socket.joinMulticastGroup("239.255.7.\(number)", onInterface: "lo")
            }
        case .collect: try await collect()
        case .disconnect, .disconnectAfterSending:
            guard socket.connection != nil else { return }
            mayBeClosed = true
            if case .disconnect = step { socket.disconnect() } else { socket.disconnectAfterSending() }
            log.append("\(step)")
        }
    }

    /// Runs a call that may throw one of the given errors, or `.closed` if the socket is closed.
    private func allow(_ name: String, _ codes: [AsyncSocketError.Code], _ body: () throws -> Void) throws {
        log.append(name)
        do {
            try body()
        } catch let error as AsyncSocketError where codes.contains(error.code) || (mayBeClosed && error.code == .closed) {
            log.append("  \(error.code)")
        }
    }

    private func takeNumber(_ size: Int) -> (UInt32, Data) {
        defer { nextNumber += 1 }
        return (nextNumber, Data(number: nextNumber, size: size))
    }

    private func sendByDelegate(_ size: Int) throws {
        let (number, data) = takeNumber(size)
        nextTag += 1
        delegateSends[nextTag] = number
        log.append("delegate sends \(number)")
        if isConnected {
            socket.send(data, withTimeout: .patient, tag: nextTag)
        } else {
            socket.send(data, toAddress: try peer.address, withTimeout: .patient, tag: nextTag)
        }
    }

    private func sendByTask(_ size: Int) throws {
        let (number, data) = takeNumber(size)
        let (socket, target) = (socket, isConnected ? nil : try peer.address)
        log.append("a task sends \(number)")
        let task = Task.immediate {
            if let target { try await socket.send(data, to: target) } else { try await socket.send(data) }
        }
        sends.append((number, task))
    }

    private func sendFromPeer(_ sizes: [Int]) throws {
        guard socket.isOpen, !mayBeClosed, socket.isIPv4 else { return }
        let target = try SocketEndpoint.loopback(port: socket.localPort)
        for size in sizes {
            let (number, data) = takeNumber(size)
            log.append("the peer sends \(number)")
            guard peer.send([Array(data)], to: target).isComplete(1) else { throw Unexpected(description: "not sent") }
            if !dropsSome || !Self.isDropped(number) { expected.append(number) }
        }
    }

    private func receive(isShort: Bool) {
        let socket = socket
        log.append("a task receives")
        receives.append(Task.immediate { try await socket.receive(timeout: isShort ? .milliseconds(1) : nil) })
    }

    private func connect() async throws {
        log.append("connect")
        do {
            try await socket.connect(to: peer.address)
            isConnected = true
        } catch let error as AsyncSocketError where error.code == .badConfiguration || (mayBeClosed && error.code == .closed) {
            log.append("  \(error.code)")
        }
    }

    private func dissolveAssociation() async throws {
        guard isConnected else { return }
        log.append("dissolveAssociation")
        socket.dissolveAssociation()
        isConnected = false
        // Meanwhile the kernel releases an ephemeral port, and the peer's datagrams are rejected.
        try await eventually("its association is dissolved") { !socket.isConnected }
    }

    /// Collects the results of receives that have completed or can be cancelled.
    private func collect() async throws {
        for task in receives {
            task.cancel()
            do { taken.append(try await task.value.data.number) } catch is CancellationError {} catch let error
                as AsyncSocketError
            {
                guard [.readTimeout, .badConfiguration].contains(error.code) || (mayBeClosed && error.code == .closed) else {
                    throw error
                }
            }
        }
        receives = []
    }

    // MARK: - The end

    private var delivered: [UInt32] {
        recorder.history.compactMap { if case .received(let datagram) = $0 { datagram.data.number } else { nil } }
    }

    private func finish() async throws {
        try await collect()
        guard socket.connection != nil else { return }
        if !mayBeClosed { try await drain() }
        var sentNumbers: [UInt32] = []
        for (number, task) in sends {
            do {
                try await task.value
                sentNumbers.append(number)
            } catch let error as AsyncSocketError where mayBeClosed && error.code == .closed {}
        }
        socket.disconnectAfterSending()
        _ = try await recorder.closed()
        sentNumbers += try answers()
        var arrived: [UInt32] = []
        log.append("to arrive: \(sentNumbers.sorted())")
        try await eventually("the peer has all") {
            arrived += try peer.takeArrived().map { Data($0.bytes).number }
            return arrived.count >= sentNumbers.count
        }
        try check(isEqual: arrived, sentNumbers.sorted(), "the peer has")
        let all = delivered + taken
        try check(isEqual: delivered, delivered.sorted(), "the delegate's order is")
        try check(isEqual: taken, taken.sorted(), "the tasks' order is")
        try check(isEqual: Set(all).count, all.count, "the distinct ones are")
        if mayBeClosed {
            try check(isEqual: Set(all).subtracting(expected), [], "too many are")
        } else {
            try check(isEqual: all.sorted(), expected, "arrived are")
        }
    }

    /// Receives the datagrams that neither the delegate nor a task has received.
    private func drain() async throws {
        guard socket.isOpen else { return }
        socket.pauseReceiving()
        try await eventually("all have arrived") {
            if delivered.count + taken.count >= expected.count { return true }
            do {
                taken.append(try await socket.receive(timeout: .milliseconds(5)).data.number)
            } catch let error as AsyncSocketError where error.code == .readTimeout {}
            return false
        }
    }

    /// Returns the numbers of the delegate's sends that were sent. Each completes once, in order.
    private func answers() throws -> [UInt32] {
        var (sent, tags): ([UInt32], [Int]) = ([], [])
        for (index, told) in recorder.history.enumerated() {
            switch told {
            case .sent(let tag):
                tags.append(tag)
                sent.append(delegateSends[tag] ?? .max)
            case .notSent(let tag, let error):
                guard mayBeClosed, error.code == .closed else { throw error }
                tags.append(tag)
            case .closed(let error):
                try check(isEqual: error, nil, "the end has")
                try check(isEqual: index, recorder.history.count - 1, "the end is number")
            case .connected, .notConnected, .received, .highWater, .lowWater, .failedToReach, .asked, .secured: break
            }
        }
        // A send after the end does not complete, because the delegate has received its last callback. A
        // rejected send does not wait for earlier ones.
        try check(isEqual: sent, sent.sorted(), "the order is")
        try check(isEqual: Set(tags).count, tags.count, "the distinct answers are")
        if !mayBeClosed { try check(isEqual: tags, delegateSends.keys.sorted(), "the answers are") }
        return sent
    }

    private func check<Value: Equatable>(isEqual value: Value, _ other: Value, _ what: String) throws {
        guard value == other else { throw Unexpected(description: "\(what) \(value), not \(other)") }
    }
}

extension Data {
    fileprivate init(number: UInt32, size: Int) {
        self = Data(count: size)
        replaceSubrange(0..<4, with: Swift.withUnsafeBytes(of: number.bigEndian) { Data($0) })
    }

    fileprivate var number: UInt32 { prefix(4).reduce(0) { $0 << 8 | UInt32($1) } }
}
