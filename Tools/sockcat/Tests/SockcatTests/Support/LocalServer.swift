import AsyncSockets

/// A server in the test process, on a free port of 127.0.0.1. It serves each connection with a closure.
final class LocalServer: Sendable {
    let port: UInt16
    private let task: Task<Void, any Error>

    /// - Parameters:
    ///   - proxyProtocol: The connections that must start with a PROXY header.
    ///   - body: Serves a connection, which closes when the closure exits.
    init(
        proxyProtocol: SocketListener.ProxyProtocol? = nil, _ body: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", proxyProtocol: proxyProtocol)
        port = listener.localPort
        task = Task { try await listener.run(onError: { _, _ in }, body) }
    }

    deinit { task.cancel() }
}
