/// A server under test.
struct Server: Sendable {
    enum Tickets {
        /// As many as a full handshake's `--tickets` says.
        case settable
        /// Always two: swift-nio-ssl has no setting for it.
        case always
        /// None: nothing can be resumed.
        case never
    }

    let name: String
    let program: String
    var arguments: [String] = []
    /// Made by the Makefile, and not by SwiftPM.
    var isNative = false
    var tickets = Tickets.never
    /// What it can do; nil: everything.
    var modes: Set<ServerMode>?
    /// Taken only where a workload names it.
    var isSpecial = false

    func can(_ workload: Workload) -> Bool {
        if let modes, !modes.contains(workload.mode) { return false }
        if workload.tickets > 0, case .never = tickets { return false }
        if let names = workload.servers { return names.contains(name) }
        return !isSpecial
    }

    func ticketArguments(_ count: Int) -> [String] {
        if case .settable = tickets, count > 0 { ["--tickets", "\(count)"] } else { [] }
    }
}

/// What a server does with the bytes of a connection; `Benchmarks/README.md` has the protocols.
enum ServerMode: String, Sendable {
    case echo, lines, count, receive, source, starttls
}

extension Server {
    /// The server that is measured when nothing else is said.
    static let ours = "ours-inline"
    static let oursWithQueue = "ours-queue"
    static let nio = "nio"
    static let floor = "c"
    /// The floor with as many tickets as SwiftNIO sends: to see what they cost.
    static let floorWithTickets = "c-2-tickets"

    static let all: [Server] = [
        Server(name: ours, program: "server-ours", tickets: .settable),
        Server(name: oursWithQueue, program: "server-ours", arguments: ["--delivery", "queue"], tickets: .settable),
        Server(name: nio, program: "server-nio", tickets: .always),
        Server(name: floor, program: "server-c", isNative: true, tickets: .settable),
        Server(name: floorWithTickets, program: "server-c", arguments: ["--tickets", "2"], isNative: true, isSpecial: true),
        Server(name: "libevent", program: "server-libevent", isNative: true, modes: [.echo, .receive, .source]),
        Server(name: "asio", program: "server-asio", isNative: true, modes: [.echo, .receive, .source]),
    ]
}
