/// A server under test.
struct Server: Sendable {
    enum Tickets {
        /// The number per full handshake is set with `--tickets`.
        case settable
        /// Always two, because swift-nio-ssl has no setting for it.
        case always
        /// None, so sessions cannot be resumed.
        case never
    }

    enum Spread {
        /// The processors that the process may use.
        case affinity
        /// The argument `--loops`.
        case argument
    }

    let name: String
    let program: String
    var arguments: [String] = []
    /// Built by the Makefile, not by SwiftPM.
    var isNative = false
    var tickets = Tickets.never
    /// The supported modes. nil means all.
    var modes: Set<ServerMode>?
    /// How the server is configured to use several processors. nil means that it is not measured with them.
    var spread: Spread?
    /// Measured only if a workload names it.
    var isSpecial = false
    /// If not empty, this server is used only to count the instructions of these workloads.
    var counted: [String] = []

    var isForCounting: Bool { !counted.isEmpty }

    func can(_ workload: Workload) -> Bool {
        if let modes, !modes.contains(workload.mode) { return false }
        if workload.tickets > 0, case .never = tickets { return false }
        if workload.processors > 1, spread == nil { return false }
        if isForCounting, !counted.contains(workload.name) { return false }
        if let names = workload.servers { return names.contains(name) }
        return !isSpecial
    }

    func loopArguments(_ count: Int) -> [String] {
        if case .argument = spread, count > 1 { ["--loops", "\(count)"] } else { [] }
    }

    func ticketArguments(_ count: Int) -> [String] {
        if case .settable = tickets, count > 0 { ["--tickets", "\(count)"] } else { [] }
    }
}

/// What a server does with a connection's bytes. `Benchmarks/README.md` describes the modes.
enum ServerMode: String, Sendable {
    case echo, lines, count, receive, source, starttls
    case udpEcho = "udp-echo"
    case udpReceive = "udp-receive"
    case udpSource = "udp-source"
}

extension Server {
    /// Our server with an inline delegate. Goals apply to this server unless they name another.
    static let ours = "ours-inline"
    static let oursWithQueue = "ours-queue"
    /// Our server with one task per connection, on the event loop.
    static let oursWithTasks = "ours-async"
    /// An inline delegate that borrows the bytes, without a `Data` per message.
    static let oursBorrowed = "ours-inline-borrowed"
    /// A task that borrows the bytes.
    static let oursBorrowedByTasks = "ours-borrowed"
    /// The drop-in module, with a delegate queue.
    static let oursWithCocoa = "ours-cocoa"
    static let nio = "nio"
    /// SwiftNIO with one task per connection, as in its documentation.
    static let nioWithTasks = "nio-async"
    /// The same, with the event loop as Swift's global executor.
    static let nioWithTasksOnLoop = "nio-async-loop"
    /// Go's standard library, with one goroutine per connection and buffered readers and writers.
    static let go = "go"
    /// Rust's tokio and tokio-rustls, with one task per connection and buffered readers and writers.
    static let tokio = "tokio"
    static let floor = "c"
    /// The floor with as many tickets as SwiftNIO sends, which shows their cost.
    static let floorWithTickets = "c-2-tickets"

    static let all: [Server] = [
        Server(name: ours, program: "server-ours", tickets: .settable, spread: .affinity),
        Server(
            name: oursWithQueue, program: "server-ours", arguments: ["--delivery", "queue"], tickets: .settable, spread: .affinity
        ),
        Server(
            name: oursWithTasks, program: "server-ours-async", tickets: .settable, modes: [.echo, .lines, .source, .udpEcho],
            spread: .affinity),
        Server(
            name: oursBorrowed, program: "server-ours", arguments: ["--borrowed"], modes: [.echo, .receive],
            counted: ["plain-echo-64B-64", "tls-echo-64B-64", "plain-receive", "tls-receive"]),
        Server(
            name: oursBorrowedByTasks, program: "server-ours-async", arguments: ["--borrowed"], modes: [.echo],
            counted: ["plain-echo-64B-64", "tls-echo-64B-64"]),
        Server(name: oursWithCocoa, program: "server-ours-cocoa", modes: [.echo], counted: ["plain-echo-64B-64"]),
        Server(name: nio, program: "server-nio", tickets: .always, spread: .argument),
        Server(
            name: nioWithTasks, program: "server-nio", arguments: ["--api", "async"], tickets: .always, modes: [.echo, .lines]),
        Server(
            name: nioWithTasksOnLoop, program: "server-nio", arguments: ["--api", "async-loop"], tickets: .always,
            modes: [.echo, .lines]),
        Server(name: floor, program: "server-c", isNative: true, tickets: .settable),
        Server(name: floorWithTickets, program: "server-c", arguments: ["--tickets", "2"], isNative: true, isSpecial: true),
        Server(name: "libevent", program: "server-libevent", isNative: true, modes: [.echo, .receive, .source]),
        Server(
            name: go, program: "server-go", isNative: true,
            modes: [.echo, .lines, .count, .receive, .source, .starttls, .udpEcho], spread: .affinity),
        Server(
            name: tokio, program: "server-tokio", isNative: true, tickets: .settable,
            modes: [.echo, .lines, .count, .receive, .source, .starttls, .udpEcho], spread: .affinity),
        Server(name: "asio", program: "server-asio", isNative: true, modes: [.echo, .receive, .source]),
    ]
}
