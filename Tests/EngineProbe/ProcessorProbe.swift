internal import AsyncSockets
internal import CSeccomp
internal import Glibc
internal import SocketCore

/// Prints how many processors the process may use.
enum ProcessorProbe {
    /// - Parameter kernelSize: The size of the kernel's processor set in bytes, as on a machine with more
    ///   than 1,024 possible processors. Smaller sets are refused.
    static func run(kernelSize: CInt?) throws {
        if let kernelSize, CSeccomp_refuse_below(CSeccomp_sched_getaffinity, 1, UInt32(kernelSize), EINVAL) != 0 {
            throw ProbeFailure(description: "seccomp: errno \(errno)")
        }
        print(SocketEventLoop.usableProcessors)
    }
}
