package import AsyncSockets
package import Dispatch
package import FoundationEssentials

/// A connection over loopback between two of our sockets, each with a recorder of its own.
package struct Link {
    package let listener: AsyncSocket
    package let client: AsyncSocket
    package let server: AsyncSocket
    package let atClient: Recorder
    package let atServer: Recorder
    /// Delegates are held weakly: the link keeps this one.
    private let atListener: Recorder

    /// How the delegates are called.
    package enum Delivery: CaseIterable, Sendable {
        case inline
        case delegateQueue
        case socketQueue

        package var delegateQueue: DispatchQueue? { self == .delegateQueue ? DispatchQueue(label: "delegate") : nil }
        package var socketQueue: DispatchQueue? { self == .socketQueue ? DispatchQueue(label: "socket") : nil }
    }

    package static func make(
        _ delivery: Delivery = .delegateQueue, atClient: Recorder = Recorder(), atServer: Recorder = Recorder()
    ) async throws -> Link {
        let atListener = Recorder()
        let listener = AsyncSocket(delegate: atListener, delegateQueue: delivery.delegateQueue)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = AsyncSocket(delegate: atClient, delegateQueue: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: 60)
        try await atClient.connected()
        let server = try await atListener.accepted()
        server.delegate = atServer
        return Link(
            listener: listener, client: client, server: server, atClient: atClient, atServer: atServer, atListener: atListener)
    }
}

extension Data {
    package init(_ text: String) {
        self.init(text.utf8)
    }

    package static let lineEnd = Data("\r\n")
}
