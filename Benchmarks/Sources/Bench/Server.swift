/// A server under test.
struct Server: Sendable {
    enum Tickets {
        /// As many for each full handshake as `--tickets` says.
        case settable
        /// Always two: swift-nio-ssl has no setting for it.
        case always
        /// None: no session can be resumed.
        case never
    }

    let name: String
    let program: String
    var arguments: [String] = []
    /// The Makefile builds it, not SwiftPM.
    var isNative = false
    var tickets = Tickets.never
    /// The modes that it supports; nil means all.
    var modes: Set<ServerMode>?
    /// Measured only if a workload names it.
    var isSpecial = false
    /// The workloads whose instructions are counted, for a server that takes part in nothing else.
    var counted: [String] = []

    var isForCounting: Bool { !counted.isEmpty }

    func can(_ workload: Workload) -> Bool {
        if let modes, !modes.contains(workload.mode) { return false }
        if workload.tickets > 0, case .never = tickets { return false }
        if isForCounting, !counted.contains(workload.name) { return false }
        if let names = workload.servers { return names.contains(name) }
        return !isSpecial
    }

    func ticketArguments(_ count: Int) -> [String] {
        if case .settable = tickets, count > 0 { ["--tickets", "\(count)"] } else { [] }
    }
}

/// What a server does with the bytes of a connection; `Benchmarks/README.md` describes the modes.
enum ServerMode: String, Sendable {
    case echo, lines, count, receive, source, starttls
    case udpEcho = "udp-echo"
    case udpReceive = "udp-receive"
    case udpSource = "udp-source"
}

extension Server {
    /// Our server with an inline delegate; goals that name no other server mean this one.
    static let ours = "ours-inline"
    static let oursWithQueue = "ours-queue"
    /// Ours with a task for each connection, on the event loop.
    static let oursWithTasks = "ours-async"
    /// An inline delegate that borrows the bytes: no `Data` for each message.
    static let oursBorrowed = "ours-inline-borrowed"
    /// The same in a task.
    static let oursBorrowedByTasks = "ours-borrowed"
    /// The drop-in module, whose delegate is called on a queue.
    static let oursWithCocoa = "ours-cocoa"
    static let nio = "nio"
    /// SwiftNIO with a task for each connection, as its documentation shows.
    static let nioWithTasks = "nio-async"
    /// The same, with the event loop as Swift's global executor.
    static let nioWithTasksOnLoop = "nio-async-loop"
    static let floor = "c"
    /// The floor with as many tickets as SwiftNIO sends, to show their cost.
    static let floorWithTickets = "c-2-tickets"

    static let all: [Server] = [
        Server(name: ours, program: "server-ours", tickets: .settable),
        Server(name: oursWithQueue, program: "server-ours", arguments: ["--delivery", "queue"], tickets: .settable),
        Server(name: oursWithTasks, program: "server-ours-async", tickets: .settable, modes: [.echo, .lines, .udpEcho]),
        Server(
            name: oursBorrowed, program: "server-ours", arguments: ["--borrowed"], modes: [.echo, .receive],
            counted: ["plain-echo-64B-64", "tls-echo-64B-64", "plain-receive", "tls-receive"]),
        Server(
            name: oursBorrowedByTasks, program: "server-ours-async", arguments: ["--borrowed"], modes: [.echo],
            counted: ["plain-echo-64B-64", "tls-echo-64B-64"]),
        Server(name: oursWithCocoa, program: "server-ours-cocoa", modes: [.echo], counted: ["plain-echo-64B-64"]),
        Server(name: nio, program: "server-nio", tickets: .always),
        Server(
            name: nioWithTasks, program: "server-nio", arguments: ["--api", "async"], tickets: .always, modes: [.echo, .lines]),
        Server(
            name: nioWithTasksOnLoop, program: "server-nio", arguments: ["--api", "async-loop"], tickets: .always,
            modes: [.echo, .lines]),
        Server(name: floor, program: "server-c", isNative: true, tickets: .settable),
        Server(name: floorWithTickets, program: "server-c", arguments: ["--tickets", "2"], isNative: true, isSpecial: true),
        Server(name: "libevent", program: "server-libevent", isNative: true, modes: [.echo, .receive, .source]),
        Server(name: "asio", program: "server-asio", isNative: true, modes: [.echo, .receive, .source]),
    ]
}
