// Rules of the limiter:
//  1. A bucket is a single point in time: when it will be full again (GCRA, ITU-T I.371). It admits a
//     datagram unless that point would then be further in the future than the burst allows.
//  2. A datagram takes from both buckets or from neither.
//  3. A full bucket is equivalent to no bucket. Only full buckets are forgotten, so a sender gains nothing
//     by forging other sources until the limiter forgets the sender's own source.
//  4. A clock hand sweeps the tracked sources, a few for each new source, so the work per datagram is
//     bounded.
//  5. If every place is occupied, a new source uses one of a few shared buckets, chosen by a hash that a
//     sender cannot predict. A source that later gets a place starts with the state of its shared bucket.

internal import Glibc

/// Decides which datagrams or connections a `SourceRateLimit` admits.
package struct SourceRateLimiter: Sendable {
    package enum Verdict: Hashable, Sendable {
        case admitted
        /// The limit for the datagram's source is exceeded.
        case sourceRefused
        /// The limit for all sources together is exceeded.
        case allRefused
    }

    /// The total number of datagrams rejected by either limit.
    package private(set) var refusedCount: UInt64 = 0

    private let perSource: Pace?
    private let total: Pace?
    private var all = Bucket()
    private var sources: SourceTable

    package init(_ limit: SourceRateLimit) {
        perSource = limit.perSource.map { Pace($0) }
        total = limit.total.map { Pace($0) }
        sources = SourceTable(limit: limit.maximumSources)
    }

    /// The number of sources currently tracked, at most `maximumSources`.
    package var trackedCount: Int { sources.count }

    /// - Parameter now: Must not be earlier than in the previous call.
    package mutating func judge(_ sender: SocketEndpoint, at now: Deadline) -> Verdict {
        judge(perSource == nil ? nil : SourceKey(sender), at: now)
    }

    /// - Parameter now: Must not be earlier than in the previous call.
    mutating func judge(_ source: SourceKey?, at now: Deadline) -> Verdict {
        let verdict = verdict(on: source, at: now)
        switch verdict {
        case .admitted:
            if let total { all.take(total, at: now) }
            if let source, let perSource { sources.take(source, perSource, at: now) }
        case .sourceRefused, .allRefused: refusedCount += 1
        }
        return verdict
    }

    private func verdict(on source: SourceKey?, at now: Deadline) -> Verdict {
        if let source, let perSource, !sources.bucket(of: source).admits(perSource, at: now) { return .sourceRefused }
        if let total, !all.admits(total, at: now) { return .allRefused }
        return .admitted
    }
}

/// A rate, converted to nanoseconds.
private struct Pace: Sendable {
    /// The time between datagrams at the sustained rate.
    let interval: UInt64
    /// The length of a full burst.
    let tolerance: UInt64

    init(_ rate: SourceRateLimit.Rate) {
        // A century is effectively never, and keeps the sums in range.
        let longest = 3_155_760_000.0 * 1_000_000_000
        interval = UInt64(max(1, min(1_000_000_000 / rate.perSecond, longest)))
        tolerance = UInt64(min(Double(interval) * Double(rate.burst), longest))
    }
}

private struct Bucket: Sendable {
    /// When the bucket will be full again, in nanoseconds on the clock of `Deadline`.
    private(set) var fullAt: UInt64 = 0

    func isFull(at now: Deadline) -> Bool { fullAt <= now.nanoseconds }

    func admits(_ pace: Pace, at now: Deadline) -> Bool {
        max(fullAt, now.nanoseconds) + pace.interval <= now.nanoseconds + pace.tolerance
    }

    mutating func take(_ pace: Pace, at now: Deadline) {
        fullAt = max(fullAt, now.nanoseconds) + pace.interval
    }
}

private struct SourceTable: Sendable {
    private let limit: Int
    private var places: [SourceKey: Int] = [:]
    private var entries: [(source: SourceKey, bucket: Bucket)] = []
    private var hand = 0
    private var shared = [Bucket](repeating: Bucket(), count: Self.sharedCount)

    private static let sharedCount = 64
    private static let stepsOfHand = 8

    init(limit: Int) {
        self.limit = limit
    }

    var count: Int { entries.count }

    func bucket(of source: SourceKey) -> Bucket {
        if let place = places[source] { return entries[place].bucket }
        return shared[Self.share(of: source)]
    }

    mutating func take(_ source: SourceKey, _ pace: Pace, at now: Deadline) {
        if let place = places[source] ?? makePlace(for: source, at: now) {
            entries[place].bucket.take(pace, at: now)
        } else {
            shared[Self.share(of: source)].take(pace, at: now)
        }
    }

    /// Returns `nil` if every place is occupied.
    private mutating func makePlace(for source: SourceKey, at now: Deadline) -> Int? {
        let entry = (source, shared[Self.share(of: source)])
        guard entries.count == limit else {
            entries.append(entry)
            places[source] = entries.count - 1
            return entries.count - 1
        }
        for _ in 0..<min(Self.stepsOfHand, limit) {
            let place = hand
            hand = (hand + 1) % limit
            guard entries[place].bucket.isFull(at: now) else { continue }
            places[entries[place].source] = nil
            entries[place] = entry
            places[source] = place
            return place
        }
        return nil
    }

    /// Swift seeds its hashes differently in each process.
    private static func share(of source: SourceKey) -> Int {
        Int(UInt(bitPattern: source.hashValue) % UInt(sharedCount))
    }
}
