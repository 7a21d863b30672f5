/// A kind of load on a server.
struct Workload: Sendable {
    enum Pace: Sendable {
        /// As set by the load generator's arguments.
        case own
        /// An open loop at this fraction of the slowest server's throughput in the named workload.
        case part(Double, of: String)
        /// Measures the memory of idle connections.
        case idle
        /// Consecutive large writes of the given number of bytes. Measures the server's memory minus the data
        /// itself.
        case watched(Int)
    }

    private(set) var name: String
    private(set) var title: String
    let mode: ServerMode
    var isSecure = false
    /// The load generator's arguments.
    let load: [String]
    private(set) var metrics: [Metric]
    var pace = Pace.own
    /// The number of tickets per full handshake, if the server has a setting for it. If it is at least one,
    /// only servers that support resumption are measured.
    var tickets = 0
    /// The number of processors that the server uses. If it is more than one, only servers that spread their
    /// connections over event loops or threads are measured.
    var processors = 1
    /// The servers to measure. nil means all that support the workload.
    var servers: [String]?

    /// The arguments for every run of the load generator.
    var loadArguments: [String] {
        // With `starttls`, the load generator itself starts TLS later.
        load + (isSecure && mode != .starttls ? ["--tls"] : [])
    }
}

extension Workload {
    /// The plaintext and the TLS variant of a workload.
    private static func both(_ make: (_ isSecure: Bool, _ name: String) -> Workload) -> [Workload] {
        [make(false, "plain"), make(true, "tls")]
    }

    static func echo(size: Int, connections: Int, isSecure: Bool) -> Workload {
        Workload(
            name: "\(isSecure ? "tls" : "plain")-echo-\(size)B-\(connections)",
            title: "\(isSecure ? "TLS" : "plain") echo, \(size) B, \(connections) connection\(connections == 1 ? "" : "s")",
            mode: .echo, isSecure: isSecure,
            load: ["--mode", "echo", "--size", "\(size)", "--connections", "\(connections)"],
            metrics: connections == 1 ? [.cpu, .p50, .p99] : [.cpu, .rate, .p50, .p99, .threads])
    }

    private static let echoes = [64, 1024].flatMap { size in
        [1, 64, 1000].flatMap { connections in both { secure, _ in echo(size: size, connections: connections, isSecure: secure) }
        }
    }

    /// Excludes SwiftNIO's tasks, because their low throughput would put little load on the other servers.
    private static let openLoopServers = Server.all.filter { !$0.isSpecial && !$0.isForCounting }.map(\.name)
        .filter { ![Server.nioWithTasks, Server.nioWithTasksOnLoop].contains($0) }

    /// An open loop: messages are due at a fixed rate, however late the replies are.
    private static func paced(_ percent: Int, connections: Int, isSecure: Bool) -> Workload {
        let closed = echo(size: 64, connections: connections, isSecure: isSecure)
        return Workload(
            name: "\(isSecure ? "tls" : "plain")-rate-\(percent)" + (connections == 64 ? "" : "-\(connections)"),
            title: "\(closed.title), at \(percent) % of the slowest server's rate", mode: .echo, isSecure: isSecure,
            load: closed.load, metrics: [.cpu, .p50, .p99, .p999], pace: .part(Double(percent) / 100, of: closed.name),
            servers: openLoopServers)
    }

    private static let latencies = [64, 1000].flatMap { connections in
        [25, 50, 75].flatMap { percent in
            both { secure, _ in paced(percent, connections: connections, isSecure: secure) }
        }
    }

    private static let bulks =
        both { isSecure, kind in
            Workload(
                name: "\(kind)-receive", title: "\(kind == "tls" ? "TLS" : kind): the server receives, 64 KiB writes",
                mode: .receive,
                isSecure: isSecure, load: ["--mode", "receive", "--size", "67108864"], metrics: [.bytesPerCPU, .speed])
        }
        + both { isSecure, kind in
            Workload(
                name: "\(kind)-send", title: "\(kind == "tls" ? "TLS" : kind): the server sends, 64 KiB writes", mode: .source,
                isSecure: isSecure, load: ["--mode", "source", "--size", "67108864"], metrics: [.bytesPerCPU, .speed])
        }
        + both { isSecure, kind in
            Workload(
                name: "\(kind)-send-200B", title: "\(kind == "tls" ? "TLS" : kind): the server sends, 200-byte writes",
                mode: .source,
                isSecure: isSecure, load: ["--mode", "source", "--size", "16777216", "--chunk", "200"],
                metrics: [.bytesPerCPU, .speed])
        }

    private static let lines =
        both { isSecure, kind in
            Workload(
                name: "\(kind)-lines",
                title: "\(kind == "tls" ? "TLS" : kind): lines of 80 bytes, 64 connections, 16 lines at once",
                mode: .lines, isSecure: isSecure,
                load: ["--mode", "lines", "--size", "80", "--connections", "64", "--pipeline", "16"], metrics: [.cpu, .rate])
        }
        + both { isSecure, kind in
            Workload(
                name: "\(kind)-delimiter",
                title: "\(kind == "tls" ? "TLS" : kind): one delimiter at the end of 1 MiB, in pieces of 256 bytes",
                mode: .count, isSecure: isSecure, load: ["--mode", "count", "--size", "1048576", "--piece", "256"],
                metrics: [.cpu, .rate])
        }

    /// One row for each kind of work, with the server on two processors.
    private static let spreads = [echo(size: 1024, connections: 64, isSecure: true), lines[0], churns[0], churns[1]].map {
        var result = $0
        result.processors = 2
        (result.name, result.title) = ("\($0.name)-on-2", "\($0.title), the server on two processors")
        result.metrics = [.cpu, .rate]
        result.servers = nil
        return result
    }

    private static let churns: [Workload] = [
        Workload(
            name: "accept", title: "accept, one byte echoed, close", mode: .echo,
            load: ["--mode", "connect", "--connections", "32"], metrics: [.cpu, .rate]),
        Workload(
            name: "handshake", title: "full TLS 1.3 handshake, one byte echoed, close (nio always sends two tickets, ours none)",
            mode: .echo, isSecure: true, load: ["--mode", "connect", "--connections", "32"], metrics: [.cpu, .rate],
            servers: Server.all.map(\.name)),
        Workload(
            name: "resumed",
            title: "resumed TLS 1.3 handshake, one byte echoed, close (nio always sends two tickets, the others one)",
            mode: .echo, isSecure: true, load: ["--mode", "connect", "--connections", "32", "--resume"], metrics: [.cpu, .rate],
            tickets: 1),
        Workload(
            name: "starttls", title: "a plain line and its reply, then a full TLS 1.3 handshake, one byte echoed, close",
            mode: .starttls, isSecure: true, load: ["--mode", "starttls", "--connections", "32"], metrics: [.cpu, .rate]),
    ]

    /// SwiftNIO has no DTLS.
    private static let datagrams: [Workload] =
        [64, 1200].flatMap { size in
            [1, 64].map { peers in
                Workload(
                    name: "udp-echo-\(size)B-\(peers)", title: "UDP echo, \(size) B, \(peers) peer\(peers == 1 ? "" : "s")",
                    mode: .udpEcho, load: ["--mode", "udp-echo", "--size", "\(size)", "--connections", "\(peers)"],
                    metrics: peers == 1 ? [.cpu, .p50, .p99] : [.cpu, .rate, .p50, .p99])
            }
        } + [
            Workload(
                name: "udp-receive", title: "UDP: the server receives datagrams of 1,200 B, a reply to each burst of 32",
                mode: .udpReceive, load: ["--mode", "udp-receive", "--size", "1200", "--connections", "2"],
                metrics: [.cpu, .bytesPerCPU, .speed]),
            Workload(
                name: "udp-send", title: "UDP: the server sends datagrams of 1,200 B, 32 for each request",
                mode: .udpSource, load: ["--mode", "udp-source", "--size", "1200", "--connections", "2"],
                metrics: [.cpu, .bytesPerCPU, .speed]),
            Workload(
                name: "dtls-echo", title: "DTLS 1.2 echo, 64 B, 64 peers", mode: .udpEcho, isSecure: true,
                load: ["--mode", "udp-echo", "--size", "64", "--connections", "64"], metrics: [.cpu, .rate, .p50, .p99],
                servers: [Server.oursWithTasks, Server.floor]),
            Workload(
                name: "dtls-handshake", title: "full DTLS 1.2 handshake with a cookie, one byte echoed, close", mode: .udpEcho,
                isSecure: true, load: ["--mode", "udp-connect", "--size", "1", "--connections", "32"], metrics: [.cpu, .rate],
                servers: [Server.oursWithTasks, Server.floor]),
        ]

    private static let memories = both { isSecure, kind in
        Workload(
            name: "\(kind)-memory", title: "memory of an idle connection, \(kind == "tls" ? "TLS" : kind): from 1,000 to 5,000",
            mode: .echo, isSecure: isSecure, load: ["--mode", "idle", "--steps", "1000,5000"], metrics: [.memory, .threads],
            pace: .idle)
    }

    private static let peerMemory = Workload(
        name: "dtls-memory", title: "memory of an idle peer, DTLS 1.2: from 1,000 to 10,000", mode: .udpEcho, isSecure: true,
        load: ["--mode", "udp-idle", "--steps", "1000,10000"], metrics: [.memory, .threads], pace: .idle,
        servers: [Server.oursWithTasks, Server.floor])

    private static let largeWrites = both { isSecure, kind in
        Workload(
            name: "\(kind)-write-1GiB", title: "\(kind == "tls" ? "TLS" : kind): the server sends, one write of 1 GiB",
            mode: .source,
            isSecure: isSecure, load: ["--mode", "source", "--size", "\(1 << 30)", "--chunk", "\(1 << 30)", "--announce"],
            metrics: [.held, .bytesPerCPU], pace: .watched(1 << 30), servers: [Server.ours, Server.nio, Server.floor])
    }

    /// The whole matrix, in the order of measurement.
    static let all = echoes + churns + bulks + lines + spreads + datagrams + memories + [peerMemory] + largeWrites + latencies
}
