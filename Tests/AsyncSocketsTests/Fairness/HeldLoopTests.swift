import AsyncSocketsTesting
import Dispatch
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A shutdown while code on a loop takes long. `BusyProbe` covers connections whose data arrives faster than
/// it is handled.
@Suite(.timeLimit(.patient)) struct HeldLoopTests {
    /// The timer of a shutdown does not run on the loop, and neither does the cancellation of tasks.
    ///
    /// Other tests may use the blocked loop, so nothing here may wait for threads shared with them.
    @Test(.ownThreads) func aShutdownCutsWhileALoopIsHeld() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let release = DispatchSemaphore(value: 0)
        defer { release.signal() }
        let (reading, cancelled) = (try TestSignal(), try TestSignal())
        let loop = listener.reception.loop
        let running = Task {
            try await listener.run(executor: .custom(TestThreads())) { socket in
                _ = try await socket.readLine()
                await withTaskCancellationHandler {
                    reading.fire()
                    _ = try? await socket.read()
                } onCancel: {
                    cancelled.fire()
                }
            }
        }
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        try await client.write("hello\n")
        try await reading.wait(within: .patient)
        // Blocks everything else on the accepting loop.
        let holder = Task(executorPreference: loop) { release.wait(atMost: .seconds(60)) }
        listener.beginClosing(timeout: .milliseconds(10))
        try await cancelled.wait(within: .patient)
        release.signal()
        #expect(await holder.value == .success)
        try await running.value
        client.disconnect()
    }
}

extension DispatchSemaphore {
    fileprivate func wait(atMost seconds: DispatchTimeInterval) -> DispatchTimeoutResult { wait(timeout: .now() + seconds) }
}
