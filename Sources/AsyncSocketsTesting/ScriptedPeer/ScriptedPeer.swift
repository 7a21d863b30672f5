// Rules of a scripted peer:
//  1. One thread performs the steps in order, and blocks in each until it is done.
//  2. Every wait ends: with its event, after `timeout`, or at `stop()`.
//  3. The first step that fails ends the script, and resets the connection, so that the other side does not
//     hang either.
//  4. After the last step the peer receives and drops bytes until the other side ends, and only then closes.
//     A close with unread bytes would become a reset, which could destroy bytes that the script has sent.

internal import SocketBuffers
public import SocketTLS

/// A peer on a real TCP socket that does exactly what a script says, however hostile.
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
/// It listens or connects on 127.0.0.1, and serves one connection. It lives until its script ends, even if
/// you do not keep it.
public final class ScriptedPeer: Sendable {
    /// The port on which the peer listens, or to which it has connected.
    public let port: UInt16

    private let run: Run

    private init(port: UInt16, run: Run) {
        self.port = port
        self.run = run
    }

    /// A peer that listens on a port of 127.0.0.1 that the system chooses, accepts one connection and then
    /// performs `steps`.
    ///
    /// - Parameters:
    ///   - steps: The script.
    ///   - timeout: How long accepting, and each wait in a step, may take.
    public static func listening(
        _ steps: [Step], timeout: Duration = .seconds(60)
    ) throws(LoopbackError) -> ScriptedPeer {
        let run = try Run(steps: steps, timeout: timeout)
        let listener = try RawSocket.listening(waitLimit: run.waitLimit)
        let peer = ScriptedPeer(port: try listener.localPort, run: run)
        try run.start(side: .server) { () throws(LoopbackError) in try listener.accepted() }
        return peer
    }

    /// A peer that connects to `port` on 127.0.0.1 and then performs `steps`.
    ///
    /// - Parameters:
    ///   - port: The port of 127.0.0.1 where the other side listens.
    ///   - steps: The script.
    ///   - timeout: How long connecting, and each wait in a step, may take.
    public static func connecting(
        toPort port: UInt16, _ steps: [Step], timeout: Duration = .seconds(60)
    ) throws(LoopbackError) -> ScriptedPeer {
        let run = try Run(steps: steps, timeout: timeout)
        try run.start(side: .client) { () throws(LoopbackError) in
            try RawSocket.connected(to: .loopback(port: port), waitLimit: run.waitLimit)
        }
        return ScriptedPeer(port: port, run: run)
    }

    /// Waits until the last step is done; returns what was read and sent until then.
    ///
    /// Unless a step has ended the connection, it stays open until the other side ends it or `stop()` is
    /// called.
    ///
    /// - Throws: The `LoopbackError` of the step that failed.
    public func finish() async throws(LoopbackError) -> Report {
        try await run.done.wait(within: run.longestTime)
        guard let result = run.result.withLock({ $0 }) else {
            throw LoopbackError(.stopped, "The script ended without a result.", operation: "finish")
        }
        return try result.get()
    }

    /// Ends the script and resets the connection now. Does nothing if both have ended.
    public func stop() {
        run.waitLimit.stop?.fire()
    }
}

extension ScriptedPeer {
    /// The results of a script: what it received and sent.
    public struct Report: Sendable {
        /// The plaintext that each expecting step took, in order.
        public var read: [[UInt8]] = []
        /// All bytes on the wire until the last step was done.
        public var transcript = WireTranscript()
        /// The result of the handshake, if there was one.
        public var session: TLSSession?

        /// The text that each expecting step took.
        public var texts: [String] { read.map { String(decoding: $0, as: UTF8.self) } }
    }

    /// One run of a script: the state that the peer's thread and `finish()` share.
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

        /// Longer than all waits of all steps together, unless the other side sends slowly on purpose.
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
