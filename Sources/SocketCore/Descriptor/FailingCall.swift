// Rules of a system call that fails although the connection or datagram is not at fault:
//  1. If the error cannot change by waiting (`SystemError.isCertainToRepeat`), the socket closes immediately.
//  2. After any other error the call is retried after a pause: at first 50 ms, then twice as long, up to a
//     second. EACCES and EPERM are returned by security modules and filters of system calls, whose policy may
//     be replaced while the process runs.
//  3. After 12 such failures in a row, some seven seconds, the socket closes with the error. A socket that
//     keeps retrying looks healthy, and service managers restart programs that fail.
//  4. A shortage (EMFILE, ENOBUFS and similar errors) never closes the socket.

internal import Glibc

/// How a system call that keeps failing is retried, and when the socket gives up.
package struct FailingCall: Sendable {
    package enum Step: Hashable, Sendable {
        /// - Parameter isFirst: The call succeeded before, or failed with a different error.
        case pause(seconds: Double, isFirst: Bool)
        case end(SystemError)
    }

    /// The error of the last call, or `nil` if the call succeeded.
    package private(set) var error: SystemError?
    private var failureCount = 0
    private var seconds = FailingCall.shortestPause

    package static let failureLimit = 12
    private static let shortestPause = 0.05
    private static let longestPause = 1.0

    package init() {}

    /// Counts a failure, and returns what to do next.
    ///
    /// - Parameter isShortage: By rule 4.
    package mutating func note(_ error: SystemError, isShortage: Bool = false) -> Step {
        let isFirst = self.error?.errno != error.errno
        self.error = error
        failureCount = isShortage ? 0 : failureCount + 1
        guard failureCount < Self.failureLimit else { return .end(error.repeated(failureCount)) }
        defer { seconds = min(seconds * 2, Self.longestPause) }
        return .pause(seconds: seconds, isFirst: isFirst)
    }

    /// Counts a success: the next failure is the first again.
    package mutating func succeed() {
        if error != nil { self = FailingCall() }
    }
}

extension SystemError {
    /// The call cannot succeed on this descriptor, or in this process.
    package var isCertainToRepeat: Bool { Self.certain.contains(errno) }

    private static let certain: Set<CInt> = [EBADF, ENOTSOCK, EINVAL, EFAULT, ENOTCONN, ENOSYS, EOPNOTSUPP]

    /// The process or the system lacks descriptors or memory.
    package var isShortage: Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(errno) }

    fileprivate func repeated(_ count: Int) -> SystemError {
        SystemError(call, errno: errno, detail: "\(description) (\(count) times in a row)")
    }
}
