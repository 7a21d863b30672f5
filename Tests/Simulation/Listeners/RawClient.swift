internal import CSimulation
internal import Glibc

/// A client that calls the kernel directly, from its own thread.
final class RawClient: ClientSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name: String
    private let number: Int
    private let course: ListenerRun
    private let plan: ListenerPlan.Client
    private(set) var hasFinished = false
    private var hasReply = false

    init(_ number: Int, _ run: ListenerRun) {
        (self.number, course, plan, name) = (number, run, run.plan.clients[number], "client \(number)")
    }

    var hasFailed: Bool { plan.behavior == .request && !hasReply }

    func run() {
        CSim_set_simulated(false)
        course.pause(plan.delay)
        let kernel = course.kernel
        let end = kernel.change { network in
            let (client, server) = network.makePair(network.link)
            let source = Place(address: 0x7F00_0000 + UInt32(plan.source), port: 0)
            network.begin(client, server, from: source, to: Place(port: ListenerRun.port), kernel)
            return client
        }
        // A handshake may vanish.
        var hasGivenUp = false
        kernel.after(30_000_000_000) { hasGivenUp = true }
        course.scheduler.wait { !end.isConnecting || hasGivenUp }
        if !end.isConnecting, !end.isBroken { exchange(end) }
        end.close()
        CSim_set_simulated(true)
        hasFinished = true
    }

    private func exchange(_ end: StreamEnd) {
        let pattern = course.pattern(of: number)
        let request = Array("\(number)\n".utf8) + pattern.bytes
        switch plan.behavior {
        case .request:
            send(request, end)
            receive(pattern, end)
        case .silent: course.pause(2_000_000_000)
        case .reset:
            send(Array(request.prefix(request.count / 2)), end)
            end.resetsOnClose = true
        case .close:
            send(Array(request.prefix(request.count / 2)), end)
        }
    }

    private func send(_ bytes: [UInt8], _ end: StreamEnd) {
        var rest = bytes[...]
        while !rest.isEmpty {
            switch end.send(Array(rest), course.kernel) {
            case .success(let count): rest = rest.dropFirst(count)
            case .failure(let failure) where [EAGAIN, ENOBUFS, EINTR].contains(failure.code):
                course.scheduler.wait { end.outgoing.room > 0 || end.isBroken }
            case .failure: return
            }
            course.scheduler.point()
        }
    }

    private func receive(_ pattern: Pattern, _ end: StreamEnd) {
        var received: [UInt8] = []
        while true {
            course.scheduler.wait { end.readiness & EPOLLIN.rawValue != 0 }
            switch end.receive(1_000, course.kernel) {
            case .success([]): return
            case .success(let bytes): received += bytes
            case .failure(let failure) where [EAGAIN, EINTR].contains(failure.code): continue
            case .failure: return
            }
            if let complaint = pattern.complaint(about: received, at: 0) { course.scheduler.fail("\(name): \(complaint)") }
            hasReply = received.count == pattern.bytes.count
        }
    }

    func complaintAtEnd() -> String? { hasFinished ? nil : "\(name) does not finish" }
}
