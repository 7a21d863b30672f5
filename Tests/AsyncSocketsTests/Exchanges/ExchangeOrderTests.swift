import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// Two exchanges at the same time, one of which is late, cancelled or answered first.
@Suite(.timeLimit(.patient), .ownThreads) struct ExchangeOrderTests {
    // MARK: - All orders

    /// A step of one exchange.
    enum Step: Sendable { case begin, wait, reply, cancel, expire, end }

    /// The possible courses of an exchange. If the reply is the last step, it is too late.
    enum Course: CaseIterable, Sendable {
        case answered, answeredBeforeItWaits, answeredInTheSecondAttempt, cancelled, late

        var steps: [Step] {
            switch self {
            case .answered: [.begin, .wait, .reply, .end]
            case .answeredBeforeItWaits: [.begin, .reply, .wait, .end]
            case .answeredInTheSecondAttempt: [.begin, .wait, .expire, .reply, .wait, .end]
            case .cancelled: [.begin, .wait, .cancel, .end, .reply]
            case .late: [.begin, .wait, .expire, .end, .reply]
            }
        }

        /// The results of the attempts.
        var outcomes: [Outcome] {
            switch self {
            case .answered, .answeredBeforeItWaits: [.served]
            case .answeredInTheSecondAttempt: [.failed(.readTimeout), .served]
            case .cancelled: [.cancelled]
            case .late: [.failed(.readTimeout)]
            }
        }

        var takesReply: Bool { outcomes.contains(.served) }
    }

    /// One of two exchanges, and its result.
    private final class Party {
        let number: UInt8
        let course: Course
        private let exchange: Exchange
        private let datagram: Datagram
        private var waiters: [DatagramWaiter] = []
        private var next = 0
        private(set) var tookReply = false
        /// Whether each cancelled waiter was found.
        private(set) var isKnown = true

        init(_ number: UInt8, _ course: Course, peer: InternetAddress) {
            (self.number, self.course) = (number, course)
            exchange = Exchange(with: peer) { $0.data.first == number }
            datagram = Datagram(
                Data([number]), from: peer, DatagramArrival(ArrivalFacts(), fullSize: 1, isTruncated: false))
        }

        func advance(_ exchanges: inout Exchanges) {
            defer { next += 1 }
            switch course.steps[next] {
            case .begin: exchanges.begin(exchange)
            case .wait:
                let waiter = DatagramWaiter(.exchange, OperationLimit(.patient))
                waiters.append(waiter)
                let isRegistered = exchanges.await(exchange, waiter)
                #expect(isRegistered)
            case .reply: tookReply = exchanges.take(datagram)
            case .cancel: isKnown = exchanges.cancel(waiters[waiters.count - 1], CancellationError())
            case .expire:
                let late = waiters[waiters.count - 1]
                isKnown = exchanges.cancel(late, late.lateError)
            case .end: exchanges.end(exchange)
            }
        }

        var outcomes: [Outcome?] {
            waiters.map { waiter in
                switch waiter.earlyAnswer {
                case .success(let reply): reply.data == Data([number]) ? .served : nil
                case .failure(let error): Outcome(error)
                case nil: nil
                }
            }
        }
    }

    /// Every order of the steps of two exchanges with one peer. Each gets its own result, and nothing is
    /// left.
    @Test(arguments: Course.allCases, Course.allCases) func eachOrderGivesEachItsOwnResult(_ one: Course, _ other: Course) throws
    {
        let peer = InternetAddress(try .loopback(port: 9))
        for order in Self.orders(one.steps.count, other.steps.count) {
            let parties = [Party(1, one, peer: peer), Party(2, other, peer: peer)]
            var exchanges = Exchanges()
            for isSecond in order { parties[isSecond ? 1 : 0].advance(&exchanges) }
            let isExpected = parties.allSatisfy { party in
                party.outcomes == party.course.outcomes.map { Optional($0) } && party.tookReply == party.course.takesReply
                    && party.isKnown
            }
            #expect(isExpected && !exchanges.isPending, "\(order): \(parties.map(\.outcomes))")
            if !isExpected { return }
        }
    }

    /// All sequences with the given numbers of `false` and `true`.
    private static func orders(_ first: Int, _ second: Int) -> [[Bool]] {
        if first == 0 || second == 0 { return [Array(repeating: first == 0, count: first + second)] }
        return orders(first - 1, second).map { [false] + $0 } + orders(first, second - 1).map { [true] + $0 }
    }

    /// Both accept any datagram, and both are still registered when the second reply arrives.
    @Test(arguments: [true, false]) func twoRepliesAreForTwoExchanges(bothWait: Bool) throws {
        let peer = InternetAddress(try .loopback(port: 9))
        var exchanges = Exchanges()
        let exchanging = (0..<2).map { _ in
            (Exchange(with: peer) { _ in true }, DatagramWaiter(.exchange, OperationLimit(.patient)))
        }
        func wait() {
            for (exchange, waiter) in exchanging {
                let isRegistered = exchanges.await(exchange, waiter)
                #expect(isRegistered)
            }
        }
        for (exchange, _) in exchanging { exchanges.begin(exchange) }
        if bothWait { wait() }
        let taken = (UInt8(7)...9).map { byte in
            let arrival = DatagramArrival(ArrivalFacts(), fullSize: 1, isTruncated: false)
            return exchanges.take(Datagram(Data([byte]), from: peer, arrival))
        }
        #expect(taken == [true, true, false])
        if !bothWait { wait() }
        #expect(try exchanging.map { try $0.1.earlyAnswer?.get().data } == [Data([7]), Data([8])])
        #expect(!exchanges.isPending)
    }

    /// Deadlines that expire in the order of the exchanges and in the opposite order.
    @Test(arguments: [[10.0, 20, 30], [30, 20, 10], [20, 10, 30], [10, 10, 30]]) func eachExpiresAtItsOwnTime(_ seconds: [Double])
        throws
    {
        let peer = InternetAddress(try .loopback(port: 9))
        var exchanges = Exchanges()
        let exchanging = seconds.map { seconds in
            (Exchange(with: peer) { _ in false }, DatagramWaiter(.exchange, OperationLimit(.seconds(seconds))))
        }
        for (exchange, waiter) in exchanging {
            exchanges.begin(exchange)
            let isRegistered = exchanges.await(exchange, waiter)
            #expect(isRegistered)
        }
        for time in [9.0, 10, 20, 30] {
            // A little later than the deadline, because the waiters were created sequentially.
            exchanges.expire(at: try #require(Deadline(after: time + 0.5)), nil)
            for (waiter, limit) in zip(exchanging.map(\.1), seconds) {
                #expect((waiter.earlyAnswer != nil) == (limit <= time), "\(limit) at \(time)")
            }
        }
        #expect(exchanges.deadline == nil)
    }

    // MARK: - On sockets

    /// A plaintext socket and its peer, or one with DTLS.
    private func sockets(isSecure: Bool) async throws -> (asking: AsyncUDPSocket, peer: AsyncUDPSocket) {
        let (client, server) = try await StyledDatagramSocket.pair(.task)
        if isSecure { try await secure(client, TestCertificates.client(), server, TestCertificates.server()) }
        return (client.socket, server.socket)
    }

    /// Starts exchanges sequentially. Each request has arrived before the next exchange starts.
    private func ask(
        _ asking: AsyncUDPSocket, _ peer: AsyncUDPSocket, _ requests: [(byte: UInt8, timeout: Duration)],
        _ isReply: @escaping @Sendable (UInt8, Datagram) -> Bool
    ) async throws -> [Task<Data, any Error>] {
        var tasks: [Task<Data, any Error>] = []
        for (byte, timeout) in requests {
            tasks.append(
                Task {
                    try await asking.exchange(Data([byte]), attempts: 1, timeout: timeout) { isReply(byte, $0) }.data
                })
            #expect(try await peer.receive().data == Data([byte]))
        }
        return tasks
    }

    /// The reply to a request that has timed out is an ordinary datagram. The other exchange continues.
    @Test(arguments: [false, true], [[0, 1], [1, 0]]) func aReplyAfterTheTimeoutIsNotTheOthers(isSecure: Bool, _ order: [Int])
        async throws
    {
        let (asking, peer) = try await sockets(isSecure: isSecure)
        let both: [(byte: UInt8, timeout: Duration)] = [(1, .milliseconds(50)), (2, .patient)]
        let tasks = try await ask(asking, peer, order.map { both[$0] }) { byte, datagram in datagram.data.first == byte }
        let (late, other) = order == [0, 1] ? (tasks[0], tasks[1]) : (tasks[1], tasks[0])
        #expect(await late.outcome == .failed(.readTimeout))
        try await peer.send(Data([1, 1]))
        #expect(try await asking.receive().data == Data([1, 1]))
        try await peer.send(Data([2, 2]))
        #expect(try await other.value == Data([2, 2]))
    }

    /// Both accept any datagram, so the older one gets the first. When it is cancelled, the younger one does.
    @Test(arguments: [false, true], [0, 1, nil]) func theOldestThatIsLeftGetsTheReply(isSecure: Bool, cancelled: Int?)
        async throws
    {
        let (asking, peer) = try await sockets(isSecure: isSecure)
        let tasks = try await ask(asking, peer, [(1, .patient), (2, .patient)]) { _, _ in true }
        if let cancelled {
            tasks[cancelled].cancel()
            #expect(await tasks[cancelled].outcome == .cancelled)
            try await peer.send(Data([9]))
            #expect(try await tasks[1 - cancelled].value == Data([9]))
        } else {
            for byte in UInt8(7)...8 {
                try await peer.send(Data([byte]))
                #expect(try await tasks[Int(byte) - 7].value == Data([byte]))
            }
        }
        // Later datagrams are received as usual.
        try await peer.send(Data([3]))
        #expect(try await asking.receive().data == Data([3]))
    }

    /// A pending receive returns the datagram that no exchange accepts.
    @Test(arguments: [false, true]) func aReceiveWaitsBesideTwoExchanges(isSecure: Bool) async throws {
        let (asking, peer) = try await sockets(isSecure: isSecure)
        let receiving = Task { try await asking.receive().data }
        let tasks = try await ask(asking, peer, [(1, .patient), (2, .patient)]) { byte, datagram in datagram.data.first == byte }
        for byte in [2, 1, 3] as [UInt8] { try await peer.send(Data([byte, 5])) }
        #expect(try await tasks[0].value == Data([1, 5]))
        #expect(try await tasks[1].value == Data([2, 5]))
        #expect(try await receiving.value == Data([3, 5]))
    }

    @Test(arguments: [false, true]) func aCloseEndsAllThatWait(isSecure: Bool) async throws {
        let (asking, peer) = try await sockets(isSecure: isSecure)
        let tasks = try await ask(asking, peer, [(1, .patient), (2, .patient), (3, .patient)]) { byte, datagram in
            datagram.data.first == byte
        }
        try await peer.send(Data([2, 5]))
        #expect(try await tasks[1].value == Data([2, 5]))
        asking.disconnect()
        asking.disconnect()
        for task in [tasks[0], tasks[2]] { #expect(await task.outcome == .failed(.closed)) }
    }
}
