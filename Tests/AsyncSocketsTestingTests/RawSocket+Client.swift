import AsyncSocketsTesting
import SocketTestSupport

extension RawSocket {
    /// Returns a client on 127.0.0.1. Every call times out after half a minute.
    static func client(port: UInt16) throws -> RawSocket {
        try connected(to: .loopback(port: port), waitLimit: .patient)
    }
}
