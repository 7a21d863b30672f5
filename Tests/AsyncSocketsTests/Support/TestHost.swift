import AsyncSockets
import SocketBuffers
import SocketCore
import SocketTestSupport

extension Resolver {
    /// One that has the same addresses for every name.
    static func answering(_ addresses: [SocketAddress]) -> Resolver {
        Resolver(concurrency: 1) { _ in .success(addresses) }
    }
}

extension AsyncSocket {
    /// A socket to which every name is a host with these addresses.
    static func client(
        of addresses: [SocketAddress], delay: Double = 3_600, delegate: Recorder, loop: EventLoop? = nil
    ) -> AsyncSocket {
        let client = AsyncSocket(inlineDelegate: delegate)
        client.resolver = .answering(addresses)
        client.alternateAddressDelay = delay
        if let loop { client.stay(on: loop) }
        return client
    }

    /// Connects to the host that `client(of:delay:delegate:loop:)` made up.
    func connectToHost(withTimeout timeout: Double = 60) throws {
        try connect(toHost: "host.test", onPort: 1, withTimeout: timeout)
    }
}
