internal import AsyncSockets
internal import Glibc

/// An interface is named while there is no descriptor to ask the kernel with: the caller has done nothing
/// wrong.
enum ShortageProbe {
    private final class Party: AsyncSocketDelegate, Sendable {}

    static func run() throws {
        var limit = rlimit(rlim_cur: 64, rlim_max: 64)
        guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw ProbeFailure(description: "setrlimit")
        }
        let party = Party()
        let socket = AsyncSocket(inlineDelegate: party)
        var spare: [CInt] = []
        while case let descriptor = dup(0), descriptor >= 0 { spare.append(descriptor) }
        for interface in ["lo", "127.0.0.1", "nowhere0"] {
            try expectShortage { () throws(AsyncSocketError) in try socket.accept(onInterface: interface, port: 0) }
            try expectShortage { () throws(AsyncSocketError) in
                try socket.connect(toHost: "127.0.0.1", onPort: 1, viaInterface: interface)
            }
        }
        for descriptor in spare { close(descriptor) }
        try socket.accept(onInterface: "lo", port: 0)
        withExtendedLifetime(party) {}
        print("the system is to blame for a shortage")
    }

    private static func expectShortage(_ body: () throws(AsyncSocketError) -> Void) throws {
        do throws(AsyncSocketError) {
            try body()
        } catch {
            guard error.code == .system, error.blame == .system, error.errno == EMFILE else {
                throw ProbeFailure(description: "\(error), errno \(error.errno.map(String.init) ?? "none")")
            }
            return
        }
        throw ProbeFailure(description: "it went well without a descriptor")
    }
}
