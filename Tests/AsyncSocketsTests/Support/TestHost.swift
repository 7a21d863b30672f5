import AsyncSockets
import SocketBuffers
import SocketCore
import SocketTestSupport

extension Resolver {
    /// A resolver that has the same addresses for every name.
    static func answering(_ addresses: [SocketAddress]) -> Resolver {
        Resolver(concurrency: 1) { _ in .success(addresses) }
    }
}

extension AsyncSocket {
    /// A socket whose resolver has these addresses for every name.
    static func client(
        of addresses: [SocketAddress], delay: Double = 3_600, delegate: Recorder, loop: SocketEventLoop? = nil
    ) -> AsyncSocket {
        let client = AsyncSocket(inlineDelegate: delegate)
        client.resolver = .answering(addresses)
        client.attemptDelay = delay
        if let loop { client.stay(on: loop) }
        return client
    }

    /// Connects to the host of `client(of:delay:delegate:loop:)`.
    func connectToHost(withTimeout timeout: Double = .patient) throws {
        try connect(toHost: "host.test", onPort: 1, withTimeout: timeout)
    }
}
