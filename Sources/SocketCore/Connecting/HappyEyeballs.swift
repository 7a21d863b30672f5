// Rules of the connection race (RFC 8305, "Happy Eyeballs", sections 4 and 5):
//  1. Attempts start in address order: an address of the preferred family first, then alternating between
//     families.
//  2. The next attempt starts when the delay since the last start has passed, or immediately when an attempt
//     fails.
//  3. At most `limit` attempts are in progress at a time.
//  4. The first attempt to connect wins. The remaining attempts are cancelled and no more are started.
//  5. The race is lost when the last attempt has failed. By then every failure is known.
//  6. Events are ignored if their attempt has finished or the race has been decided.

/// Decides which addresses of a host to try, when to try them, and which connection to keep.
///
/// A plain value without side effects; `Connector` performs the actions. Attempts are identified by their
/// position in the order.
package struct HappyEyeballs: Sendable {
    package enum Event: Sendable {
        case began
        case delayPassed
        case failed(Int, SystemError)
        case connected(Int)
    }

    package enum Action: Hashable, Sendable {
        case start(Int)
        case cancel(Int)
        /// Restarts the delay.
        case armDelay
        case disarmDelay
        /// Keeps the connection of this attempt.
        case win(Int)
        /// Reports that all attempts have failed.
        case giveUp
    }

    /// The errors of failed attempts, in the order in which they failed.
    package private(set) var failures: [(number: Int, error: SystemError)] = []
    private var untried: Range<Int>
    private var underWay: Set<Int> = []
    private var isOver = false

    /// The maximum number of concurrent attempts. The host's addresses come from a name server that may not
    /// be trusted, and each attempt uses a descriptor.
    package static let limit = 8

    package init(attemptCount: Int) {
        untried = 0..<attemptCount
    }

    package mutating func handle(_ event: Event) -> [Action] {
        guard !isOver else { return [] }
        switch event {
        case .began, .delayPassed:
            return beginNext()
        case .failed(let number, let error):
            guard underWay.remove(number) != nil else { return [] }
            failures.append((number, error))
            return beginNext()
        case .connected(let number):
            guard underWay.remove(number) != nil else { return [] }
            isOver = true
            return underWay.sorted().map { .cancel($0) } + [.disarmDelay, .win(number)]
        }
    }

    private mutating func beginNext() -> [Action] {
        guard let number = untried.first, underWay.count < Self.limit else {
            isOver = underWay.isEmpty
            return isOver ? [.giveUp] : []
        }
        untried.removeFirst()
        underWay.insert(number)
        return [.start(number), untried.isEmpty ? .disarmDelay : .armDelay]
    }

    /// Orders addresses by rule 1. Each family keeps the order of the system's resolver (RFC 6724).
    /// Duplicates are removed.
    package static func order(_ addresses: [SocketEndpoint], preferring preferred: SocketEndpoint.Family) -> [SocketEndpoint] {
        var known: Set<SocketEndpoint> = []
        let distinct = addresses.filter { known.insert($0).inserted }
        let first = distinct.filter { $0.family == preferred }
        let second = distinct.filter { $0.family != preferred }
        return (0..<max(first.count, second.count)).flatMap { first.dropFirst($0).prefix(1) + second.dropFirst($0).prefix(1) }
    }
}
