internal import Glibc

/// An event that happens once, for which threads and tasks can wait. Waiting after it has happened returns at
/// once.
public final class TestSignal: Sendable {
    // A pipe: a byte is written when the signal is given, and never read, so that `poll` can wait for it
    // beside a socket.
    let readEnd: Int32
    private let writeEnd: Int32

    /// A signal that has not been given yet.
    ///
    /// - Throws: `LoopbackError` when the process has no descriptors left.
    public init() throws(LoopbackError) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .system("pipe") }
        (readEnd, writeEnd) = (ends[0], ends[1])
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        // Given twice, or a million times: the write must not block.
        _ = fcntl(writeEnd, F_SETFL, O_NONBLOCK)
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Gives the signal, from any thread. The second time changes nothing.
    public func fire() {
        _ = write(writeEnd, [1], 1)
    }

    /// Whether the signal has been given.
    public var hasFired: Bool {
        var entry = pollfd(fd: readEnd, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 1
    }

    /// Waits for the signal.
    ///
    /// - Throws: `LoopbackError` with the code `timedOut` after `timeout`.
    public func wait(within timeout: Duration = .seconds(30)) async throws(LoopbackError) {
        let result: Result<Void, LoopbackError> = await withCheckedContinuation { continuation in
            // A thread of its own: blocking one of the few that run tasks could stop the very task that gives
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
        try Patience(timeout: timeout, stop: nil).wait(for: self)
    }
}
