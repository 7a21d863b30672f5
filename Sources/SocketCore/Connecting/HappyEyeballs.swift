// Rules of the race to a host (RFC 8305, "Happy Eyeballs", sections 4 and 5):
//  1. Attempts begin one after the other, in the order of the addresses: the preferred family first, then the
//     families in turn.
//  2. The next one begins when the delay has passed since the last one began, or at once when one fails.
//  3. At most `limit` of them are under way at a time.
//  4. The first to connect wins: the others are cancelled, and no more begin.
//  5. The race is lost when the last one has failed. Every failure is known then.
//  6. An event of an attempt that has ended, or after the race, changes nothing.

/// Decides which address of a host to try, when, and which connection to keep.
///
/// A plain value; the `Connector` acts. An attempt is named by its position in the order.
package struct HappyEyeballs: Sendable {
    /// An event of the attempts.
    package enum Event: Sendable {
        case began
        case delayPassed
        case failed(Int, SystemError)
        case connected(Int)
    }

    /// An action of the connector.
    package enum Action: Hashable, Sendable {
        case start(Int)
        /// Ends an attempt that is under way.
        case cancel(Int)
        /// Begins the delay again.
        case armDelay
        case disarmDelay
        /// This attempt wins.
        case win(Int)
        /// The race is lost.
        case giveUp
    }

    /// Why attempts have failed, in the order of their failures.
    package private(set) var failures: [(number: Int, error: SystemError)] = []
    private var untried: Range<Int>
    private var underWay: Set<Int> = []
    private var isOver = false

    /// The most attempts at a time. A stranger's name server chooses the addresses of a host, and each
    /// attempt holds a descriptor.
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

    /// Rule 1. Each family keeps its order, which comes from the system's resolver (RFC 6724). Of equal
    /// addresses the first one stays.
    package static func order(_ addresses: [SocketAddress], preferring preferred: SocketAddress.Family) -> [SocketAddress] {
        var known: Set<SocketAddress> = []
        let distinct = addresses.filter { known.insert($0).inserted }
        let first = distinct.filter { $0.family == preferred }
        let second = distinct.filter { $0.family != preferred }
        return (0..<max(first.count, second.count)).flatMap { first.dropFirst($0).prefix(1) + second.dropFirst($0).prefix(1) }
    }
}
