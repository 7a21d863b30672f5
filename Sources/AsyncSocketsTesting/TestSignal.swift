internal import Glibc

/// An event that happens once, for which threads and tasks can wait. A wait for an event that has happened
/// returns at once.
public final class TestSignal: Sendable {
    // A pipe: `fire()` writes a byte that is never read, so `poll` can wait for it beside a socket.
    let readEnd: Int32
    private let writeEnd: Int32

    /// A signal that has not fired yet.
    ///
    /// - Throws: `LoopbackError` when the process has no descriptors left.
    public init() throws(LoopbackError) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .system("pipe") }
        (readEnd, writeEnd) = (ends[0], ends[1])
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        // The write must not block, however often the signal fires.
        _ = fcntl(writeEnd, F_SETFL, O_NONBLOCK)
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Fires the signal, from any thread. A second call changes nothing.
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
            // A separate thread: blocking one of the few that run tasks could stop the very task that fires
            // the signal.
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

/// How long one wait may take, and what ends it early. Every wait of a peer, a relay or a `RawSocket` goes
/// through this type.
package struct WaitLimit: Sendable {
    let timeout: Duration
    /// When this fires, the wait throws `stopped`.
    let stop: TestSignal?

    package init(timeout: Duration, stop: TestSignal? = nil) {
        self.timeout = timeout
        self.stop = stop
    }

    /// Five minutes: long enough for a machine that is busy with other programs.
    package static let usual = WaitLimit(timeout: .seconds(300))

    /// Returns when `descriptor` is ready or broken; the next call on it shows which.
    func wait(for events: Int16, on descriptor: Int32, _ operation: String) throws(LoopbackError) {
        let deadline = ContinuousClock.now + timeout
        var entries = [pollfd(fd: descriptor, events: events, revents: 0)]
        if let stop { entries.append(pollfd(fd: stop.readEnd, events: Int16(POLLIN), revents: 0)) }
        while true {
            let ready = poll(&entries, nfds_t(entries.count), milliseconds(until: deadline))
            if ready < 0 && errno == EINTR { continue }
            if ready < 0 { throw .system("poll") }
            if entries.count > 1 && entries[1].revents != 0 {
                throw LoopbackError(.stopped, "The peer was stopped.", operation: operation)
            }
            if ready > 0 { return }
            if ContinuousClock.now >= deadline {
                throw LoopbackError(.timedOut, "Nothing happened within \(timeout).", operation: operation)
            }
        }
    }

    func wait(for signal: TestSignal) throws(LoopbackError) {
        try wait(for: Int16(POLLIN), on: signal.readEnd, "wait for a signal")
    }

    /// Rounded up, so that a wait does not spin through its last millisecond.
    private func milliseconds(until deadline: ContinuousClock.Instant) -> Int32 {
        let rest = max(.zero, deadline - ContinuousClock.now)
        let parts = rest.components
        let whole = min(parts.seconds, 1_000_000) * 1000 + parts.attoseconds / 1_000_000_000_000_000
        return Int32(whole + 1)
    }
}

/// A thread for work that blocks, so that it occupies none of the few that run tasks.
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
