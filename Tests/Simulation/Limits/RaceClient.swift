internal import AsyncSockets
internal import SocketCore

/// The addresses of a host, and what happens to an attempt to connect to each of them.
struct RacePlan {
    private struct Address {
        let outcome: Network.Route.Outcome
        /// Milliseconds until the outcome.
        let time: Int
    }

    /// Milliseconds.
    enum Decision: Equatable {
        case connected(after: Int)
        case failed(after: Int)
        case never
        /// The order of two events is not determined.
        case open
    }

    static let port: UInt16 = 6_000
    private let addresses: [Address]
    /// Milliseconds between the starts of two attempts.
    let delay: Int
    /// Milliseconds.
    let timeout: Int

    init(_ pick: (Int) -> Int) {
        (delay, timeout) = ([300, 100, 1_000][pick(3)], [5_000, 250][pick(2)])
        addresses = (0..<1 + pick(5)).map { position in
            let outcome = [Network.Route.Outcome.accepted, .refused, .lost, .refused][pick(4)]
            return Address(outcome: outcome, time: [7, 40, 130, 450, 1_600][pick(5)] + 5 * position)
        }
    }

    var routes: [(Place, Network.Route)] {
        addresses.enumerated().map { position, address in
            let place = Place(address: 0x7F00_0101 + UInt32(position), port: Self.port)
            return (place, Network.Route(outcome: address.outcome, latency: UInt64(address.time) * 1_000_000))
        }
    }

    var endpoints: [SocketEndpoint] {
        addresses.indices.compactMap { SocketEndpoint(literal: "127.0.1.\($0 + 1)", port: Self.port) }
    }

    /// How long a client needs that starts an attempt after each delay, and after each failure (RFC 8305,
    /// section 5).
    var decision: Decision {
        var ends: [(time: Int, number: Int)] = []
        var (started, lostCount) = (0, 0)
        var delayEnd: Int?
        func start(at now: Int) {
            guard started < addresses.count else { return delayEnd = nil }
            let address = addresses[started]
            if address.outcome == .lost { lostCount += 1 } else { ends.append((now + address.time, started)) }
            started += 1
            delayEnd = started < addresses.count ? now + delay : nil
        }
        start(at: 0)
        while true {
            let times = (ends.map(\.time) + [delayEnd, timeout].compactMap(\.self)).sorted()
            guard let now = times.first, now < timeout else { return .never }
            if times.count > 1, times[1] - now < 4 { return .open }
            guard let index = ends.firstIndex(where: { $0.time == now }) else {
                start(at: now)
                continue
            }
            if addresses[ends.remove(at: index).number].outcome == .accepted { return .connected(after: now) }
            if started == addresses.count, ends.isEmpty, lostCount == 0 { return .failed(after: now) }
            start(at: now)
        }
    }
}

/// A client that connects to a host with several addresses.
final class RaceClient: LimitTask, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    private var start: UInt64 = 0

    init(_ course: LimitRun) { super.init("client", course) { AsyncSocket() } }

    override func perform(_ socket: AsyncSocket) async throws {
        let endpoints = plan.race.endpoints
        socket.resolver = Resolver(concurrency: 1) { _ in .success(endpoints) }
        socket.alternateAddressDelay = .milliseconds(plan.race.delay)
        start = course.kernel.now
        try await socket.connect(to: "host.example", port: RacePlan.port, timeout: .milliseconds(plan.race.timeout))
        let count = course.kernel.openStreams.count
        if count > 1 { complain("\(count - 1) other attempts are open after the first has connected") }
        switch plan.race.decision {
        case .connected(let time): course.checkTime(since: start, UInt64(time) * 1_000_000, "connecting")
        case .open: break
        case .failed, .never: complain("connects, although no attempt succeeds")
        }
        try await socket.close()
    }

    override func check(_ error: any Error) {
        if plan.isDisturbed { return }
        let code = (error as? AsyncSocketError)?.code
        switch plan.race.decision {
        case .failed(let time) where code == .connectFailed:
            course.checkTime(since: start, UInt64(time) * 1_000_000, "failing")
        case .never where code == .connectTimeout:
            course.checkTime(since: start, UInt64(plan.race.timeout) * 1_000_000, "the timeout of connect")
        case .open: break
        case .connected, .failed, .never: complain("\(error) instead of \(plan.race.decision)")
        }
    }

    override func complaintAtEnd() -> String? {
        let count = course.kernel.openStreams.count
        return super.complaintAtEnd() ?? (count == 0 ? nil : "\(count) attempts are open at the end")
    }
}
