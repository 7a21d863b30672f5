internal import Dispatch
internal import SocketBuffers
internal import SocketCore

enum HostLookup {
    /// - Throws: A `ResolveError`.
    static func addresses(of host: String, port: UInt16) throws -> [SocketEndpoint] {
        let answer = Locked<Resolver.Answer?>(nil)
        let done = DispatchSemaphore(value: 0)
        _ = Resolver.system.resolve(HostQuery(host: host, port: port)) { result in
            answer.withLock { $0 = result }
            done.signal()
        }
        done.wait()
        return try answer.withLock { $0 }?.get() ?? []
    }
}
