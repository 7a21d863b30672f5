internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// A delegate that extends write timeouts at random.
final class DelegateWriter: RunSide, AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    private struct Write {
        let number: Int
        /// Milliseconds. Negative without a limit.
        let timeout: Int
    }

    let name = "writer"
    private let course: LimitRun
    private var socket: AsyncSocket?
    private weak var observed: AsyncSocket?
    private var writes: [Write] = []
    private var lastNumber = 0
    /// When the clock of the oldest write has started.
    private var start: UInt64 = 0
    private var hasExpired = false
    private var hasEnded = false

    init(_ descriptor: Int32, _ course: LimitRun) {
        self.course = course
        do {
            socket = try AsyncSocket(adopting: descriptor, inlineDelegate: self)
            observed = socket
        } catch {
            complain("\(error)")
        }
    }

    var isReleased: Bool { observed == nil }

    private func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func run() {
        for _ in 0..<3 + course.pick(8, 0) {
            guard let socket, !hasEnded else { return }
            let timeout = [-1, 1, 10, 100][course.pick(4, 0)]
            lastNumber += 1
            if writes.isEmpty { start = course.kernel.now }
            writes.append(Write(number: lastNumber, timeout: timeout))
            let data = Data(Message.bytes(lastNumber, [20, 1, 1_000, 6_000][course.pick(4, 0)]))
            socket.write(data, withTimeout: timeout < 0 ? -1 : Double(timeout) / 1_000, tag: lastNumber)
            CSim_set_simulated(false)
            if course.pick(2, 0) == 1 { course.pause(UInt64(course.pick(20, 0)) * 1_000_000) }
            CSim_set_simulated(true)
        }
        socket?.disconnectAfterWriting()
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        course.trace.add("didWrite", tag)
        if hasEnded { complain("didWrite after didDisconnect") }
        guard writes.first?.number == tag else { return complain("write \(tag) completes out of order") }
        writes.removeFirst()
        // The write was completed before the answer to its timeout.
        hasExpired = false
        start = course.kernel.now
        SlowReader.succeeded.insert(tag)
    }

    func socket(
        _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval {
        course.trace.add("shouldTimeoutWrite", tag)
        guard let write = writes.first, write.number == tag, write.timeout >= 0 else {
            complain("write \(tag) has no timeout")
            return 0
        }
        course.checkTime(since: start, UInt64(elapsed * 1_000_000_000), "a write")
        if course.pick(2, 0) == 1 { return 0.03 }
        hasExpired = true
        return 0
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        course.trace.add("didDisconnect", 0)
        if hasEnded { complain("didDisconnect twice") }
        hasEnded = true
        if course.plan.isDisturbed { return }
        if hasExpired != (error?.code == .writeTimeout) { complain("the connection ends with \(error as Any)") }
        if !hasExpired, !writes.isEmpty { complain("\(writes.count) writes are open at the end") }
    }

    func disconnect() { socket?.disconnect() }

    func complaintAtEnd() -> String? { hasEnded ? nil : "the connection does not end: \(writes.count) writes are open" }

    func abandon() { socket = nil }
}
