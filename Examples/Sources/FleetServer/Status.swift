import AsyncSockets
import Foundation
internal import Synchronization

/// Counts the connections that the process has served.
final class Counter: Sendable {
    private let counts = Mutex((served: 0, resumed: 0))

    var served: Int { counts.withLock(\.served) }
    var resumed: Int { counts.withLock(\.resumed) }

    func add(isResumed: Bool) {
        counts.withLock { counts in
            counts.served += 1
            if isResumed { counts.resumed += 1 }
        }
    }
}

/// The state of the process, for monitoring.
struct Status: Encodable {
    let process: Int32
    let served: Int
    let resumed: Int
    /// How long each event loop takes to start a job, in milliseconds.
    let latencies: [Double]
    let tls: ServerSnapshot
    let startTLS: ServerSnapshot

    static func measured(_ counter: Counter, _ tls: SocketListener, _ startTLS: SocketListener) async -> Status {
        let latencies = await SocketEventLoop.latencies().map { $0 / .milliseconds(1) }
        return Status(
            process: getpid(), served: counter.served, resumed: counter.resumed, latencies: latencies, tls: tls.snapshot,
            startTLS: startTLS.snapshot)
    }

    var json: Data {
        get throws { try JSONEncoder().encode(self) }
    }
}
