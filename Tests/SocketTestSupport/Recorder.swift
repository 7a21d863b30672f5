package import AsyncSockets
package import FoundationEssentials
internal import SocketBuffers

/// An event received by a delegate.
package enum Told: Sendable {
    case accepted(AsyncSocket)
    case connected(host: String, port: UInt16)
    case connectedTo(String)
    case progressed(ConnectionProgress)
    case read(Data, tag: Int)
    case readPartial(Int, tag: Int)
    case notRead(Data, tag: Int, AsyncSocketError)
    case readStreamClosed
    case highWater(Int)
    case wrote(tag: Int)
    case wrotePartial(Int, tag: Int)
    case asked(PeerTrust, answer: @Sendable (Bool) -> Void)
    case secured
    case requestedCertificate(Result<TLSSession, AsyncSocketError>)
    case disconnected(AsyncSocketError?)
}

extension AsyncSocketError {
    /// Whether the message starts with the number of bytes received before the handshake. It is at least one,
    /// and depends on how many of `limit` have arrived by then.
    package func namesEarlyBytes(upTo limit: Int) -> Bool {
        message.split(separator: " ").first.flatMap { Int($0) }.map { (1...limit).contains($0) } ?? false
    }
}

/// An event other than the expected one was received.
package struct Unexpected: Error, CustomStringConvertible {
    package let description: String

    package init(description: String) {
        self.description = description
    }
}

/// A delegate that records its events, so that a test can wait for them. It retains accepted sockets.
///
/// Progress is not recorded unless a test requests it.
package final class Recorder: AsyncSocketDelegate, Sendable {
    private struct State {
        /// Two stacks form a queue, so that the cost per event does not grow with their number.
        var incoming: [Told] = []
        var outgoing: [Told] = []
        /// Resumed when there is an event. The event itself is passed through the lock, which ThreadSanitizer
        /// supports.
        var waiter: CheckedContinuation<Void, Never>?
        var accepted: [AsyncSocket] = []

        mutating func takeOldest() -> Told? {
            if outgoing.isEmpty {
                outgoing = incoming.reversed()
                incoming = []
            }
            return outgoing.popLast()
        }
    }

    private let state = Locked(State())
    private let recordsProgress: Bool
    private let recordsSteps: Bool
    private let readExtension: TimeInterval
    /// A read that times out is extended until it has this many bytes.
    private let patientUntil: Int
    /// Called on the delegate queue, before the event is recorded.
    package let reaction: (@Sendable (AsyncSocket, Told) -> Void)?

    package init(
        recordsProgress: Bool = false, recordsSteps: Bool = false, readExtension: TimeInterval = 0, patientUntil: Int = 0,
        reaction: (@Sendable (AsyncSocket, Told) -> Void)? = nil
    ) {
        self.recordsProgress = recordsProgress
        self.recordsSteps = recordsSteps
        self.readExtension = readExtension
        self.patientUntil = patientUntil
        self.reaction = reaction
    }

    private func record(_ told: Told, from socket: AsyncSocket) {
        reaction?(socket, told)
        let waiter = state.withLock { state -> CheckedContinuation<Void, Never>? in
            if case .accepted(let socket) = told { state.accepted.append(socket) }
            state.incoming.append(told)
            return state.waiter.take()
        }
        waiter?.resume()
    }

    /// Returns the next event. If there is none, the test's time limit ends the wait.
    package func next() async -> Told {
        while true {
            if let told = state.withLock({ $0.takeOldest() }) { return told }
            await withCheckedContinuation { continuation in
                let isThere = state.withLock { state in
                    guard state.incoming.isEmpty, state.outgoing.isEmpty else { return true }
                    state.waiter = continuation
                    return false
                }
                if isThere { continuation.resume() }
            }
        }
    }

    /// The events that were not consumed.
    package var unread: [Told] { state.withLock { $0.outgoing.reversed() + $0.incoming } }

    // MARK: - Waiting for particular events

    /// Waits for the progress of the read with `tag` up to `count` bytes, in any number of pieces.
    package func readProgress(to count: Int, tag: Int) async throws {
        var total = 0
        while total < count {
            let told = await next()
            guard case .readPartial(let more, tag: tag) = told else { throw Unexpected(description: "\(told)") }
            total += more
        }
        guard total == count else { throw Unexpected(description: "progress to \(total)") }
    }

    package func accepted() async throws -> AsyncSocket {
        let told = await next()
        guard case .accepted(let socket) = told else { throw Unexpected(description: "\(told)") }
        return socket
    }

    package func connected() async throws {
        let told = await next()
        guard case .connected = told else { throw Unexpected(description: "\(told)") }
    }

    package func connectedTo() async throws -> String {
        let told = await next()
        guard case .connectedTo(let path) = told else { throw Unexpected(description: "\(told)") }
        return path
    }

    /// Returns the steps of connecting until the connection is established or has failed. Requires
    /// `recordsSteps`.
    package func steps() async -> [ConnectionProgress] {
        var steps: [ConnectionProgress] = []
        while case .progressed(let step) = await next() { steps.append(step) }
        return steps
    }

    /// Returns the next incomplete read.
    package func notRead() async throws -> (data: Data, tag: Int, error: AsyncSocketError) {
        let told = await next()
        guard case .notRead(let data, let tag, let error) = told else { throw Unexpected(description: "\(told)") }
        return (data, tag, error)
    }

    package func readStreamClosed() async throws {
        let told = await next()
        guard case .readStreamClosed = told else { throw Unexpected(description: "\(told)") }
    }

    package func highWater() async throws -> Int {
        let told = await next()
        guard case .highWater(let count) = told else { throw Unexpected(description: "\(told)") }
        return count
    }

    package func wrote() async throws -> Int {
        let told = await next()
        guard case .wrote(let tag) = told else { throw Unexpected(description: "\(told)") }
        return tag
    }

    package func secured() async throws {
        let told = await next()
        guard case .secured = told else { throw Unexpected(description: "\(told)") }
    }

    package func requestedCertificate() async throws -> Result<TLSSession, AsyncSocketError> {
        let told = await next()
        guard case .requestedCertificate(let result) = told else { throw Unexpected(description: "\(told)") }
        return result
    }

    package func asked() async throws -> (PeerTrust, @Sendable (Bool) -> Void) {
        let told = await next()
        guard case .asked(let trust, let answer) = told else { throw Unexpected(description: "\(told)") }
        return (trust, answer)
    }

    /// Returns the next data as text. Skips completions of writes.
    package func readText() async throws -> String {
        String(decoding: try await readData(), as: UTF8.self)
    }

    package func readData() async throws -> Data {
        while true {
            let told = await next()
            switch told {
            case .read(let data, _): return data
            case .wrote: continue
            default: throw Unexpected(description: "\(told)")
            }
        }
    }

    /// Waits for the end. Skips everything before it, except data, which must not be delivered.
    package func disconnected() async throws -> AsyncSocketError? {
        while true {
            let told = await next()
            switch told {
            case .disconnected(let error): return error
            case .read(let data, _): throw Unexpected(description: "data: \(String(decoding: data, as: UTF8.self))")
            default: continue
            }
        }
    }

    // MARK: - AsyncSocketDelegate

    package func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        record(.accepted(newSocket), from: socket)
    }
    package func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
        record(.connected(host: host, port: port), from: socket)
    }
    package func socket(_ socket: AsyncSocket, didConnectToPath path: String) { record(.connectedTo(path), from: socket) }
    package func socket(_ socket: AsyncSocket, connectionProgressed progress: ConnectionProgress) {
        if recordsSteps { record(.progressed(progress), from: socket) }
    }
    package func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        record(.read(data, tag: tag), from: socket)
    }
    /// Recorded as a read, with a copy of the bytes.
    package func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int) {
        record(.read(bytes.withUnsafeBytes { Data($0) }, tag: tag), from: socket)
    }
    package func socket(_ socket: AsyncSocket, didReadPartialDataOfLength partialLength: Int, tag: Int) {
        if recordsProgress { record(.readPartial(partialLength, tag: tag), from: socket) }
    }
    package func socket(
        _ socket: AsyncSocket, didNotReadDataWithTag tag: Int, bytesSoFar data: Data, dueToError error: AsyncSocketError
    ) {
        record(.notRead(data, tag: tag, error), from: socket)
    }
    package func socketDidCloseReadStream(_ socket: AsyncSocket) { record(.readStreamClosed, from: socket) }
    package func socket(_ socket: AsyncSocket, writeQueueReachedHighWater byteCount: Int) {
        record(.highWater(byteCount), from: socket)
    }
    package func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) { record(.wrote(tag: tag), from: socket) }
    package func socket(_ socket: AsyncSocket, didWritePartialDataOfLength partialLength: Int, tag: Int) {
        if recordsProgress { record(.wrotePartial(partialLength, tag: tag), from: socket) }
    }
    package func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval { length < patientUntil ? 0.05 : readExtension }
    package func socket(_ socket: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void)
    {
        record(.asked(trust, answer: completionHandler), from: socket)
    }
    package func socketDidSecure(_ socket: AsyncSocket) { record(.secured, from: socket) }
    package func socket(_ socket: AsyncSocket, didReceiveClientCertificate result: Result<TLSSession, AsyncSocketError>) {
        record(.requestedCertificate(result), from: socket)
    }
    package func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        record(.disconnected(error), from: socket)
    }
}
