import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// A socket alternately connects and listens. No event of the next use is delivered before the end of the
/// previous one.
@Suite(.timeLimit(.patient)) struct OccupationTests {
    /// A one-letter abbreviation for an event.
    private static func letter(_ told: Told) -> String? {
        switch told {
        case .connected: "c"
        case .disconnected: "e"
        case .accepted: "a"
        default: nil
        }
    }

    /// Twenty-four writes complete together, which is more than one delivery contains.
    private func busySocket(
        _ order: Locked<String>, to port: UInt16, _ delivery: Link.Delivery,
        whenBusy act: @escaping @Sendable (AsyncSocket) -> Void
    ) throws -> (AsyncSocket, Recorder) {
        let hasActed = Locked(false)
        let recorder = Recorder { socket, told in
            if let letter = Self.letter(told) { order.withLock { $0 += letter } }
            guard case .wrote = told,
                !hasActed.withLock({ hasActed in
                    defer { hasActed = true }; return hasActed
                })
            else { return }
            act(socket)
        }
        let socket = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        try socket.connect(toHost: "127.0.0.1", onPort: port)
        for tag in 0..<24 { socket.write(Data("x"), tag: tag) }
        return (socket, recorder)
    }

    /// Waits for that many letters and for events delivered with them.
    private func wait(for count: Int, in order: Locked<String>) async throws -> String {
        try await eventually("\(count) things were told: \(order.withLock { $0 })") { order.withLock { $0.count } >= count }
        return order.withLock { $0 }
    }

    @Test(arguments: Link.Delivery.allCases)
    func endsAreToldInOrderWhenConnectingTwiceInACallback(_ delivery: Link.Delivery) async throws {
        for _ in 0..<20 {
            let atListener = Recorder()
            let listener = AsyncSocket(inlineDelegate: atListener)
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            let port = listener.localPort
            let order = Locked("")
            let (socket, recorder) = try busySocket(order, to: port, delivery) { socket in
                socket.disconnect()
                try? socket.connect(toHost: "127.0.0.1", onPort: port)
                socket.disconnect()
                try? socket.connect(toHost: "127.0.0.1", onPort: port)
            }
            #expect(try await wait(for: 4, in: order) == "ceec")
            withExtendedLifetime((socket, recorder, atListener)) {}
        }
    }

    @Test(arguments: Link.Delivery.allCases)
    func aListeningIsToldOfAfterTheEndOfAConnection(_ delivery: Link.Delivery) async throws {
        for _ in 0..<20 {
            let atListener = Recorder()
            let listener = AsyncSocket(inlineDelegate: atListener)
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            let order = Locked("")
            let clients = Locked<[RawSocket]>([])
            let (socket, recorder) = try busySocket(order, to: listener.localPort, delivery) { socket in
                socket.disconnect()
                try? socket.accept(onInterface: "127.0.0.1", port: 0)
                guard let address = socket.localAddress, let client = try? RawSocket.connected(to: address) else { return }
                clients.withLock { $0.append(client) }
            }
            #expect(try await wait(for: 3, in: order) == "cea")
            withExtendedLifetime((socket, recorder, atListener, clients)) {}
        }
    }

    @Test(arguments: Link.Delivery.allCases)
    func aConnectionIsToldOfAfterTheEndOfAListening(_ delivery: Link.Delivery) async throws {
        for _ in 0..<100 {
            let atListener = Recorder()
            let listener = AsyncSocket(inlineDelegate: atListener)
            try listener.accept(onInterface: "127.0.0.1", port: 0)
            let order = Locked("")
            let recorder = Recorder { _, told in
                if let letter = Self.letter(told) { order.withLock { $0 += letter } }
            }
            let socket = AsyncSocket(recorder, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
            try socket.accept(onInterface: "127.0.0.1", port: 0)
            socket.disconnect()
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort)
            #expect(try await wait(for: 2, in: order) == "ec")
            withExtendedLifetime((socket, recorder, atListener)) {}
        }
    }

    @Test(arguments: Link.Delivery.allCases)
    func manyOccupationsInARowEndInOrder(_ delivery: Link.Delivery) async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let port = listener.localPort
        let order = Locked("")
        let (socket, recorder) = try busySocket(order, to: port, delivery) { socket in
            for round in 0..<30 {
                socket.disconnect()
                if round % 3 == 2 {
                    try? socket.accept(onInterface: "127.0.0.1", port: 0)
                } else {
                    try? socket.connect(toHost: "127.0.0.1", onPort: port)
                }
            }
            socket.disconnect()
            try? socket.connect(toHost: "127.0.0.1", onPort: port)
        }
        #expect(try await wait(for: 33, in: order) == "c" + String(repeating: "e", count: 31) + "c")
        withExtendedLifetime((socket, recorder, atListener)) {}
    }

    /// The end of the old connection is not delivered yet because the delegate is busy. The new connection's
    /// timeout is already running.
    @Test func theTimeToConnectRunsFromTheCall() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let full = try FullBacklog()
        let queue = DispatchQueue(label: "delegate")
        let recorder = Recorder()
        let socket = AsyncSocket(delegate: recorder, delegateQueue: queue)
        try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort)
        try await recorder.connected()
        queue.suspend()
        socket.disconnect()
        try socket.connect(toHost: "127.0.0.1", onPort: full.port, withTimeout: 0.05)
        try await eventually("the time is over") { socket.isDisconnected }
        queue.resume()
        #expect(try await recorder.disconnected() == nil)
        #expect(try await recorder.disconnected()?.code == .connectTimeout)
        withExtendedLifetime(atListener) {}
    }
}
