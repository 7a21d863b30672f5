// Rules of the relay:
//  1. It accepts one connection, and makes one to the target. Each direction has a thread that blocks, reads
//     from its source and writes to its destination. The two share only `RelayState`.
//  2. FIN passes through in each direction separately; a reset passes through and ends both.
//  3. Every wait ends after `timeout` or at `stop()`; then both directions end with a reset.

internal import SocketBuffers

/// A man in the middle on real TCP sockets: it forwards between a client and a server on 127.0.0.1, records
/// every byte, and tampers with each direction as the test asks.
///
///     let reply = "220 go ahead\r\n"
///     let injection = Tampering.inject(Array("250 injected\r\n".utf8), at: reply.utf8.count)
///     let relay = try TamperingRelay(toPort: server.port, fromServer: [injection])
///     try socket.connect(toHost: "127.0.0.1", onPort: relay.port)
public final class TamperingRelay: Sendable {
    /// The port on which the relay listens.
    public let port: UInt16

    private let state: RelayState

    /// A relay that listens on a port of 127.0.0.1 that the system chooses, and connects to `target` when
    /// someone connects to it.
    ///
    /// It lives until both sides have ended, even if you do not keep it.
    ///
    /// - Parameters:
    ///   - target: The port of 127.0.0.1 where the server listens.
    ///   - fromClient: The changes to the client's bytes.
    ///   - fromServer: The changes to the server's bytes.
    ///   - timeout: How long each wait may take, for the connection and for the next byte.
    public init(
        toPort target: UInt16,
        fromClient: [Tampering] = [],
        fromServer: [Tampering] = [],
        timeout: Duration = .seconds(30)
    ) throws(LoopbackError) {
        let state = try RelayState(timeout: timeout)
        let listener = try RawSocket.listening(waitLimit: state.waitLimit)
        self.state = state
        port = try listener.localPort
        try BlockingThread.start {
            do throws(LoopbackError) {
                let client = try listener.accepted()
                let server = try RawSocket.connected(to: .loopback(port: target), waitLimit: state.waitLimit)
                let down = RelayDirection(from: server, to: client, fromServer, .server, state)
                let up = RelayDirection(from: client, to: server, fromClient, .client, state)
                try BlockingThread.start { down.run() }
                up.run()
            } catch {
                state.abandon(error)
            }
        }
    }

    /// The bytes that each side has sent so far, before tampering.
    public var original: WireTranscript { state.original.withLock { $0 } }

    /// The bytes that the relay has passed on so far, after tampering.
    public var delivered: WireTranscript { state.delivered.withLock { $0 } }

    /// Waits until both directions have ended: by FIN, by a reset (of one side or of the relay), or by
    /// `stop()`.
    ///
    /// - Throws: `LoopbackError` if the connection could not be made, or if a wait took too long.
    public func finish(within timeout: Duration = .seconds(30)) async throws(LoopbackError) {
        try await state.done.wait(within: timeout)
        if let failure = state.failure { throw failure }
    }

    /// Resets both connections now.
    public func stop() {
        state.waitLimit.stop?.fire()
    }
}
