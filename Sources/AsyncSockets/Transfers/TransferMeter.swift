internal import SocketCore

/// Computes the progress of a transfer from byte counts and the times at which they were measured.
struct TransferMeter {
    /// The period over which the rate is measured.
    private static var window: Duration { .seconds(3) }

    private let total: Int?
    /// The first sample is at least one window old, or is the start of the transfer.
    private var samples: [(time: ContinuousClock.Instant, count: Int)]

    init(total: Int?, start: ContinuousClock.Instant = .now) {
        self.total = total
        samples = [(start, 0)]
    }

    mutating func progress(_ count: Int, at now: ContinuousClock.Instant = .now) -> TransferProgress {
        while samples.count > 1, samples[1].time <= now - Self.window { samples.removeFirst() }
        let past = samples[0]
        samples.append((now, count))
        let time = past.time.duration(to: now) / .seconds(1)
        return TransferProgress(
            bytesDone: count, total: total, bytesPerSecond: time > 0 ? Double(count - past.count) / time : 0)
    }

    /// Runs `operation`, and calls `report` ten times a second while it runs and once when it is done.
    /// `report` runs in the caller's isolation, because the task group's closure captures `isolation`.
    ///
    /// - Parameter count: Returns the current number of bytes.
    mutating func reporting<Value: Sendable>(
        to report: ((TransferProgress) -> Void)?, isolation: isolated (any Actor)? = #isolation,
        count: @escaping @Sendable () -> Int,
        _ operation: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        guard let report else { return try await operation() }
        return try await withThrowingTaskGroup(of: Value?.self) { group in
            _ = isolation
            defer { group.cancelAll() }
            group.addTask { try await operation() }
            while true {
                // If the task is cancelled, the operation determines the result: it may still succeed.
                if !Task.isCancelled {
                    group.addTask {
                        try? await Task.sleep(for: .milliseconds(100))
                        return nil
                    }
                }
                guard let news = try await group.next() else { throw CancellationError() }
                report(progress(count()))
                if let value = news { return value }
            }
        }
    }
}
