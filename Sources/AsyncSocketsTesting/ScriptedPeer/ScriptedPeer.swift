// Rules of a scripted peer:
//  1. One thread performs the steps in order and blocks in each step until it is complete.
//  2. Every wait is bounded: it returns when its event occurs, after `timeout`, or when `stop()` is called.
//  3. The first failed step stops the script and resets the connection, so that the other side does not
//     hang either.
//  4. After the last step, the peer receives and discards bytes until the other side closes the connection,
//     and only then closes its own socket. Closing with unread bytes would send a reset, which could
//     destroy bytes that the script has sent.

internal import SocketBuffers
public import SocketTLS

/// A peer on a real TCP socket that follows a script exactly, even if the script violates the protocol.
///
///     let peer = try ScriptedPeer.listening([
///         .send("220 ready\r\n"),
///         .expect("STARTTLS\r\n"),
///         .send("220 go ahead\r\n250 injected\r\n"),
///     ])
///     try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
///     …
///     let report = try await peer.finish()
///
/// The peer listens or connects on 127.0.0.1 and serves a single connection. It runs until its script is
/// complete, even if you do not keep a reference to it.
public final class ScriptedPeer: Sendable {
    /// The port on which the peer listens, or the port it connected to.
    public let port: UInt16

    private let run: Run

    private init(port: UInt16, run: Run) {
        self.port = port
        self.run = run
    }

    /// Creates a peer that listens on 127.0.0.1, accepts one connection and then performs `steps`. The
    /// system chooses the port.
    ///
    /// - Parameters:
    ///   - steps: The script.
    ///   - timeout: The time limit for accepting the connection, and for each wait in a step.
    public static func listening(
        _ steps: [Step], timeout: Duration = .seconds(60)
    ) throws(LoopbackError) -> ScriptedPeer {
        let run = try Run(steps: steps, timeout: timeout)
        let listener = try RawSocket.listening(waitLimit: run.waitLimit)
        let peer = ScriptedPeer(port: try listener.localPort, run: run)
        try run.start(side: .server) { () throws(LoopbackError) in try listener.accepted() }
        return peer
    }

    /// Creates a peer that connects to `port` on 127.0.0.1 and then performs `steps`.
    ///
    /// - Parameters:
    ///   - port: The port on 127.0.0.1 on which the other side listens.
    ///   - steps: The script.
    ///   - timeout: The time limit for connecting, and for each wait in a step.
    public static func connecting(
        toPort port: UInt16, _ steps: [Step], timeout: Duration = .seconds(60)
    ) throws(LoopbackError) -> ScriptedPeer {
        let run = try Run(steps: steps, timeout: timeout)
        try run.start(side: .client) { () throws(LoopbackError) in
            try RawSocket.connected(to: .loopback(port: port), waitLimit: run.waitLimit)
        }
        return ScriptedPeer(port: port, run: run)
    }

    /// Waits until the last step is complete, and returns the data received and sent so far.
    ///
    /// Unless a step closed the connection, it stays open until the other side closes it or `stop()` is
    /// called.
    ///
    /// - Throws: The `LoopbackError` of the step that failed.
    public func finish() async throws(LoopbackError) -> Report {
        try await run.done.wait(within: run.longestTime)
        guard let result = run.result.withLock({ $0 }) else {
            throw LoopbackError(.stopped, "the script finished without a result", operation: "finish")
        }
        return try result.get()
    }

    /// Stops the script and resets the connection immediately. Has no effect if the script has finished and
    /// the connection is already closed.
    public func stop() {
        run.waitLimit.stop?.fire()
    }
}

extension ScriptedPeer {
    /// The results of a script: the data it received and sent.
    public struct Report: Sendable {
        /// The plaintext that each expecting step received, in order.
        public var read: [[UInt8]] = []
        /// All bytes on the wire until the last step was complete.
        public var transcript = WireTranscript()
        /// The TLS session. `nil` if no handshake was completed, or if the script closed or reset the
        /// connection.
        public var session: TLSSession?

        /// The plaintext that each expecting step received, as text.
        public var texts: [String] { read.map { String(decoding: $0, as: UTF8.self) } }
    }

    /// One run of a script: the state shared by the peer's thread and `finish()`.
    private final class Run: Sendable {
        let steps: [Step]
        let waitLimit: WaitLimit
        let done: TestSignal
        let result = Locked<Result<Report, LoopbackError>?>(nil)

        init(steps: [Step], timeout: Duration) throws(LoopbackError) {
            self.steps = steps
            waitLimit = WaitLimit(timeout: timeout, stop: try TestSignal())
            done = try TestSignal()
        }

        /// An upper bound on the time for all steps, unless the other side deliberately sends slowly.
        var longestTime: Duration { waitLimit.timeout * (4 * steps.count + 4) }

        func start(
            side: WireTranscript.Side, open: @escaping @Sendable () throws(LoopbackError) -> RawSocket
        ) throws(LoopbackError) {
            try BlockingThread.start {
                do throws(LoopbackError) {
                    let connection = ScriptedConnection(socket: try open(), side: side)
                    self.conclude(.success(try connection.perform(self.steps)))
                    connection.drain()
                } catch {
                    self.conclude(.failure(error))
                }
            }
        }

        private func conclude(_ result: Result<Report, LoopbackError>) {
            self.result.withLock { $0 = result }
            done.fire()
        }
    }
}
