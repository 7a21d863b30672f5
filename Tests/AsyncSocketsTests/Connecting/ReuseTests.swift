import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Consecutive connections on one socket.
@Suite(.timeLimit(.patient)) struct ReuseTests {
    /// Listeners with different greetings, so that connections can be distinguished.
    private final class Greeter: Sendable {
        let listener: AsyncSocket
        private let recorder: Recorder

        init(_ greeting: String) throws {
            recorder = Recorder { _, told in
                if case .accepted(let socket) = told { socket.write(Data(greeting), withTimeout: .patient, tag: 0) }
            }
            listener = AsyncSocket(inlineDelegate: recorder)
            try listener.accept(onInterface: "127.0.0.1", port: 0)
        }

        var port: UInt16 { listener.localPort }
    }

    /// The delegate queue is blocked while the first connection reads data, closes and is replaced. Its data
    /// must not be delivered afterwards. The original delivered it, to the delegate at the time of the read.
    @Test func d11OnlyTheDisconnectOfAReplacedConnectionIsReported() async throws {
        let (first, second) = (try Greeter("first"), try Greeter("second"))
        let recorder = Recorder()
        let queue = DispatchQueue(label: "delegate")
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: first.port, withTimeout: .patient)
        try await recorder.connected()
        queue.suspend()
        socket.readData(toLength: 5, withTimeout: .patient, tag: 1)
        socket.readData(toLength: 5, withTimeout: .patient, tag: 2)
        try await eventually("the second read is current") { socket.readProgress?.tag == 2 }
        socket.disconnect()
        try socket.connect(toHost: "127.0.0.1", onPort: second.port, withTimeout: .patient)
        socket.readData(toLength: 6, withTimeout: .patient, tag: 3)
        queue.resume()
        #expect(try await recorder.disconnected() == nil)
        try await recorder.connected()
        #expect(try await recorder.readText() == "second")
    }

    /// All within one callback. While a message from another thread is pending, the old connection is closed
    /// only after the callback, but the socket already has the new one.
    @Test(arguments: [false, true])
    func whatACallbackQueuesAfterReconnectingGoesToTheNewConnection(messageWaits: Bool) async throws {
        let first = try Greeter("first")
        let second = try ScriptedPeer.listening([.expect("to the second"), .send("answer")])
        let recorder = Recorder { socket, told in
            guard case .read(_, tag: 1) = told else { return }
            if messageWaits {
                let hasPosted = DispatchSemaphore(value: 0)
                Thread.detachNewThread {
                    socket.readData(toLength: 1, withTimeout: .patient, tag: 2)
                    hasPosted.signal()
                }
                hasPosted.wait()
            }
            socket.disconnect()
            try? socket.connect(toHost: "127.0.0.1", onPort: second.port, withTimeout: .patient)
            socket.write(Data("to the second"), withTimeout: .patient, tag: 3)
            socket.readData(toLength: 6, withTimeout: .patient, tag: 4)
        }
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: first.port, withTimeout: .patient)
        try await recorder.connected()
        socket.readData(toLength: 5, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readText() == "first")
        #expect(try await recorder.disconnected() == nil)
        try await recorder.connected()
        #expect(try await recorder.wrote() == 3)
        #expect(try await recorder.readText() == "answer")
    }

    @Test func d11PendingEventsAreDeliveredToTheNewDelegate() async throws {
        let greeter = try Greeter("hello")
        let (old, new) = (Recorder(), Recorder())
        let queue = DispatchQueue(label: "delegate")
        let socket = AsyncSocket(delegate: old, delegateQueue: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: greeter.port, withTimeout: .patient)
        try await old.connected()
        queue.suspend()
        socket.readData(toLength: 5, withTimeout: .patient, tag: 1)
        socket.readData(toLength: 5, withTimeout: .patient, tag: 2)
        try await eventually("the second read is current") { socket.readProgress?.tag == 2 }
        socket.changeDelegate(to: new)
        queue.resume()
        #expect(try await new.readText() == "hello")
        #expect(old.unread.isEmpty)
    }

    @Test(arguments: Link.Delivery.allCases)
    func aSocketCanReconnectImmediatelyAfterDisconnect(_ delivery: Link.Delivery) async throws {
        let greeter = try Greeter("hello")
        let recorder = Recorder()
        let socket = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        try socket.connect(toHost: "127.0.0.1", onPort: greeter.port, withTimeout: .patient)
        try await recorder.connected()
        for _ in 0..<100 {
            socket.disconnect()
            #expect(socket.isDisconnected)
            #expect(!socket.isConnected)
            try socket.connect(toHost: "127.0.0.1", onPort: greeter.port, withTimeout: .patient)
            #expect(!socket.isDisconnected)
            #expect(try await recorder.disconnected() == nil)
            try await recorder.connected()
        }
        socket.readData(toLength: 5, withTimeout: .patient, tag: -1)
        #expect(try await recorder.readText() == "hello")
    }

    /// Many threads start attempts on one socket and immediately abandon them. Each attempt ends exactly
    /// once.
    @Test func everyConnectionThatBeganEndsOnce() async throws {
        let greeter = try Greeter("hello")
        let ends = Locked(0)
        let recorder = Recorder { _, told in
            if case .disconnected = told { ends.withLock { $0 += 1 } }
        }
        let socket = AsyncSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
        let begun = await withTaskGroup(of: Int.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    var begun = 0
                    for _ in 0..<250 {
                        if (try? socket.connect(toHost: "127.0.0.1", onPort: greeter.port, withTimeout: .patient)) != nil {
                            begun += 1
                        }
                        socket.disconnect()
                    }
                    return begun
                }
            }
            return await group.reduce(0, +)
        }
        #expect(begun > 0)
        for _ in 0..<begun { #expect(try await recorder.disconnected() == nil) }
        #expect(ends.withLock { $0 } == begun)
    }
}
