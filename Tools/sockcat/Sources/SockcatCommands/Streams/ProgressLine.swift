internal import AsyncSockets
internal import Dispatch
internal import Glibc
internal import Synchronization

/// A line on standard error that shows how many bytes a long transfer has moved, how fast, and how long the
/// rest will take.
final class ProgressLine: Sendable {
    enum Display: Sendable {
        /// Overwrites one line on a terminal.
        case terminal
        /// Prints a line per second, for logs.
        case lines
    }

    /// Short transfers end before the line appears.
    private static var delay: DispatchTimeInterval { .seconds(2) }

    private let sent = Atomic(0)
    private let received = Atomic(0)
    private let meters: Mutex<(sent: RateMeter, received: RateMeter)>
    private let display: Display?
    private let total: Int?
    private let hasPrinted = Atomic(false)
    private let isFinished = Atomic(false)
    private let queue = DispatchQueue(label: "sockcat.progress")

    /// - Parameters:
    ///   - display: How to show progress. `nil` shows nothing.
    ///   - total: The number of bytes to send, if it is known.
    init(_ display: Display?, total: Int?) {
        (self.display, self.total) = (display, total)
        meters = Mutex((RateMeter(total: total), RateMeter(total: nil)))
        if display != nil { schedule(after: Self.delay) }
    }

    private func schedule(after interval: DispatchTimeInterval) {
        queue.asyncAfter(deadline: .now() + interval) { [weak self] in
            guard let self, !isFinished.load(ordering: .relaxed) else { return }
            show()
            schedule(after: .seconds(1))
        }
    }

    func noteSent(_ count: Int) { sent.add(count, ordering: .relaxed) }
    func noteReceived(_ count: Int) { received.add(count, ordering: .relaxed) }

    /// Removes the line from a terminal, or prints the final numbers.
    func finish() {
        // On the queue, so that the line is not printed again afterwards.
        queue.sync { isFinished.store(true, ordering: .relaxed) }
        switch display {
        case .terminal: if hasPrinted.load(ordering: .relaxed) { StandardError.write("\r\u{1B}[K") }
        case .lines: StandardError.write("\(text())\n")
        case nil: break
        }
    }

    private func show() {
        hasPrinted.store(true, ordering: .relaxed)
        StandardError.write(display == .terminal ? "\r\(text())\u{1B}[K" : "\(text())\n")
    }

    /// For example "sent 1.5 MiB of 6.0 MiB (25 %), 512.0 KiB/s, 9 s left; received 20 bytes, 0 bytes/s".
    private func text() -> String {
        let (sent, received) = (sent.load(ordering: .relaxed), received.load(ordering: .relaxed))
        return meters.withLock { meters in
            var parts: [String] = []
            if sent > 0 || total != nil { parts.append("sent \(meters.sent.text(sent))") }
            if received > 0 || parts.isEmpty { parts.append("received \(meters.received.text(received))") }
            return parts.joined(separator: "; ")
        }
    }
}

/// Measures the rate of a transfer over the last few seconds.
struct RateMeter {
    private static var window: Duration { .seconds(5) }

    private let total: Int?
    private var samples: [(time: ContinuousClock.Instant, count: Int)]

    init(total: Int?, start: ContinuousClock.Instant = .now) {
        (self.total, samples) = (total, [(start, 0)])
    }

    /// Returns the progress at a time, with the time left if the total is known.
    mutating func text(_ count: Int, at now: ContinuousClock.Instant = .now) -> String {
        while samples.count > 1, samples[1].time <= now - Self.window { samples.removeFirst() }
        let past = samples[0]
        samples.append((now, count))
        let time = past.time.duration(to: now) / .seconds(1)
        let rate = time > 0 ? Double(count - past.count) / time : 0
        let progress = TransferProgress(bytesDone: count, total: total, bytesPerSecond: rate)
        guard let total, rate > 0, count < total else { return "\(progress)" }
        return "\(progress), \(Self.text(ofSeconds: Double(total - count) / rate)) left"
    }

    static func text(ofSeconds seconds: Double) -> String {
        let whole = Int(min(seconds.rounded(.up), 1e9))
        if whole < 60 { return "\(whole) s" }
        if whole < 3600 { return "\(whole / 60) min \(whole % 60) s" }
        return "\(whole / 3600) h \(whole / 60 % 60) min"
    }
}
