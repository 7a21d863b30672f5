import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Reports of undelivered datagrams, to delegates and to tasks.
@Suite(.timeLimit(.patient)) struct DeliveryFailureTests {
    enum Peer: CaseIterable, Sendable { case connected, named }

    @Test(arguments: Peer.allCases, ["127.0.0.1", "::1"])
    func aTaskIsToldOfAPortThatNoProgramHas(_ peer: Peer, _ host: String) async throws {
        let refusing = try SocketEndpoint.loopback(host, port: RawSocket.freePort())
        let socket = try AsyncUDPSocket.bound(host)
        if peer == .connected { try await socket.connect(to: refusing) }
        var failures = try socket.deliveryFailures().makeAsyncIterator()
        for _ in 0..<2 {
            if peer == .connected {
                try await socket.send(Data([1]))
            } else {
                try await socket.send(Data([1]), to: refusing)
            }
            let failure = try #require(await failures.next())
            #expect(failure.address == refusing && failure.error.errno == ECONNREFUSED && failure.error.fault == .peer)
            #expect(failure.error.message == "\(refusing): connection refused")
        }
        #expect(socket.isOpen)
        socket.disconnect()
        // A report may have arrived twice.
        while await failures.next() != nil {}
    }

    @Test func receivingAndSendingGoOn() async throws {
        let (socket, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let refusing = try SocketEndpoint.loopback(port: RawSocket.freePort())
        let target = try socket.address
        var failures = try socket.deliveryFailures().makeAsyncIterator()
        let receiving = Task {
            var all: [Data] = []
            for try await datagram in socket.datagrams {
                all.append(datagram.data)
                if all.count == 3 { break }
            }
            return all
        }
        for number in UInt8(0)..<3 {
            try await socket.send(Data([9]), to: refusing)
            _ = try #require(await failures.next())
            try await other.send(Data([number]), to: target)
        }
        #expect(try await receiving.value == [Data([0]), Data([1]), Data([2])])
        try await socket.send(Data([7]), to: other.address)
        #expect(try await other.receive().data == Data([7]))
    }

    @Test func aPeerOfAListenerIsToldToo() async throws {
        let listener = try DatagramListener(address: .loopback())
        let (told, telling) = AsyncStream<DeliveryFailure>.makeStream()
        let (clientIsOpen, clientHasClosed) = AsyncStream<Void>.makeStream()
        let serving = Task {
            try await listener.run { socket in
                let failures = try socket.deliveryFailures()
                _ = try await socket.receive()
                for await _ in clientIsOpen {}
                try await socket.send(Data([1]))
                for await failure in failures {
                    telling.yield(failure)
                    break
                }
            }
        }
        let recorder = DatagramRecorder()
        let client = try AsyncUDPSocket.bound("127.0.0.1", AsyncUDPSocket(inlineDelegate: recorder))
        let address = try client.address
        try await client.send(Data([0]), to: #require(listener.localAddress))
        client.disconnect()
        _ = try await recorder.closed()
        clientHasClosed.finish()
        for await failure in told {
            #expect(failure.address == address && failure.error.errno == ECONNREFUSED)
            break
        }
        await listener.close()
        try await serving.value
    }

    @Test func aSocketThatIsNotInUseHasNone() async throws {
        let socket = AsyncUDPSocket()
        let early = #expect(throws: AsyncSocketError.self) { _ = try socket.deliveryFailures() }
        #expect(early?.code == .badConfiguration)
        try socket.bind(toAddress: .loopback())
        let failures = try socket.deliveryFailures()
        socket.disconnect()
        for await failure in failures { Issue.record("\(failure)") }
        let late = #expect(throws: AsyncSocketError.self) { _ = try socket.deliveryFailures() }
        #expect(late?.code == .closed)
    }

    /// Cancelled tasks and released sequences leave nothing behind.
    @Test func aTaskThatIsCancelledIsToldNoMore() async throws {
        let socket = try AsyncUDPSocket.bound()
        let waiting = Task {
            for await _ in try socket.deliveryFailures() {}
            return Task.isCancelled
        }
        waiting.cancel()
        #expect(try await waiting.value)
        for _ in 0..<100 { _ = try socket.deliveryFailures() }
        let refusing = try SocketEndpoint.loopback(port: RawSocket.freePort())
        var failures = try socket.deliveryFailures().makeAsyncIterator()
        try await socket.send(Data([1]), to: refusing)
        #expect(await failures.next()?.address == refusing)
    }

    @Test func aTaskThatIsBehindGetsTheOldestReports() async throws {
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        try socket.bind(toAddress: .loopback())
        let failures = try socket.deliveryFailures()
        let port = try RawSocket.freePort()
        for number in 1...200 {
            try await socket.send(Data([1]), to: .loopback("127.1.0.\(number)", port: port))
            _ = try await recorder.first { if case .failedToReach = $0 { true } else { nil } }
        }
        let told = recorder.history.compactMap { if case .failedToReach(let address, _) = $0 { address } else { nil } }
        socket.disconnect()
        var taken: [SocketEndpoint?] = []
        for await failure in failures { taken.append(failure.address) }
        #expect(taken.count == 64 && taken == Array(told.prefix(64)))
    }

    /// Reports from a peer, genuine or forged, do not fill the log.
    @Test func reportsDoNotFillTheLog() async throws {
        let name = "reports that are many"
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        socket.logger = LogRecorder.logger(of: name)
        try socket.bind(toAddress: .loopback())
        let refusing = try SocketEndpoint.loopback(port: RawSocket.freePort())
        let beginning = ContinuousClock.now
        var count = 0
        for _ in 0..<300 {
            try await socket.send(Data([1]), to: refusing)
            _ = try await recorder.first { if case .failedToReach = $0 { true } else { nil } }
            count += 1
        }
        socket.disconnect()
        _ = try await recorder.closed()
        let seconds = Int((ContinuousClock.now - beginning).components.seconds) + 1
        let told = recorder.history.count { if case .failedToReach = $0 { true } else { false } }
        let lines = LogRecorder.lines("test", name)
        let written = lines.filter { $0.message == "a datagram was not delivered" }
        #expect((1...seconds + 1).contains(written.count))
        // Each report has its own log line or is included in a line's count.
        let omitted = written.compactMap { $0.metadata["omitted"].flatMap { Int("\($0)") } }.reduce(0, +)
        let atEnd = lines.filter { $0.message == "datagrams were not delivered" }
            .compactMap { $0.metadata["count"].flatMap { Int("\($0)") } }.reduce(0, +)
        #expect(told >= count && written.count + omitted + atEnd == told)
    }
}
