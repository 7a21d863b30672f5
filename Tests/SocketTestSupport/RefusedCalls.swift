internal import CSeccomp
internal import Foundation

/// A system call that a test can make the kernel refuse.
package enum RefusedCall: Sendable {
    case recvmmsg, sendmmsg, sendmsg
    /// The system call of send(2).
    case sendto

    fileprivate var number: Int {
        switch self {
        case .recvmmsg: CSeccomp_recvmmsg
        case .sendmmsg: CSeccomp_sendmmsg
        case .sendmsg: CSeccomp_sendmsg
        case .sendto: CSeccomp_sendto
        }
    }
}

/// Runs `body` on a new thread, on which the kernel refuses some system calls with `errno`. Other threads are
/// not affected.
package func refusing<Result: Sendable>(
    _ calls: [RefusedCall], with errno: Int32, _ body: @escaping @Sendable () throws -> Result
) throws -> Result {
    nonisolated(unsafe) var outcome: Swift.Result<Result, any Error>?
    let done = DispatchSemaphore(value: 0)
    let thread = Thread {
        let isInstalled = calls.allSatisfy { CSeccomp_refuse($0.number, errno, 0) == 0 }
        outcome = Swift.Result {
            guard isInstalled else { throw Unexpected(description: "the kernel accepts no system call filters") }
            return try body()
        }
        done.signal()
    }
    thread.start()
    done.wait()
    guard let outcome else { throw Unexpected(description: "the thread returned no result") }
    return try outcome.get()
}
