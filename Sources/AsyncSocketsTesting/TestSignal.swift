internal import Glibc

/// An event that happens once, for which threads and tasks can wait. Waiting for an event that has already
/// happened returns immediately.
public final class TestSignal: Sendable {
    // A pipe: `fire()` writes a byte that is never read, so `poll` can wait for the signal and a socket
    // together.
    let readEnd: Int32
    private let writeEnd: Int32

    /// Creates a signal that has not fired.
    ///
    /// - Throws: `LoopbackError` if the process has no free file descriptors.
    public init() throws(LoopbackError) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .system("pipe") }
        (readEnd, writeEnd) = (ends[0], ends[1])
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        // The write must not block, regardless of how often the signal fires.
        _ = fcntl(writeEnd, F_SETFL, O_NONBLOCK)
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Fires the signal. Can be called on any thread. Further calls have no effect.
    public func fire() {
        _ = write(writeEnd, [1], 1)
    }

    /// Whether the signal has fired.
    public var hasFired: Bool {
        var entry = pollfd(fd: readEnd, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 1
    }

    /// Waits for the signal.
    ///
    /// - Throws: `LoopbackError` with the code `timedOut` after `timeout`.
    public func wait(within timeout: Duration = .seconds(30)) async throws(LoopbackError) {
        let result: Result<Void, LoopbackError> = await withCheckedContinuation { continuation in
            // Uses a separate thread. Blocking one of the few threads that run tasks could block the task
            // that fires the signal.
            do throws(LoopbackError) {
                try BlockingThread.start {
                    continuation.resume(returning: Result { () throws(LoopbackError) in try self.block(within: timeout) })
                }
            } catch {
                continuation.resume(returning: .failure(error))
            }
        }
        try result.get()
    }

    private func block(within timeout: Duration) throws(LoopbackError) {
        try WaitLimit(timeout: timeout).wait(for: self)
    }
}

/// The time limit for one wait, and a signal that cancels the wait. Every wait of a peer, a relay or a
/// `RawSocket` uses this type.
package struct WaitLimit: Sendable {
    let timeout: Duration
    /// If this signal fires, the wait throws `stopped`.
    let stop: TestSignal?

    package init(timeout: Duration, stop: TestSignal? = nil) {
        self.timeout = timeout
        self.stop = stop
    }

    /// Five minutes, which is long enough on a machine that is busy with other programs.
    package static let usual = WaitLimit(timeout: .seconds(300))

    /// Returns when `descriptor` is ready or broken. The next call on the descriptor reveals which.
    func wait(for events: Int16, on descriptor: Int32, _ operation: String) throws(LoopbackError) {
        let deadline = ContinuousClock.now + timeout
        var entries = [pollfd(fd: descriptor, events: events, revents: 0)]
        if let stop { entries.append(pollfd(fd: stop.readEnd, events: Int16(POLLIN), revents: 0)) }
        while true {
            let ready = poll(&entries, nfds_t(entries.count), milliseconds(until: deadline))
            if ready < 0 && errno == EINTR { continue }
            if ready < 0 { throw .system("poll") }
            if entries.count > 1 && entries[1].revents != 0 {
                throw LoopbackError(.stopped, "the peer was stopped", operation: operation)
            }
            if ready > 0 { return }
            if ContinuousClock.now >= deadline {
                throw LoopbackError(.timedOut, "no event occurred within \(timeout)", operation: operation)
            }
        }
    }

    func wait(for signal: TestSignal) throws(LoopbackError) {
        try wait(for: Int16(POLLIN), on: signal.readEnd, "wait for a signal")
    }

    /// Rounds up, so that a wait does not spin during its last millisecond.
    private func milliseconds(until deadline: ContinuousClock.Instant) -> Int32 {
        let rest = max(.zero, deadline - ContinuousClock.now)
        let parts = rest.components
        let whole = min(parts.seconds, 1_000_000) * 1000 + parts.attoseconds / 1_000_000_000_000_000
        return Int32(whole + 1)
    }
}

/// A thread for blocking work, so that it does not occupy one of the few threads that run tasks.
enum BlockingThread {
    static func start(_ body: @escaping @Sendable () -> Void) throws(LoopbackError) {
        let box = Unmanaged.passRetained(Body(run: body))
        var thread = pthread_t()
        let failure = pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, box.toOpaque())
        guard failure == 0 else {
            box.release()
            throw .system("pthread_create", failure)
        }
        pthread_detach(thread)
    }

    private final class Body: Sendable {
        let run: @Sendable () -> Void
        init(run: @escaping @Sendable () -> Void) { self.run = run }
    }
}
