import Dispatch
import Logging
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A blocked event loop is logged, with the cause.
@Suite(.timeLimit(.patient)) struct LoopWatchTests {
    /// Blocks its loop until `release` is signalled.
    private final class Handler: EventHandler {
        let release = DispatchSemaphore(value: 0)
        let name: String

        init(_ name: String) {
            self.name = name
            LogRecorder.expect("test", name)
        }

        var logMetadata: Logger.Metadata { ["test": "\(name)"] }

        func handle(_ events: LoopEvents) { release.wait() }
    }

    private static func warnings(_ key: String, _ value: String) -> [LogRecorder.Line] {
        LogRecorder.lines(key, value).filter { $0.message.contains("is blocked") }
    }

    private func warning(_ key: String, _ value: String) async throws -> LogRecorder.Line {
        try await eventually("the log tells of \(value)") { !Self.warnings(key, value).isEmpty }
        return Self.warnings(key, value)[0]
    }

    @Test func aCallbackThatHoldsItsLoopIsNamed() async throws {
        let loop = try SocketEventLoop(label: "held")
        let handler = Handler("a callback")
        let registration = loop.register(handler)
        loop.resume(registration)
        let line = try await warning("test", "a callback")
        #expect(line.level == .warning)
        #expect(line.metadata["seconds"].flatMap { Int("\($0)") }.map { (1...60).contains($0) } == true)
        handler.release.signal()
        loop.deregister(registration)
    }

    /// Even if the connection belongs to a different loop than its task.
    @Test func aTaskThatHoldsItsLoopIsNamedByItsConnection() async throws {
        let pair = try await SocketPair()
        let peer = try #require(pair.client.connectedAddress)
        LogRecorder.expect("peer", "\(peer)")
        let release = DispatchSemaphore(value: 0)
        let loop = try SocketEventLoop(label: "held")
        try await pair.server.write("x")
        let task = Task(executorPreference: loop) {
            _ = try await pair.client.read()
            Self.block(release)
        }
        let line = try await warning("peer", "\(peer)")
        #expect(line.level == .warning)
        release.signal()
        try await task.value
    }

    @Test func aLoopThatIsHeldIsReportedOnceForEachTime() async throws {
        let loop = try SocketEventLoop(label: "held")
        let (first, second) = (Handler("once"), Handler("afterwards"))
        let registrations = (loop.register(first), loop.register(second))
        loop.resume(registrations.0)
        _ = try await warning("test", "once")
        first.release.signal()
        loop.resume(registrations.1)
        _ = try await warning("test", "afterwards")
        #expect(Self.warnings("test", "once").count == 1)
        second.release.signal()
        loop.deregister(registrations.0)
        loop.deregister(registrations.1)
    }

    /// While it is still blocked, another loop is blocked for long enough to be reported.
    @Test func aLoopThatIsHeldOnIsReportedOnce() async throws {
        let handlers = ["held on", "held later", "held last"].map { Handler($0) }
        var loops: [(SocketEventLoop, LoopRegistration)] = []
        for handler in handlers {
            let loop = try SocketEventLoop(label: "held")
            let registration = loop.register(handler)
            loops.append((loop, registration))
            loop.resume(registration)
            _ = try await warning("test", handler.name)
        }
        for handler in handlers {
            #expect(Self.warnings("test", handler.name).count == 1)
            handler.release.signal()
        }
        for (loop, registration) in loops { loop.deregister(registration) }
    }

    /// Until it is running again. If all loops are blocked, they are used in turn.
    @Test func aLoopThatIsHeldUpGetsNoNewConnection() async throws {
        let handlers = ["passed over", "passed over later"].map { Handler($0) }
        let loops = try handlers.map { _ in try SocketEventLoop(label: "held") }
        let registrations = zip(loops, handlers).map { $0.register($1) }
        var rotation = LoopRotation(loops)
        #expect((0..<4).map { _ in rotation.next() === loops[0] } == [false, true, false, true])
        loops[0].resume(registrations[0])
        _ = try await warning("test", "passed over")
        #expect((0..<4).allSatisfy { _ in rotation.next() === loops[1] })
        loops[1].resume(registrations[1])
        _ = try await warning("test", "passed over later")
        #expect((0..<4).map { _ in rotation.next() === loops[0] } == [true, false, true, false])
        handlers[0].release.signal()
        try await eventually("it has come round") { !loops[0].isHeldUp }
        #expect((0..<4).allSatisfy { _ in rotation.next() === loops[0] })
        handlers[1].release.signal()
        try await eventually("the other has come round") { !loops[1].isHeldUp }
        for (loop, registration) in zip(loops, registrations) { loop.deregister(registration) }
    }

    private static func block(_ release: DispatchSemaphore) { release.wait() }
}
