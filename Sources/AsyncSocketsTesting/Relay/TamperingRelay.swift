// Rules of the relay:
//  1. It accepts one connection and opens one connection to the target. Each direction has a thread that
//     reads from its source and writes to its destination with blocking calls. The directions share only
//     `RelayState`.
//  2. FIN is forwarded separately in each direction. A reset is forwarded and closes both directions.
//  3. Every wait is bounded by `timeout` and `stop()`. A timeout or a stop closes both directions with a
//     reset.

internal import SocketBuffers

/// A man in the middle on real TCP sockets. It forwards data between a client and a server on 127.0.0.1,
/// records every byte, and tampers with each direction as instructed.
///
///     let reply = "220 go ahead\r\n"
///     let injection = Tampering.inject(Array("250 injected\r\n".utf8), at: reply.utf8.count)
///     let relay = try TamperingRelay(toPort: server.port, fromServer: [injection])
///     try socket.connect(toHost: "127.0.0.1", onPort: relay.port)
public final class TamperingRelay: Sendable {
    /// The port on which the relay listens.
    public let port: UInt16

    private let state: RelayState

    /// Creates a relay that listens on 127.0.0.1 and connects to `target` when a client connects. The system
    /// chooses the port.
    ///
    /// The relay runs until both directions are closed, even if you do not keep a reference to it.
    ///
    /// - Parameters:
    ///   - target: The server's port on 127.0.0.1.
    ///   - fromClient: The modifications to the client's bytes.
    ///   - fromServer: The modifications to the server's bytes.
    ///   - timeout: The time limit for each wait: for a connection or for the next byte.
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

    /// The bytes that the relay has forwarded so far, after tampering.
    public var delivered: WireTranscript { state.delivered.withLock { $0 } }

    /// Waits until both directions are closed: by FIN, by a reset (from one side or from the relay), or by
    /// `stop()`.
    ///
    /// - Throws: `LoopbackError` if a connection could not be established or a wait timed out.
    public func finish(within timeout: Duration = .seconds(30)) async throws(LoopbackError) {
        try await state.done.wait(within: timeout)
        if let failure = state.failure { throw failure }
    }

    /// Resets both connections immediately.
    public func stop() {
        state.waitLimit.stop?.fire()
    }
}
