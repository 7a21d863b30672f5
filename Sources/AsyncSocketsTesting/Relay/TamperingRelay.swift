// Rules of the relay:
//  1. It takes one connection, and makes one to the target. Each direction has a thread that blocks: one only
//     reads from its source and writes to its destination, so the two never meet except in `RelayState`.
//  2. FIN passes through, each direction for itself; a reset passes through and ends both.
//  3. Every wait ends after `timeout` or at `stop()`, and that ends both directions with a reset.

internal import SocketBuffers

/// A man in the middle on real TCP sockets: it forwards between a client and a server on 127.0.0.1, records
/// every byte, and does to each direction what it was told.
///
///     let reply = "220 go ahead\r\n"
///     let relay = try TamperingRelay(toPort: server.port, fromServer: [.inject(Array("250
///     injected\r\n".utf8), at: reply.utf8.count)]) try socket.connect(toHost: "127.0.0.1", onPort:
///     relay.port)
public final class TamperingRelay: Sendable {
    /// The port on which the relay listens.
    public let port: UInt16

    private let state: RelayState

    /// A relay that listens on a port of 127.0.0.1 that the system chooses, and connects to `target` when
    /// someone connects to it.
    ///
    /// It lives until both sides have ended, whether you keep it or not.
    ///
    /// - Parameters:
    ///   - target: The port of 127.0.0.1 where the server listens.
    ///   - fromClient: What is done to the bytes that the client sends.
    ///   - fromServer: What is done to the bytes that the server sends.
    ///   - timeout: How long each wait may take, for the connection as for the next byte.
    public init(
        toPort target: UInt16,
        fromClient: [Tampering] = [],
        fromServer: [Tampering] = [],
        timeout: Duration = .seconds(30)
    ) throws(LoopbackError) {
        let state = try RelayState(timeout: timeout)
        let listener = try RawSocket.listening(patience: state.patience)
        self.state = state
        port = try listener.localPort
        try BlockingThread.start {
            do throws(LoopbackError) {
                let client = try listener.accepted()
                let server = try RawSocket.connected(to: .loopback(port: target), patience: state.patience)
                let down = RelayDirection(from: server, to: client, fromServer, .server, state)
                let up = RelayDirection(from: client, to: server, fromClient, .client, state)
                try BlockingThread.start { down.run() }
                up.run()
            } catch {
                state.abandon(error)
            }
        }
    }

    /// What each side has sent so far, before it was tampered with.
    public var original: WireTranscript { state.original.withLock { $0 } }

    /// What was passed on so far, tampered with.
    public var delivered: WireTranscript { state.delivered.withLock { $0 } }

    /// Waits until both directions have ended: by FIN, by a reset (of one side, or one that was asked for),
    /// or by `stop()`.
    ///
    /// - Throws: `LoopbackError` when the connection could not be made, or when nothing happened for too
    ///   long.
    public func finish(within timeout: Duration = .seconds(30)) async throws(LoopbackError) {
        try await state.done.wait(within: timeout)
        if let failure = state.failure { throw failure }
    }

    /// Resets both connections now.
    public func stop() {
        state.patience.stop?.fire()
    }
}
