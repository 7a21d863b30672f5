internal import AsyncSockets

/// A side of a run about limits: a task and its socket.
class LimitTask: RunSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name: String
    let course: LimitRun
    private var socket: AsyncSocket?
    private weak var observed: AsyncSocket?
    private(set) var hasFinished = false

    init(_ name: String, _ course: LimitRun, _ makeSocket: () throws -> AsyncSocket) {
        (self.name, self.course) = (name, course)
        do {
            socket = try makeSocket()
            observed = socket
        } catch {
            complain("\(error)")
        }
    }

    convenience init(_ name: String, adopting descriptor: Int32, _ course: LimitRun) {
        self.init(name, course) { try AsyncSocket(adopting: descriptor) }
    }

    var plan: LimitPlan { course.plan }

    var isReleased: Bool { observed == nil }

    func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func run() {
        guard let socket else { return }
        Task(executorPreference: socket.executor) { [self] in
            do {
                try await perform(socket)
            } catch {
                course.trace.add("fails", 0)
                check(error)
                socket.disconnect()
            }
            if hasFinished { complain("finishes twice") }
            hasFinished = true
        }
    }

    func perform(_ socket: AsyncSocket) async throws { preconditionFailure("LimitTask is abstract") }

    /// Checks the error that `perform` has thrown.
    func check(_ error: any Error) {}

    func disconnect() { socket?.disconnect() }

    func complaintAtEnd() -> String? { hasFinished ? nil : "the task does not finish" }

    func abandon() { socket = nil }
}
