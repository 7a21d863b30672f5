internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Foundation
internal import SocketBuffers
internal import SocketCore
internal import SocketTestSupport

/// Connections whose data arrives faster than it is handled, two on each loop, and their effect on the loops'
/// other work: other connections, a new connection, a deadline and a shutdown.
enum BusyProbe {
    private static let count = 2 * SocketEventLoop.usableProcessors

    /// - Parameter way: How the busy connections read or write.
    static func run(_ way: String) throws {
        try waitForTask {
            for yields in [false, true] { try await Trial(way: way, yields: yields).run() }
        }
    }

    private final class Trial: Sendable {
        private let way: String
        private let yields: Bool
        private let rounds = Locked(0)
        private let ended = Locked(0)

        init(way: String, yields: Bool) {
            self.way = way
            self.yields = yields
        }

        func run() async throws {
            let listener = try SocketListener(port: 0, interface: "127.0.0.1")
            let running = Task { try await listener.run { try await self.serve($0) } }
            var neighbours: [AsyncSocket] = []
            for _ in 0..<count { neighbours.append(try await Self.neighbour(listener.localPort)) }
            for _ in 0..<count { try flood(listener.localPort) }
            try await eventually("all are busy") { rounds.withLock { $0 } >= 20 * count }

            let clock = ContinuousClock()
            var worst = Duration.zero
            for _ in 0..<10 {
                for neighbour in neighbours { worst = max(worst, try await clock.measure { try await Self.ping(neighbour) }) }
            }
            var late = neighbours[0]
            let connecting = try await clock.measure { late = try await Self.neighbour(listener.localPort) }
            let deadline = await clock.measure { await Self.timeOut(late) }
            guard ended.withLock({ $0 }) == 0 else { throw ProbeFailure(description: "the busy ones had to end first") }
            let stopping = await clock.measure { await listener.close(timeout: .milliseconds(10)) }
            try await running.value
            guard ended.withLock({ $0 }) == count else { throw ProbeFailure(description: "a busy one is not over") }
            print(
                "\(way)\(yields ? ", yielding" : ""): echo \(worst), new connection \(connecting),",
                "deadline of 10 ms \(deadline), shutdown within 10 ms \(stopping)")
        }

        // MARK: - The server

        private nonisolated(nonsending) func serve(_ socket: AsyncSocket) async throws {
            guard try await socket.readLine() == "busy" else {
                for try await bytes in socket.chunks { try await socket.write(bytes) }
                return
            }
            defer { ended.withLock { $0 += 1 } }
            try await beBusy(socket)
        }

        private nonisolated(nonsending) func beBusy(_ socket: AsyncSocket) async throws {
            let bytes = [UInt8](repeating: 0x78, count: 16384)
            let end = Data("\n".utf8)
            switch way {
            case "chunks": for try await _ in socket.chunks { await handle() }
            case "read": while try await socket.read() != nil { await handle() }
            case "read-exactly": while try await !socket.read(exactly: 1000).isEmpty { await handle() }
            case "read-until": while try await !socket.read(until: end).isEmpty { await handle() }
            case "lines": for try await _ in socket.lines { await handle() }
            case "frames": for try await _ in socket.frames(Delimited(by: end)) { await handle() }
            case "next-bytes": while try await socket.withNextBytes({ $0.byteCount }) != nil { await handle() }
            case "write": while true { try await writeAndHandle { try await socket.write(bytes) } }
            case "write-span": while true { try await writeAndHandle { try await socket.write(bytes.span.bytes) } }
            default: throw ProbeFailure(description: "say how: \(way)")
            }
        }

        private nonisolated(nonsending) func writeAndHandle(_ write: nonisolated(nonsending) () async throws -> Void) async throws
        {
            try await write()
            await handle()
        }

        /// Takes longer than it takes a chunk to arrive.
        private nonisolated(nonsending) func handle() async {
            let end = ContinuousClock.now + .microseconds(300)
            while ContinuousClock.now < end {}
            rounds.withLock { $0 += 1 }
            if yields { await Task.yield() }
        }

        // MARK: - The clients

        /// Sends or receives as much as possible for at most a minute.
        private func flood(_ port: UInt16) throws {
            let socket = try RawSocket.connected(to: .loopback(port: port))
            try socket.send("busy\n")
            let lines = Array(String(repeating: String(repeating: "x", count: 99) + "\n", count: 600).utf8)
            let isReader = way.hasPrefix("write")
            Thread.detachNewThread {
                let end = ContinuousClock.now + .seconds(60)
                while ContinuousClock.now < end {
                    if isReader {
                        guard let bytes = try? socket.receive(), !bytes.isEmpty else { return }
                    } else {
                        guard (try? socket.send(lines)) != nil else { return }
                    }
                }
            }
        }

        private static func neighbour(_ port: UInt16) async throws -> AsyncSocket {
            let socket = AsyncSocket()
            try await socket.connect(to: "127.0.0.1", port: port)
            try await socket.write("hello\n")
            try await ping(socket)
            return socket
        }

        private static func ping(_ socket: AsyncSocket) async throws {
            try await socket.write("ping\n")
            guard try await socket.readLine() == "ping" else { throw ProbeFailure(description: "another answer came") }
        }

        /// A read for which no data arrives.
        private static func timeOut(_ socket: AsyncSocket) async {
            _ = try? await socket.read(timeout: .milliseconds(10))
        }
    }
}
