internal import AsyncSockets
internal import CSeccomp
internal import Glibc
internal import SocketCore

/// Prints how many processors the process may use.
enum ProcessorProbe {
    /// - Parameter kernelSize: The bytes of the kernel's set of processors, as on a machine that may have
    ///   more than 1,024: smaller sets are refused.
    static func run(kernelSize: CInt?) throws {
        if let kernelSize, CSeccomp_refuse_below(CSeccomp_sched_getaffinity, 1, UInt32(kernelSize), EINVAL) != 0 {
            throw ProbeFailure(description: "seccomp: errno \(errno)")
        }
        print(EventLoop.usableProcessors)
    }
}
