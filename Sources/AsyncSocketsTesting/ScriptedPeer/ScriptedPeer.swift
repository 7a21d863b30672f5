// Rules of a scripted peer:
//  1. It has one thread, which performs the steps one after the other and blocks in each until it is done.
//  2. Every wait ends: when it has what it waits for, after `timeout`, or at `stop()`.
//  3. The first step that fails ends the script, and the connection with a reset, so that the other side does
//     not hang either.
//  4. After the last step the peer takes and drops what still comes, until the other side ends; only then it
//     closes. A close with unread bytes would turn into a reset, and could destroy bytes that the script has
//     sent.

internal import SocketBuffers
public import SocketTLS

/// A peer on a real TCP socket that does exactly what a script says, however rude that is.
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
/// It listens or connects on 127.0.0.1, and serves one connection. It lives until its script is over, whether
/// you keep it or not.
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
        let listener = try RawSocket.listening(patience: run.patience)
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
            try RawSocket.connected(to: .loopback(port: port), patience: run.patience)
        }
        return ScriptedPeer(port: port, run: run)
    }

    /// Waits until the last step is done, and answers what was read and sent until then.
    ///
    /// The connection stays open, unless a step has ended it, until the other side ends it too or `stop()` is
    /// called.
    ///
    /// - Throws: the `LoopbackError` of the step that failed.
    public func finish() async throws(LoopbackError) -> Report {
        try await run.done.wait(within: run.longestTime)
        guard let result = run.result.withLock({ $0 }) else {
            throw LoopbackError(.stopped, "The script ended without a result.", operation: "finish")
        }
        return try result.get()
    }

    /// Ends the script and the connection now, with a reset. Does nothing when both are over.
    public func stop() {
        run.patience.stop?.fire()
    }
}

extension ScriptedPeer {
    /// What a script saw and did.
    public struct Report: Sendable {
        /// What each expecting step has taken, in order, as plaintext.
        public var read: [[UInt8]] = []
        /// Everything on the wire, until the last step was done.
        public var transcript = WireTranscript()
        /// What was agreed in the handshake, if there was one.
        public var session: TLSSession?

        /// What each expecting step has taken, as text.
        public var texts: [String] { read.map { String(decoding: $0, as: UTF8.self) } }
    }

    /// One performance of a script: what the peer's thread and `finish()` share.
    private final class Run: Sendable {
        let steps: [Step]
        let patience: Patience
        let done: TestSignal
        let result = Locked<Result<Report, LoopbackError>?>(nil)

        init(steps: [Step], timeout: Duration) throws(LoopbackError) {
            self.steps = steps
            patience = Patience(timeout: timeout, stop: try TestSignal())
            done = try TestSignal()
        }

        /// More than all waits of all steps together, unless the other side dribbles on purpose.
        var longestTime: Duration { patience.timeout * (4 * steps.count + 4) }

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
