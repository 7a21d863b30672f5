internal import Dispatch
internal import SocketBuffers
internal import SocketCore

/// Calls a closure once at a given time. An alarm does not depend on the event loops, because code on a loop
/// may take a long time. Nor does it depend on other alarms, because a closure that cancels a task also runs
/// the program's cancellation handlers.
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

    /// Stops the alarm, unless it has already fired.
    func stop() { _ = take() }
}
