import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Operations that a listener's close interrupts.
@Suite(.timeLimit(.patient)) struct UntilClosingTests {
    private func client(of listener: SocketListener) async throws -> AsyncSocket {
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        return client
    }

    /// No limit is set, so `run` would not return while one of them kept its connection.
    @Test func connectionsBetweenTwoRequestsEndAndTheOthersFinish() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let running = Task {
            try await listener.run { socket in
                while let name = try await listener.untilClosing({ try await socket.readLine() }) {
                    let body = try await socket.readLine()
                    try await socket.writeLine("\(name) \(body ?? "")")
                }
            }
        }
        let idle = [try await client(of: listener), try await client(of: listener)]
        let busy = try await client(of: listener)
        for client in idle + [busy] {
            try await client.write("one\ntwo\n")
            #expect(try await client.readLine() == "one two")
        }
        try await eventually("all are between two requests") { listener.reception.stopWaiterCount == 3 }
        try await busy.write("three\n")
        try await eventually("the third request has begun") { listener.reception.stopWaiterCount == 2 }
        #expect(listener.isListening)
        listener.beginClosing(timeout: nil)
        for client in idle { #expect(try await client.readLine() == nil) }
        try await busy.write("four\n")
        #expect(try await busy.readLine() == "three four")
        #expect(try await busy.readLine() == nil)
        try await running.value
        #expect(!listener.isListening)
        #expect(listener.reception.stopWaiterCount == 0)
    }

    @Test func anInterruptedReadLosesNoByte() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let lines = Findings<String?>()
        let running = Task {
            try await listener.run { socket in
                lines.add(try await listener.untilClosing { try await socket.readLine() })
                lines.add(try await socket.readLine())
            }
        }
        let client = try await client(of: listener)
        try await client.write("he")
        try await eventually("a read is pending") { listener.reception.stopWaiterCount == 1 }
        listener.beginClosing(timeout: nil)
        try await eventually("the read is interrupted") { lines.all == [nil] }
        try await client.write("llo\n")
        try await running.value
        #expect(lines.all == [nil, "hello"])
    }

    @Test func theResultOfTheBodyCountsEvenIfItIsLate() async throws {
        struct Broken: Error {}
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        #expect(try await listener.untilClosing { 7 } == 7)
        await #expect(throws: Broken.self) { try await listener.untilClosing { () -> Int? in throw Broken() } }
        let late = try await listener.untilClosing {
            listener.beginClosing(timeout: nil)
            // Ends when the task is cancelled.
            for await _ in AsyncStream<Void>.makeStream().stream {}
            return 8
        }
        #expect(late == 8)
        let isCalled = Findings<Bool>()
        let never: Int? = try await listener.untilClosing {
            isCalled.add(true)
            return 9
        }
        #expect(never == nil)
        #expect(isCalled.all.isEmpty)
        #expect(listener.reception.stopWaiterCount == 0)
    }

    /// It must not look like a close, after which a loop would end without an error.
    @Test func theCallersCancellationIsAnError() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let (socket, _) = try await connectedSocket([])
        let task = Task { try await listener.untilClosing { try await socket.peek(exactly: 1) } }
        try await eventually("it waits") { listener.reception.stopWaiterCount == 1 }
        task.cancel()
        #expect(await task.outcome == .cancelled)
        #expect(listener.reception.stopWaiterCount == 0)
        await listener.close()
        // The same while the listener is closing, as when the time for closing has expired.
        let late = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await listener.untilClosing { 7 }
        }
        #expect(await late.outcome == .cancelled)
    }

    @Test func peersOfADatagramListenerAreInterruptedToo() async throws {
        let listener = try DatagramListener(address: .loopback())
        let running = Task {
            try await listener.run { peer in
                while let datagram = try await listener.untilClosing({ try await peer.receive() }) {
                    try await peer.send(datagram.data)
                }
            }
        }
        let client = AsyncUDPSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        try await client.send(Data("hello".utf8))
        #expect(try await client.receive().data == Data("hello".utf8))
        listener.beginClosing(timeout: nil)
        try await running.value
        client.disconnect()
    }
}
