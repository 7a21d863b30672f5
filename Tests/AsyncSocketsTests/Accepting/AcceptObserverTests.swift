import AsyncSocketsTesting
import Dispatch
import FoundationEssentials
import Logging
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Events that a listener reports to its observer.
@Suite(.timeLimit(.patient)) struct AcceptObserverTests {
    @Test func aListenerThatReachesItsLimitPausesOnceUntilItGoesOn() async throws {
        let observer = ObservationRecorder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.observer = observer
        listener.logger = LogRecorder.logger(of: "pauses")
        listener.maximumConnections = 1
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        let clients = try (0..<3).map { _ in try RawSocket.sending(to: address) }
        for _ in clients {
            let socket = try await recorder.accepted()
            guard case .began(let connection) = await observer.next(), connection.role == .server,
                case .paused(let pause) = await observer.next()
            else {
                Issue.record("no pause")
                return
            }
            #expect(pause == AcceptPause(reason: .connectionLimit, retryDelay: nil, listener: address))
            // Another connection comes during the pause.
            try RawSocket.connected(to: address).resetWhenClosed()
            socket.removeDelegate()
            socket.disconnect()
            guard case .ended = await observer.next() else {
                Issue.record("no end")
                return
            }
        }
        withExtendedLifetime(clients) {}
    }

    /// Otherwise a program that reaches the default limit would stop accepting without a trace.
    @Test(.unmodifiedKernel) func reachingTheLimitIsLoggedOnceAMinute() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.logger = LogRecorder.logger(of: "limit")
        listener.maximumConnections = 1
        let observer = ObservationRecorder()
        listener.observer = observer
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        let clients = try (0..<3).map { _ in try RawSocket.sending(to: address) }
        for _ in clients {
            let socket = try await recorder.accepted()
            while case .began = await observer.next() {}
            socket.removeDelegate()
            socket.disconnect()
            guard case .ended = await observer.next() else {
                Issue.record("no end")
                return
            }
        }
        let lines = LogRecorder.lines("test", "limit").filter { $0.level > .info }
        #expect(lines.map(\.level) == [.warning])
        #expect(lines.first?.metadata["reason"] == "maximumConnections reached")
        #expect(lines.first?.metadata["limit"] == "1")
        #expect(lines.first?.metadata["listener"] == "\(address)")
        withExtendedLifetime(clients) {}
    }

    @Test func aConnectionThatNoOneKeepsIsLostAndHasAnEndToo() async throws {
        final class Forgetful: AsyncSocketDelegate, Sendable {}
        let observer = ObservationRecorder()
        let delegate = Forgetful()
        let listener = AsyncSocket(inlineDelegate: delegate)
        listener.observer = observer
        listener.logger = LogRecorder.logger(of: "not kept")
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let told = await observer.untilEnds(1)
        guard told.count == 3, case .lost(try client.localAddress, .notKept) = told.first else {
            Issue.record("\(told)")
            return
        }
        // The listener also logs failures of accept(2).
        let warnings = LogRecorder.warnings(of: "not kept").filter { $0.message.contains("was released") }
        #expect(warnings.count == 1)
        withExtendedLifetime(delegate) {}
    }

    /// Another thread releases the socket after the listener has checked it and before the connection begins.
    @Test func aSocketThatIsReleasedBeforeItBeginsIsLostAndHasAnEndToo() async throws {
        let observer = ObservationRecorder()
        let loop = try SocketEventLoop()
        let arrived = Locked<AcceptedConnection?>(nil)
        let setup = Listener.Setup(
            loop: loop, options: SocketOptionSet(), quota: AcceptQuota(loop: loop), logger: AsyncSocket().logger,
            observer: nil,
            accepted: { descriptor, peer, listener in
                let accepted = AcceptedConnection(descriptor: descriptor, peer: peer, listener: listener)
                arrived.withLock { $0 = accepted }
            }, ended: { _ in })
        let listener = try Listener.listen(on: [.loopback()], setup)
        listener.start()
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        try await eventually("it has arrived") { arrived.withLock { $0 != nil } }
        let accepted = try #require(arrived.withLock { $0.take() })
        let model = AsyncSocket()
        model.observer = observer
        var socket: AsyncSocket? = try model.makeChild(nil)
        let connection = try #require(try socket?.prepare(accepted))
        socket = nil
        connection.begin(with: accepted.descriptor)
        let told = await observer.untilEnds(1)
        guard told.count == 3, case .lost(try client.localAddress, .notKept) = told.first else {
            Issue.record("\(told)")
            return
        }
        listener.close()
    }

    @Test func aConnectionForAListenerWithoutADelegateIsLost() async throws {
        let observer = ObservationRecorder()
        let recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: DispatchQueue(label: "delegate"))
        listener.observer = observer
        listener.logger = LogRecorder.logger(of: "without a delegate")
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        listener.removeDelegate()
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        guard case .lost(try client.localAddress, .noDelegate) = await observer.next() else {
            Issue.record("not lost")
            return
        }
        let losses = LogRecorder.warnings(of: "without a delegate").filter { $0.message.hasPrefix("an accepted connection") }
        #expect(losses.count == 1)
    }

    @Test func anAcceptedSocketMayGetAnObserverOfItsOwn() async throws {
        let (observer, ofChild) = (ObservationRecorder(), ObservationRecorder())
        let recorder = Recorder { _, told in
            if case .accepted(let socket) = told { socket.observer = ofChild }
        }
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.observer = observer
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        // Closed by the peer, because a `disconnect()` here could run before the connection begins.
        let child = try await recorder.accepted()
        client.finish()
        let told = await ofChild.untilEnds(1)
        #expect(told.about(.server).count == 2)
        #expect(told.count == 2)
        withExtendedLifetime((client, child, listener)) {}
    }
}
