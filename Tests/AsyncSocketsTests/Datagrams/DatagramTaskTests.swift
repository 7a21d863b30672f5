import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// UDP sockets in tasks.
@Suite(.timeLimit(.patient)) struct DatagramTaskTests {
    @Test(arguments: ["127.0.0.1", "::1"])
    func aRequestGetsItsReplyFromTheAddressThatItCameTo(_ host: String) async throws {
        let server = AsyncUDPSocket()
        try server.bind(toPort: 0)
        let echo = Task {
            for try await datagram in server.datagrams {
                try await server.send(datagram.data + Data("!"), inReplyTo: datagram)
            }
        }
        let port = server.localPort
        let reply = try await AsyncUDPSocket.withConnection(to: host, port: port) { socket in
            try await socket.send(Data("hello"))
            return try await socket.receive()
        }
        #expect(reply.data == Data("hello!") && reply.sender.host == host && reply.sender.port == port)
        server.disconnect()
        try await echo.value
    }

    @Test func aDatagramOfZeroBytesIsADatagram() async throws {
        let (one, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        try await one.send(Data(), to: other.address)
        try await one.send(Data([1]), to: other.address)
        #expect(try await other.receive().data.isEmpty)
        #expect(try await other.receive().data == Data([1]))
        #expect(other.isOpen)
    }

    @Test func aDatagramSaysHowItArrived() async throws {
        let server = AsyncUDPSocket()
        server.receivesTimestamps = true
        try server.bind(toPort: 0)
        let client = try AsyncUDPSocket.bound()
        try await client.send(Data([1]), to: "127.0.0.9", port: server.localPort)
        let datagram = try await server.receive()
        #expect(try datagram.sender == client.address)
        #expect(datagram.arrival.localAddress?.host == "127.0.0.9" && datagram.arrival.localAddress?.port == server.localPort)
        #expect(datagram.arrival.interfaceName == "lo" && !datagram.arrival.isTruncated)
        #expect(datagram.arrival.timeSince1970 != nil)
    }

    @Test func aLongDatagramIsTruncatedWhereTheProgramSaysSo() async throws {
        let server = AsyncUDPSocket()
        server.maximumReceiveSize = 100
        try server.bind(toAddress: .loopback())
        let client = try AsyncUDPSocket.bound()
        for size in [101, 100, 65_507] { try await client.send(Data(count: size), to: server.address) }
        for (size, kept) in [(101, 100), (100, 100), (65_507, 100)] {
            let datagram = try await server.receive()
            #expect(datagram.data.count == kept && datagram.arrival.fullSize == size)
            #expect(datagram.arrival.isTruncated == (size > 100))
        }
    }

    @Test func theLargestDatagramIsDeliveredWhole() async throws {
        let (one, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let data = pattern(65_507)
        try await one.send(data, to: other.address)
        #expect(try await other.receive().data == data)
        let error = await #expect(throws: AsyncSocketError.self) {
            try await one.send(data + [0], to: other.address)
        }
        #expect(error?.code == .badParameter && error?.errno == EMSGSIZE && error?.message.contains("65508") == true)
        #expect(one.isOpen)
    }

    // MARK: - Waiting

    @Test func aReceiveThatIsLateThrowsAndLosesNothing() async throws {
        let (one, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let late = await #expect(throws: AsyncSocketError.self) { try await other.receive(timeout: .milliseconds(1)) }
        #expect(late?.code == .readTimeout)
        let beyond = await #expect(throws: AsyncSocketError.self) {
            try await withDeadline(.milliseconds(1)) { try await other.receive() }
        }
        #expect(beyond?.code == .deadlineExceeded)
        try await one.send(Data([7]), to: other.address)
        #expect(try await other.receive().data == Data([7]))
    }

    /// Cancels receives at arbitrary times while datagrams arrive. Each number is received once, in order.
    @Test(arguments: [false, true]) func cancelledReceivesLoseNoDatagram(hasQueue: Bool) async throws {
        let one = try AsyncUDPSocket.bound()
        let queue = hasQueue ? DispatchQueue(label: "socket") : nil
        let other = AsyncUDPSocket(inlineDelegate: nil as DatagramRecorder?, socketQueue: queue)
        try other.bind(toAddress: .loopback())
        let target = try other.address
        let count = 150
        let sender = Task {
            for number in 0..<count {
                try await one.send(Data("\(number)".utf8), to: target)
                await Task.yield()
            }
        }
        var received: [String] = []
        var cancelledCount = 0
        while received.count < count {
            let task = Task { try await other.receive() }
            if received.count % 3 != 0 || cancelledCount > 100 * count { task.cancel() }
            do {
                received.append(String(decoding: try await task.value.data, as: UTF8.self))
            } catch is CancellationError {
                cancelledCount += 1
                if cancelledCount % 2 == 0 { received.append(String(decoding: try await other.receive().data, as: UTF8.self)) }
            }
        }
        try await sender.value
        #expect(received == (0..<count).map { "\($0)" })
        #expect(cancelledCount > 0)
    }

    @Test func tasksThatWaitAreServedInOrder() async throws {
        let (one, other) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let waiting = (0..<5).map { _ in Task.immediate { try await other.receive().data } }
        for number in UInt8(0)..<5 { try await one.send(Data([number]), to: other.address) }
        for (number, task) in waiting.enumerated() { #expect(try await task.value == Data([UInt8(number)])) }
    }

    @Test func closingEndsTheSequenceAndTheWaits() async throws {
        let socket = try AsyncUDPSocket.bound()
        let loop = Task.immediate { for try await _ in socket.datagrams {} }
        let waiting = Task.immediate { try await socket.receive() }
        socket.disconnect()
        try await loop.value
        let error = await #expect(throws: AsyncSocketError.self) { try await waiting.value }
        #expect(error?.code == .closed)
        #expect(socket.isClosed && !socket.isOpen)
        let later = await #expect(throws: AsyncSocketError.self) { try await socket.send(Data([1]), to: .loopback(port: 9)) }
        #expect(later?.code == .closed)
        let bound = #expect(throws: AsyncSocketError.self) { try socket.bind(toPort: 0) }
        #expect(bound?.code == .closed)
    }

    // MARK: - Where tasks run

    @Test func theBodyOfAScopeRunsOnTheLoopOfItsSocket() async throws {
        try await AsyncUDPSocket.withSocket(boundTo: 0, interface: "localhost") { socket in
            #expect(socket.executor?.isCurrent == true)
            try await socket.send(Data([1]), to: "127.0.0.1", port: socket.localPort)
            #expect(try await socket.receive().data == Data([1]))
            #expect(socket.executor?.isCurrent == true)
        }
    }

    @MainActor @Test func anActorKeepsTheBodyOfItsScope() async throws {
        try await AsyncUDPSocket.withSocket(boundTo: 0, interface: "127.0.0.1") { socket in
            MainActor.assertIsolated()
            try await socket.send(Data([1]), to: socket.address)
            #expect(try await socket.receive().data == Data([1]))
            MainActor.assertIsolated()
        }
    }
}
