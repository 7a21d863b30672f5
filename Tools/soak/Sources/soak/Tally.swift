import AsyncSockets
import CMalloc
import Foundation
import Synchronization

/// A fault that the run plants to prove that it is reported.
enum Plant: String {
    case none
    /// One wrong byte in a reply or request, now and then.
    case byte
    /// The same in the peers, which plant it.
    case peerByte = "peer-byte"
    /// A descriptor that is not closed.
    case descriptor
    /// Memory that is not released.
    case memory
    /// A connection that is not closed.
    case connection
    /// An event loop that is blocked for three seconds.
    case stall
    /// A thread that does not exit.
    case thread
}

/// Counts what happens, and prints it as JSON, one line per second.
final class Tally: Sendable {
    struct Counts: Encodable {
        var live = 0
        /// The number of open connections that have a descriptor.
        var sockets = 0
        var made = 0
        var exchanges = 0
        var bytes = 0
        var resumed = 0
        var secured = 0
        var cancelled = 0
        var ends: [String: Int] = [:]
        var faults = 0
    }

    /// The time limit for each step of a connection, in seconds.
    static let limit = 120.0

    let plant: Plant
    private let counts = Mutex(Counts())
    private let stopping = Mutex(false)
    /// The number of messages in which a wrong byte could have been planted.
    private let messages = Mutex(0)
    private let kept = Mutex<[Data]>([])
    private let clients = Mutex<[any Sendable]>([])

    init(plant: Plant) {
        self.plant = plant
    }

    var isStopping: Bool { stopping.withLock { $0 } }
    var live: Int { counts.withLock(\.live) }

    /// Waits for a time, but at most a few seconds once the run stops.
    func sleep(_ time: Duration) async throws {
        let end = ContinuousClock.now + time
        while !isStopping, ContinuousClock.now < end {
            try await Task.sleep(for: min(.seconds(5), end - ContinuousClock.now))
        }
    }

    /// Keeps a client until the process exits. Sockets do not retain their delegates.
    func retain(_ client: DelegateClient) { clients.withLock { $0.append(client) } }

    func stop() { stopping.withLock { $0 = true } }

    func opened(hasDescriptor: Bool = true) {
        let made = counts.withLock { counts in
            counts.live += 1
            if hasDescriptor { counts.sockets += 1 }
            counts.made += 1
            return counts.made
        }
        if plant == .descriptor, made % 50 == 0 { _ = dup(STDIN_FILENO) }
        if plant == .thread, made % 100 == 0 { Thread.detachNewThread { Thread.sleep(forTimeInterval: 36_000) } }
    }

    func closed(hasDescriptor: Bool = true) {
        counts.withLock { counts in
            counts.live -= 1
            if hasDescriptor { counts.sockets -= 1 }
        }
    }

    func secured(_ session: TLSSession?) {
        counts.withLock { counts in
            counts.secured += 1
            if session?.isResumed == true { counts.resumed += 1 }
        }
    }

    func cancelled() { counts.withLock { $0.cancelled += 1 } }

    /// Counts an exchange that is complete or was cut off.
    func exchanged(_ exchange: Exchange) {
        let count = counts.withLock { counts in
            counts.exchanges += 1
            counts.bytes += exchange.requestLength + exchange.sentLength
            counts.ends["\(exchange.end)", default: 0] += 1
            return counts.exchanges
        }
        if plant == .memory { kept.withLock { $0.append(Data(count: 2_000)) } }
        if plant == .stall, count == 3_000 { Thread.sleep(forTimeInterval: 3) }
    }

    /// Returns the bytes to send, which are wrong if the run plants wrong bytes.
    func planted(_ bytes: Data) -> Data {
        guard plant == .byte, messages.withLock({ count in count += 1; return count }) % 1_000 == 0 else { return bytes }
        var bytes = Data(bytes)
        bytes[bytes.count / 2] ^= 1
        return bytes
    }

    func fault(_ text: String) {
        let count = counts.withLock { counts in
            counts.faults += 1
            return counts.faults
        }
        if count <= 50 { print(["fault": text]) }
    }

    func report(_ latencies: [Duration]) {
        struct Report: Encodable {
            let counts: Counts
            let latencies: [Double]
            /// The memory that malloc has allocated and not freed, in MiB. Unlike the resident memory, it is
            /// independent of how free memory is fragmented.
            let allocated: Double
        }
        print(
            Report(
                counts: counts.withLock { $0 }, latencies: latencies.map { $0 / .milliseconds(1) },
                allocated: allocated_bytes() / 1_048_576))
    }

    /// Prints a line without buffering, even to a pipe.
    func print(_ message: some Encodable) {
        do {
            try FileHandle.standardOutput.write(contentsOf: JSONEncoder().encode(message) + Data("\n".utf8))
        } catch {
            exit(EXIT_FAILURE)
        }
    }
}

extension AsyncSocketError {
    /// Whether the peer has reset the connection.
    var isReset: Bool { code == .connectionReset }
    /// Whether the stream is closed or broken.
    var isEnd: Bool { isReset || code == .closedByPeer || code == .truncated || code == .closed }
}
