internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// A client that connects with the library, in a task.
final class LibraryClient: ClientSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name: String
    private let number: Int
    private let course: ListenerRun
    private let plan: ListenerPlan.Client
    private(set) var hasFinished = false
    private var hasReply = false
    private weak var observed: AsyncSocket?

    init(_ number: Int, _ run: ListenerRun) {
        (self.number, course, plan, name) = (number, run, run.plan.clients[number], "client \(number)")
    }

    var hasFailed: Bool { plan.behavior == .request && !hasReply }

    private func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func run() {
        Task { [self] in
            await course.suspend(plan.delay)
            let socket = AsyncSocket()
            observed = socket
            do {
                try await connect(socket)
                try await exchange(socket)
            } catch {
                course.trace.add("client fails", number)
                socket.disconnect()
            }
            if hasFinished { complain("finishes twice") }
            hasFinished = true
        }
    }

    private func connect(_ socket: AsyncSocket) async throws {
        let start = course.kernel.now
        let host = plan.races ? "localhost" : "127.0.0.1"
        // The addresses that the source can reach.
        let interface = plan.races ? nil : "127.0.0.\(plan.source)"
        do {
            try await socket.connect(
                to: host, port: ListenerRun.port, interface: interface, timeout: .milliseconds(plan.connectTimeout))
        } catch let error as AsyncSocketError where error.code == .connectTimeout {
            course.noteTimeout()
            course.checkTime(since: start, UInt64(plan.connectTimeout) * 1_000_000, "the timeout of connect")
            throw error
        }
        if !socket.isConnected, socket.connectedAddress == nil { complain("a connected socket has no address") }
        if course.kernel.now - start > UInt64(plan.connectTimeout) * 1_000_000 + 2_000_000 {
            complain("connect succeeds after its timeout")
        }
        if course.plan.hasTLS { try await socket.startTLS(settings: Certificates.client) }
    }

    private func exchange(_ socket: AsyncSocket) async throws {
        let pattern = course.pattern(of: number)
        let request = Data("\(number)\n".utf8) + Data(pattern.bytes)
        switch plan.behavior {
        case .request:
            try await socket.write(request)
            let reply = try await socket.read(exactly: pattern.bytes.count)
            if let complaint = pattern.complaint(about: reply, at: 0) { complain(complaint) }
            hasReply = true
            // The server closes after its reply.
            guard try await socket.read() == nil else { return complain("more bytes than were sent") }
            try await socket.close()
        case .silent:
            await course.suspend(2_000_000_000)
            try await socket.close()
        case .reset:
            try await socket.write(request.prefix(request.count / 2))
            socket.disconnectWithReset()
        case .close:
            try await socket.write(request.prefix(request.count / 2))
            try await socket.close()
        }
    }

    func complaintAtEnd() -> String? {
        if !hasFinished { return "\(name) does not finish" }
        return observed == nil ? nil : "\(name): the socket is not released"
    }
}
