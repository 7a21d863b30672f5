import AsyncSockets
import SocketBuffers
import SocketCore
import SocketTestSupport

extension Resolver {
    /// Returns a resolver that resolves every name to the same addresses.
    static func answering(_ addresses: [SocketEndpoint]) -> Resolver {
        Resolver(concurrency: 1) { _ in .success(addresses) }
    }
}

extension AsyncSocket {
    /// Returns a socket whose resolver resolves every name to these addresses.
    static func client(
        of addresses: [SocketEndpoint], delay: Double = 3_600, delegate: Recorder, loop: SocketEventLoop? = nil
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
