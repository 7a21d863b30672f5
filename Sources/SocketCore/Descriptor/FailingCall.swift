// Rules for a system call that fails through no fault of the connection or datagram:
//  1. If waiting cannot change the error (`SystemError.isCertainToRepeat`), the socket closes immediately.
//  2. After any other error the call is retried after a pause, which starts at 50 ms and doubles up to a
//     second. This includes EACCES and EPERM, because the policies of security modules and system call
//     filters may change while the process runs.
//  3. After 12 such failures in a row, about seven seconds, the socket closes with the error. A socket that
//     kept retrying would look healthy, whereas service managers restart a program that fails.
//  4. A shortage (EMFILE, ENOBUFS and similar errors) never closes the socket.

internal import Glibc

/// Decides when to retry a system call that keeps failing, and when to give up.
package struct FailingCall: Sendable {
    package enum Step: Hashable, Sendable {
        /// - Parameter isFirst: Whether the previous call succeeded or failed with a different error.
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
    /// - Parameter isShortage: Whether the failure is a shortage (rule 4).
    package mutating func note(_ error: SystemError, isShortage: Bool = false) -> Step {
        let isFirst = self.error?.errno != error.errno
        self.error = error
        failureCount = isShortage ? 0 : failureCount + 1
        guard failureCount < Self.failureLimit else { return .end(error.repeated(failureCount)) }
        defer { seconds = min(seconds * 2, Self.longestPause) }
        return .pause(seconds: seconds, isFirst: isFirst)
    }

    /// Notes a success, which resets the number of failures and the pause.
    package mutating func succeed() {
        if error != nil { self = FailingCall() }
    }
}

extension SystemError {
    /// Whether the call can never succeed on this descriptor or in this process.
    package var isCertainToRepeat: Bool { Self.certain.contains(errno) }

    private static let certain: Set<CInt> = [EBADF, ENOTSOCK, EINVAL, EFAULT, ENOTCONN, ENOSYS, EOPNOTSUPP]

    /// Whether the process or the system has run out of descriptors or memory.
    package var isShortage: Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(errno) }

    fileprivate func repeated(_ count: Int) -> SystemError {
        SystemError(call, errno: errno, detail: "\(description) (\(count) times in a row)")
    }
}
