// Rules of connecting:
//  1. `HappyEyeballs` makes the decisions. Only the connector opens, binds and connects sockets.
//  2. Each attempt owns a descriptor and a registration on the loop. It gives up both when it fails, is
//     cancelled, or wins.
//  3. The winner's descriptor is returned unwatched, and the connector keeps no reference to it.
//  4. A TCP socket with the same local and remote address has connected to itself (RFC 9293, section 3.5,
//     simultaneous open). This is treated as a refused connection.
//  5. Connecting to a Unix-domain listener with a full backlog fails with EAGAIN, and no event reports when
//     there is room again (connect(2)). The connector retries at increasing intervals.

internal import Glibc

/// The connection attempts to one host.
///
/// Used only during turns of the connection that owns it.
package final class Connector {
    /// An event in the course of the attempts. Arrays contain steps in chronological order.
    package enum Step {
        case trying(SocketEndpoint)
        case failed(SocketEndpoint, SystemError)
        /// Includes the peer's address, because the kernel no longer returns it after the peer resets the
        /// connection.
        case connected(SocketDescriptor, peer: SocketEndpoint)
        case exhausted([(address: SocketEndpoint, error: SystemError)])
    }

    private struct Attempt {
        let descriptor: SocketDescriptor
        /// Set when the attempt succeeds.
        var peer: SocketEndpoint?
        /// `nil` if the kernel connected immediately.
        let registration: LoopRegistration?
    }

    private let routes: [Route]
    private let delay: Double
    private let options: SocketOptionSet
    private let loop: SocketEventLoop
    private let deliver: @Sendable (Int, LoopEvents) -> Void
    private var race: HappyEyeballs
    private var attempts: [Int: Attempt] = [:]
    private var delayEnd: Deadline?
    private var retry: Retry?

    /// - Parameters:
    ///   - delay: Seconds between the starts of consecutive attempts.
    ///   - options: Set before each descriptor is bound or connected.
    ///   - deliver: Called on the loop with the arguments for `handle(_:of:)`.
    package init(
        routes: [Route], delay: Double, options: SocketOptionSet = SocketOptionSet(), loop: SocketEventLoop,
        deliver: @escaping @Sendable (_ number: Int, _ events: LoopEvents) -> Void
    ) {
        self.routes = routes
        self.delay = max(delay, 0)
        self.options = options
        self.loop = loop
        self.deliver = deliver
        race = HappyEyeballs(attemptCount: routes.count)
    }

    /// When `expire(at:)` must be called.
    package var deadline: Deadline? { [delayEnd, retry?.time].compactMap { $0 }.min() }

    package func begin() -> [Step] {
        advance(.began)
    }

    /// Handles events from the loop for an attempt. Events for an attempt that has already finished are
    /// ignored.
    package func handle(_ events: LoopEvents, of number: Int) -> [Step] {
        guard let attempt = attempts[number], let answer = attempt.descriptor.attemptAnswer(events) else { return [] }
        return advance(note(answer, of: number))
    }

    package func expire(at now: Deadline) -> [Step] {
        var steps: [Step] = []
        if let due = retry, due.time <= now {
            retry = nil
            if let event = start(due.number, after: due) { steps += advance(event) }
        }
        if let end = delayEnd, end <= now {
            delayEnd = nil
            steps += advance(.delayPassed)
        }
        return steps
    }

    package func cancel() {
        for number in attempts.keys { drop(number) }
        delayEnd = nil
        retry = nil
    }

    // MARK: - Actions

    /// Passes an event to the race and performs the resulting actions. An action may cause further events,
    /// which are handled in the same way. The loop terminates because each attempt starts and fails at most
    /// once.
    private func advance(_ event: HappyEyeballs.Event) -> [Step] {
        var steps: [Step] = []
        var events = [event]
        while !events.isEmpty {
            let event = events.removeFirst()
            if case .failed(let number, let error) = event {
                drop(number)
                steps.append(.failed(routes[number].destination, error))
            }
            for action in race.handle(event) { perform(action, &steps, &events) }
        }
        return steps
    }

    private func perform(_ action: HappyEyeballs.Action, _ steps: inout [Step], _ events: inout [HappyEyeballs.Event]) {
        switch action {
        case .start(let number):
            steps.append(.trying(routes[number].destination))
            if let event = start(number, after: nil) { events.append(event) }
        case .cancel(let number): drop(number)
        case .armDelay: delayEnd = Deadline(after: delay)
        case .disarmDelay: delayEnd = nil
        case .win(let number):
            let peer = attempts[number]?.peer ?? routes[number].destination
            if let winner = release(number) { steps.append(.connected(winner, peer: peer)) }
        case .giveUp:
            steps.append(.exhausted(race.failures.map { (routes[$0.number].destination, $0.error) }))
        }
    }

    /// Starts an attempt. Returns the outcome if it is known immediately.
    private func start(_ number: Int, after previous: Retry?) -> HappyEyeballs.Event? {
        let route = routes[number]
        do throws(SystemError) {
            let descriptor = try SocketDescriptor(streamOf: route.destination.family, options: options)
            if let source = route.source { try descriptor.useSource(source) }
            switch descriptor.connect(to: route.destination) {
            case .connected:
                attempts[number] = Attempt(descriptor: descriptor, registration: nil)
                return descriptor.attemptAnswer([.writable, .hangup]).map { note($0, of: number) }
            case .inProgress:
                // Must not be watched earlier: epoll reports a hangup for a socket that has not started to
                // connect.
                attempts[number] = Attempt(descriptor: descriptor, registration: try watch(descriptor, number))
                return nil
            case .failed(let error) where error.errno == EAGAIN && route.destination.family == .unix:
                retry = Retry(of: number, after: previous)
                return nil
            case .failed(let error):
                throw error
            }
        } catch {
            return .failed(number, error)
        }
    }

    private func watch(_ descriptor: SocketDescriptor, _ number: Int) throws(SystemError) -> LoopRegistration {
        let registration = loop.register(AttemptHandler(number: number, deliver: deliver))
        do throws(SystemError) {
            try loop.watch(descriptor, for: registration)
        } catch {
            loop.deregister(registration)
            throw error
        }
        return registration
    }

    private func note(_ answer: AttemptAnswer, of number: Int) -> HappyEyeballs.Event {
        switch answer {
        case .connected(let peer):
            attempts[number]?.peer = peer
            return .connected(number)
        case .failed(let error): return .failed(number, error)
        }
    }

    private func drop(_ number: Int) {
        release(number)?.close()
    }

    /// Removes an attempt from the loop and returns its descriptor.
    private func release(_ number: Int) -> SocketDescriptor? {
        if retry?.number == number { retry = nil }
        guard let attempt = attempts.removeValue(forKey: number) else { return nil }
        if let registration = attempt.registration {
            loop.unwatch(attempt.descriptor)
            loop.deregister(registration)
        }
        return attempt.descriptor
    }
}

/// A scheduled retry after a full backlog.
private struct Retry {
    let number: Int
    let time: Deadline
    private let seconds: Double

    init?(of number: Int, after previous: Retry?) {
        seconds = min((previous?.seconds ?? 0.005) * 2, 0.5)
        guard let time = Deadline(after: seconds) else { return nil }
        self.number = number
        self.time = time
    }
}

private final class AttemptHandler: EventHandler {
    private let number: Int
    private let deliver: @Sendable (Int, LoopEvents) -> Void

    init(number: Int, deliver: @escaping @Sendable (Int, LoopEvents) -> Void) {
        self.number = number
        self.deliver = deliver
    }

    func handle(_ events: LoopEvents) {
        deliver(number, events)
    }
}

private enum AttemptAnswer {
    case connected(to: SocketEndpoint)
    case failed(SystemError)
}

extension SocketDescriptor {
    /// Binds the source address. Must be called before `connect`.
    ///
    /// With port 0, the kernel chooses a port when it knows the destination, so that many connections can
    /// share a port (`IP_BIND_ADDRESS_NO_PORT`, ip(7)). With any other port, `SO_REUSEADDR` allows the port
    /// to be shared with a connection to a different host or a connection in `TIME_WAIT`.
    fileprivate func useSource(_ source: SocketEndpoint) throws(SystemError) {
        if source.port == 0 {
            setFlag(level: CInt(IPPROTO_IP), option: IP_BIND_ADDRESS_NO_PORT)
        } else {
            setFlag(level: SOL_SOCKET, option: SO_REUSEADDR)
        }
        guard source.withSockaddr({ Glibc.bind(rawValue, $0, $1) }) == 0 else { throw SystemError("bind") }
    }

    /// Returns `nil` while the attempt is in progress.
    fileprivate func attemptAnswer(_ events: LoopEvents) -> AttemptAnswer? {
        guard !events.isDisjoint(with: [.writable, .hangup]) else { return nil }
        if let error = takeError(of: "connect") { return .failed(error) }
        guard let peer = remoteAddress else {
            return events.contains(.hangup) ? .failed(SystemError("connect", errno: ECONNRESET)) : nil
        }
        let isItself = peer.family.isInternet && peer == localAddress
        return isItself ? .failed(SystemError("connect", errno: ECONNREFUSED)) : .connected(to: peer)
    }
}
