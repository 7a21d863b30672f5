internal import Glibc
internal import SocketCore

/// Creates loops while descriptors run out. Each attempt fails with a typed error and leaks nothing.
enum LoopProbe {
    static func run() throws {
        // By now the first loop of the process has all descriptors that it needs.
        let first = try SocketEventLoop()
        var limit = rlimit(rlim_cur: 64, rlim_max: 64)
        guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw ProbeFailure(description: "setrlimit")
        }
        var spare: [CInt] = []
        while case let descriptor = dup(0), descriptor >= 0 { spare.append(descriptor) }
        for free in 0...2 {
            for descriptor in spare.suffix(free) { close(descriptor) }
            for _ in 0..<10 { try expectFailure() }
            for index in spare.indices.suffix(free) {
                spare[index] = dup(0)
                guard spare[index] >= 0 else { throw ProbeFailure(description: "a loop that failed has kept a descriptor") }
            }
        }
        for descriptor in spare { close(descriptor) }
        _ = try SocketEventLoop()
        withExtendedLifetime(first) {}
    }

    private static func expectFailure() throws {
        do throws(SystemError) {
            _ = try SocketEventLoop()
        } catch {
            guard error.errno == EMFILE else { throw ProbeFailure(description: "\(error)") }
            return
        }
        throw ProbeFailure(description: "a loop was made of less than it needs")
    }
}
