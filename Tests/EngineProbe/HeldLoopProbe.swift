internal import AsyncSockets
internal import Dispatch
internal import Foundation
internal import SocketBuffers
internal import SocketCore
internal import SocketTestSupport

/// A task that blocks its loop for a long time, and connections established meanwhile.
enum HeldLoopProbe {
    private static let count = 4 * SocketEventLoop.usableProcessors

    static func run() throws {
        guard SocketEventLoop.usableProcessors > 1 else { return print("there is one loop, and all wait for it") }
        try waitForTask {
            try await connectBesideAHeldLoop()
        }
    }

    private static func connectBesideAHeldLoop() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let running = Task {
            try await listener.run { for try await bytes in $0.chunks { try await $0.write(bytes) } }
        }
        var established: [AsyncSocket] = []
        for _ in 0..<count { established.append(try await connect(to: listener.localPort)) }

        let held = try SocketEventLoop.next()
        let release = DispatchSemaphore(value: 0)
        let holder = Task(executorPreference: held) { block(release) }
        try await eventually("the loop is held up") { held.isHeldUp }
        let clock = ContinuousClock()
        var worst = Duration.zero
        for _ in 0..<count {
            let time = try await clock.measure { _ = try await connect(to: listener.localPort) }
            worst = max(worst, time)
        }
        guard held.isHeldUp else { throw ProbeFailure(description: "the loop is no longer held up") }
        release.signal()
        await holder.value
        // The loop's own connections have waited, and continue.
        let waited = try await clock.measure { for socket in established { try await ping(socket) } }
        print("beside a held loop: a new connection and an echo \(worst); \(count) that go on afterwards \(waited)")
        await listener.close(timeout: .milliseconds(10))
        try await running.value
    }

    private static func connect(to port: UInt16) async throws -> AsyncSocket {
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: port)
        try await ping(socket)
        return socket
    }

    private static func ping(_ socket: AsyncSocket) async throws {
        try await socket.write("ping\n")
        guard try await socket.readLine() == "ping" else { throw ProbeFailure(description: "another answer came") }
    }

    private static func block(_ release: DispatchSemaphore) { release.wait() }
}
