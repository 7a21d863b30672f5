internal import AsyncSockets
internal import CSimulation
internal import Foundation
internal import SocketCore
internal import SocketTestSupport

/// A socket with an inline delegate. A thread of the program and the callbacks begin its operations.
final class DelegateSide: Side, AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`. The state changes between two points of the schedule.
    private struct Request {
        let tag: Int
        /// The length of the result, if it is known beforehand.
        let length: Int?
        let limit: Int
        /// When the read times out.
        var expiry: UInt64?
    }

    let name: String
    private let index: Int
    private let scenario: Scenario
    private let plan: Plan
    private var socket: AsyncSocket?
    private weak var observed: AsyncSocket?
    private let outgoing: Pattern
    private let incoming: Pattern
    private var phase = 0
    /// How many bytes were queued for writing, were received, and will be received by the queued reads.
    private var written = 0
    private var received = 0
    private var planned = 0
    private var requests: [Request] = []
    private var writes: [Int] = []
    private var lastTag = 0
    /// Whether a thread is between the choice of an operation and its call.
    private var isBusy = false
    private var hasBegunEnd = false
    private var isSecure = false
    private var readStreamHasClosed = false
    private var end: (error: AsyncSocketError?, Void)?
    private var hasFailed = false

    init(_ index: Int, _ descriptor: Int32, _ scenario: Scenario) {
        (self.index, self.scenario, plan) = (index, scenario, scenario.plan)
        name = "delegate \(index)"
        outgoing = plan.pattern(of: index, scenario.choices.seed)
        incoming = plan.pattern(of: 1 - index, scenario.choices.seed)
        do {
            let socket = try makeSocket(descriptor)
            socket.autoDisconnectOnClosedReadStream = false
            socket.keepsConnectionOnReadTimeout = true
            (self.socket, observed) = (socket, socket)
        } catch {
            scenario.scheduler.fail("\(name): \(error)")
        }
    }

    private func makeSocket(_ descriptor: Int32) throws -> AsyncSocket {
        switch plan.styles[index] {
        case .inlineDelegate, .tasks: try AsyncSocket(adopting: descriptor, inlineDelegate: self)
        case .delegateQueue:
            try AsyncSocket(adopting: descriptor, delegate: self, delegateQueue: DispatchQueue(label: name))
        case .socketQueue:
            try AsyncSocket(adopting: descriptor, inlineDelegate: self, socketQueue: DispatchQueue(label: name))
        }
    }

    var loop: SocketEventLoop? { socket?.executor }
    var isReleased: Bool { observed == nil }

    private func pick(_ count: Int) -> Int { scenario.choices.pick(count, Choices.Stream.sides + UInt16(2 * index)) }
    private func complain(_ text: String) { scenario.scheduler.fail("\(name): \(text)") }

    // MARK: - The program

    func run() {
        while end == nil, !hasFailed {
            let hasActed = step()
            CSim_set_simulated(false)
            scenario.scheduler.point()
            if pick(8) == 1 { pause() }
            if !hasActed { scenario.scheduler.wait { [self] in end != nil || hasFailed || socket == nil || hasWork } }
            CSim_set_simulated(true)
            if socket == nil { return }
        }
    }

    private func pause() {
        var isOver = false
        scenario.kernel.after(UInt64(pick(60)) * 500_000) { isOver = true }
        scenario.scheduler.wait { isOver }
    }

    private var phaseEnds: (written: Int, received: Int) {
        plan.phases[...phase].reduce((0, 0)) { ($0.0 + $1.counts[index], $0.1 + $1.counts[1 - index]) }
    }

    private var canRead: Bool { planned < phaseEnds.received && requests.last?.length != .some(nil) }
    private var canWrite: Bool { written < phaseEnds.written }
    private var isQueued: Bool { planned == phaseEnds.received && written == phaseEnds.written }
    private var canUpgrade: Bool { isQueued && phase + 1 < plan.phases.count }
    private var canEnd: Bool {
        let isLastPhase = phase + 1 == plan.phases.count && (isSecure || plan.upgrade == .none)
        guard isQueued, isLastPhase, !hasBegunEnd else { return false }
        return index == 0 || received == incoming.bytes.count && readStreamHasClosed
    }
    private var hasWork: Bool { !isBusy && socket != nil && (canRead || canWrite || canUpgrade || canEnd) }

    /// Begins an operation, and returns whether one was possible.
    private func step() -> Bool {
        guard hasWork, let socket, end == nil else { return false }
        isBusy = true
        defer { isBusy = false }
        switch pick(8) {
        case 0...3 where canRead: read(socket)
        case 4...6 where canWrite: write(socket)
        case 7 where canWrite: socket.flush()
        default:
            if canRead {
                read(socket)
            } else if canWrite {
                write(socket)
            } else if canUpgrade {
                upgrade(socket)
            } else {
                close(socket)
            }
        }
        return true
    }

    private func read(_ socket: AsyncSocket) {
        lastTag += 1
        let rest = phaseEnds.received - planned
        let line = incoming.lineLength(from: planned, before: phaseEnds.received)
        switch (pick(5), line) {
        case (3, _), (1, nil):
            let count = size(rest)
            note(Request(tag: lastTag, length: count, limit: count))
            socket.readData(toLength: count, tag: lastTag)
        case (1, let line?):
            note(Request(tag: lastTag, length: line, limit: line))
            socket.readData(to: Data([Pattern.lineFeed]), tag: lastTag)
        case (2, _):
            let count = size(rest)
            requests.append(Request(tag: lastTag, length: nil, limit: count))
            socket.readData(maxLength: count, tag: lastTag)
        case (4, _): readWithTimeout(socket, size(rest))
        default:
            note(Request(tag: lastTag, length: rest, limit: rest))
            socket.readData(toLength: rest, tag: lastTag)
        }
    }

    /// The clock of a read starts when the read is first in the queue, after an upgrade.
    private func readWithTimeout(_ socket: AsyncSocket, _ count: Int) {
        guard requests.isEmpty, phase == 0 || isSecure else {
            note(Request(tag: lastTag, length: count, limit: count))
            return socket.readData(toLength: count, tag: lastTag)
        }
        let milliseconds = [10, 1, 30, 100][pick(4)]
        let expiry = scenario.kernel.now + UInt64(milliseconds) * 1_000_000
        requests.append(Request(tag: lastTag, length: nil, limit: count, expiry: expiry))
        socket.readData(toLength: count, withTimeout: Double(milliseconds) / 1_000, tag: lastTag)
    }

    /// Returns a number of bytes, at most `rest`.
    private func size(_ rest: Int) -> Int {
        let limit = min(rest, [20_000, 1, 30, 1_000][pick(4)])
        return limit - pick(limit)
    }

    private func note(_ request: Request) {
        requests.append(request)
        planned += request.length ?? 0
    }

    private func write(_ socket: AsyncSocket) {
        lastTag += 1
        let rest = phaseEnds.written - written
        let count = size(rest)
        let data = Data(outgoing.bytes[written..<written + count])
        written += count
        writes.append(lastTag)
        socket.write(data, tag: lastTag)
    }

    private func upgrade(_ socket: AsyncSocket) {
        phase += 1
        do {
            if index == 0 {
                try socket.beginTLS(settings: Certificates.client)
            } else {
                try socket.beginTLS(settings: Certificates.server)
            }
        } catch {
            if !plan.mayFail { complain("beginTLS: \(error)") }
            // From now on, reads could return the handshake of the peer.
            hasFailed = true
            socket.disconnect()
        }
    }

    private func close(_ socket: AsyncSocket) {
        hasBegunEnd = true
        if index == 1 { return socket.disconnectAfterWriting() }
        switch pick(2) {
        case 0: socket.disconnectAfterReadingAndWriting()
        default: socket.closeWriteStream()
        }
    }

    func disturb(_ disturbance: Plan.Disturbance) {
        guard let socket else { return }
        switch disturbance {
        case .none, .reset: break
        case .disconnect: socket.disconnect()
        case .disconnectWithReset: socket.disconnectWithReset()
        case .disconnectAfterWriting: socket.disconnectAfterWriting()
        case .halfClose: socket.closeWriteStream()
        case .release: abandon()
        }
    }

    // MARK: - Callbacks

    /// Called first in every callback.
    private func enter(_ callback: StaticString, _ tag: Int = 0) {
        scenario.trace.add(callback, index, tag)
        if end != nil { complain("\(callback) after didDisconnect") }
    }

    /// Called last in a callback: starts some more operations.
    private func leave() {
        for _ in 0..<pick(3) where !isBusy { _ = step() }
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        enter("didRead", tag)
        guard let request = requests.first, request.tag == tag else { return complain("read \(tag) completes out of order") }
        requests.removeFirst()
        if let length = request.length, length != data.count { complain("read \(tag) has \(data.count) bytes, not \(length)") }
        if data.isEmpty || data.count > request.limit { complain("read \(tag) has \(data.count) bytes of \(request.limit)") }
        take(data, tag)
        if request.length == nil { planned += data.count }
        leave()
        if index == 0, hasBegunEnd, received == incoming.bytes.count, readStreamHasClosed { socket.disconnect() }
    }

    private func take(_ data: Data, _ tag: Int) {
        if let complaint = incoming.complaint(about: data, at: received) { complain("read \(tag): \(complaint)") }
        if (received < plan.phases[0].counts[1 - index]) == isSecure, plan.upgrade != .none, !data.isEmpty {
            complain("read \(tag) is on the wrong side of the upgrade")
        }
        received += data.count
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        enter("didWrite", tag)
        if writes.first == tag { writes.removeFirst() } else { complain("write \(tag) completes out of order") }
        leave()
    }

    func socketDidSecure(_ socket: AsyncSocket) {
        enter("didSecure")
        if isSecure || plan.upgrade == .none { complain("didSecure a second time") }
        isSecure = true
        leave()
    }

    func socketDidCloseReadStream(_ socket: AsyncSocket) {
        enter("didCloseReadStream")
        if !plan.mayFail, received < incoming.bytes.count {
            complain("the stream ends after \(received) of \(incoming.bytes.count) bytes")
        }
        readStreamHasClosed = true
        if received < incoming.bytes.count || hasBegunEnd { socket.disconnectAfterWriting() }
        leave()
    }

    func socket(
        _ socket: AsyncSocket, didNotReadDataWithTag tag: Int, bytesSoFar data: Data, dueToError error: AsyncSocketError
    ) {
        enter("didNotRead", tag)
        if error.code == .readTimeout, let request = requests.first, request.tag == tag { return expire(request, data) }
        if !plan.mayFail { complain("read \(tag) fails: \(error)") }
        if requests.first?.tag == tag { requests.removeFirst() } else { complain("read \(tag) fails out of order") }
        hasFailed = true
        socket.disconnect()
    }

    private func expire(_ request: Request, _ data: Data) {
        requests.removeFirst()
        guard let expiry = request.expiry else { return complain("read \(request.tag) had no timeout") }
        let now = scenario.kernel.now
        if now < expiry || now > expiry + 1_000_000 { complain("read \(request.tag) expires at \(now), not \(expiry)") }
        if data.count >= request.limit { complain("read \(request.tag) expires with all its bytes") }
        if !data.isEmpty { take(data, request.tag) }
        planned += data.count
        leave()
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        enter("didDisconnect")
        // When both streams are closed, the connection closes.
        let isEnd = error?.code == .closedByPeer && hasBegunEnd && received == incoming.bytes.count
        if let error, !isEnd, !plan.mayFail { complain("the connection fails: \(error)") }
        end = (error, ())
        if scenario.isVictim(index), !hasFailed, let length = requests.first?.length,
            scenario.arrivedCount(index) >= received + length
        {
            complain("the connection ends (\(error as Any)) although the bytes of a read had arrived")
        }
    }

    // MARK: - The end

    func complaintAtEnd() -> String? {
        if plan.disturbance == .release, plan.disturbedSide == index { return nil }
        guard end != nil else {
            return "the connection does not end; \(received) of \(incoming.bytes.count) bytes were read, "
                + "\(requests.count) reads and \(writes.count) writes are open, in phase \(phase)"
        }
        if plan.mayFail { return nil }
        if received != incoming.bytes.count { return "\(incoming.bytes.count - received) bytes are missing" }
        return writes.isEmpty && requests.isEmpty ? nil : "\(requests.count) reads and \(writes.count) writes are open"
    }

    func abandon() {
        var released = socket.take()
        // May be the last reference.
        Kernel.shared.serving { if released != nil { released = nil } }
    }
}
