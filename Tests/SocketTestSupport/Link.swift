package import AsyncSockets
package import Dispatch
package import FoundationEssentials

/// A loopback connection between two of our sockets, each with its own recorder.
package struct Link {
    package let listener: AsyncSocket
    package let client: AsyncSocket
    package let server: AsyncSocket
    package let atClient: Recorder
    package let atServer: Recorder
    /// Delegates are weak references, so the link retains this one.
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
        _ delivery: Delivery = .delegateQueue, atClient: Recorder = Recorder(), atServer: Recorder = Recorder(),
        observer: (any SocketObserver)? = nil
    ) async throws -> Link {
        let atListener = Recorder()
        let listener = AsyncSocket(atListener, calledOn: delivery.delegateQueue)
        listener.observer = observer
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = AsyncSocket(atClient, calledOn: delivery.delegateQueue, socketQueue: delivery.socketQueue)
        client.observer = observer
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try await atClient.connected()
        let server = try await atListener.accepted()
        server.changeDelegate(to: atServer)
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

extension AsyncSocket {
    /// Creates a socket whose delegate is called on `queue`, or inline if it is nil.
    package convenience init(
        _ delegate: any AsyncSocketDelegate & Sendable, calledOn queue: DispatchQueue?, socketQueue: DispatchQueue? = nil
    ) {
        if let queue {
            self.init(delegate: delegate, delegateQueue: queue, socketQueue: socketQueue)
        } else {
            self.init(inlineDelegate: delegate, socketQueue: socketQueue)
        }
    }

    /// Sets another delegate, called on the same queue.
    package func changeDelegate(to delegate: any AsyncSocketDelegate & Sendable) {
        call(delegate, on: delegateQueue)
    }

    /// Sets a delegate that is called on `queue`, or inline if it is nil.
    package func call(_ delegate: any AsyncSocketDelegate & Sendable, on queue: DispatchQueue?) {
        if let queue { setDelegate(delegate, delegateQueue: queue) } else { setInlineDelegate(delegate) }
    }
}
