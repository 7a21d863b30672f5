package import AsyncSockets
internal import AsyncSocketsTesting

/// A listening socket with a full backlog that never accepts. The kernel drops further SYNs.
package final class FullBacklog {
    package let address: SocketEndpoint
    private let sockets: [RawSocket]

    package init() throws {
        let listener = try RawSocket.listening(backlog: 0)
        let address = try listener.localAddress
        self.address = address
        sockets = try [listener] + (0..<4).map { _ in try RawSocket.connecting(to: address) }
    }

    package var port: UInt16 { address.port ?? 0 }
}
