internal import Dispatch
internal import SocketBuffers
internal import SocketCore

/// One call at a point in time. It depends on no event loop, since code on a loop may take long, and on no
/// other alarm, since cancelling a task runs the program's handlers.
final class Alarm: Sendable {
    private static let queue = DispatchQueue(label: "AsyncSockets.Alarm")
    private let body: Locked<(@Sendable () -> Void)?>

    init(at deadline: Deadline, _ body: @escaping @Sendable () -> Void) {
        self.body = Locked(body)
        let seconds = max(deadline.seconds(since: .now), 0)
        Self.queue.asyncAfter(deadline: .now() + seconds) { [weak self] in self?.ring() }
    }

    private func ring() {
        if let body = take() { DispatchQueue(label: "AsyncSockets.Alarm.ring").async(execute: body) }
    }

    private func take() -> (@Sendable () -> Void)? { body.withLock { $0.take() } }

    /// It does not ring any more, or rings now.
    func stop() { _ = take() }
}
