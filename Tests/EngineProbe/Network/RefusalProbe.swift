internal import AsyncSockets
internal import AsyncSocketsTesting
internal import CSeccomp
internal import Foundation
internal import Logging
internal import SocketBuffers
internal import SocketCore

/// System calls that the kernel starts to reject, as with a container's filter or a security module. The
/// caller must receive an error that names the call, the log must have one line, and no processor time may be
/// wasted.
enum RefusalProbe {
    /// - Parameters:
    ///   - user: What makes the call.
    ///   - number: The `errno` of the call.
    static func run(_ user: String, _ number: CInt) throws {
        LogCounter.install()
        let (begin, beginTime) = (ContinuousClock.now, clock())
        let error = try end(of: user, number)
        let seconds = (ContinuousClock.now - begin) / .seconds(1)
        let busy = Double(clock() - beginTime) / Double(CLOCKS_PER_SEC)
        let call = ["recvmmsg", "accept4"].first { error.message.contains($0) }
        guard call != nil, error.errno == number, error.code == .system, error.fault == .system else {
            throw ProbeFailure(description: "\(error), errno \(error.errno ?? 0), \(error.code), \(error.fault)")
        }
        // A spinning loop would use all of the time.
        guard busy < 1 + seconds / 4 else { throw ProbeFailure(description: "\(busy) s of processor time in \(seconds) s") }
        let lines = LogCounter.lines.withLock { $0 }
        print("\(user): \(error) after \(seconds) s, \(busy) s of processor time; log: \(lines)")
        guard (1...2).contains(lines.count), lines.allSatisfy({ $0.contains(call ?? "") }) else {
            throw ProbeFailure(description: "\(lines.count) lines in the log")
        }
    }

    /// Returns the error that the user receives.
    private static func end(of user: String, _ number: CInt) throws -> AsyncSocketError {
        switch user {
        case "run":
            let listener = try SocketListener(port: 0, interface: "127.0.0.1")
            try refuse(CSeccomp_accept4, number)
            return try withClient(of: listener) { try error { try await listener.run { _ in } } }
        case "connections":
            let listener = try SocketListener(port: 0, interface: "127.0.0.1")
            try refuse(CSeccomp_accept4, number)
            return try withClient(of: listener) { try error { for try await _ in listener.connections {} } }
        case "delegate":
            let party = Party()
            let socket = AsyncSocket(inlineDelegate: party)
            try refuse(CSeccomp_accept4, number)
            try socket.accept(onInterface: "127.0.0.1", port: 0)
            // With ENOSYS the port may be closed already.
            let client = try? RawSocket.connected(to: .loopback(port: socket.localPort))
            return try withExtendedLifetime((client, socket)) { try required(party.ends.next()) }
        case "receive", "receive-soon":
            let socket = AsyncUDPSocket()
            try socket.bind(toPort: 0, interface: "127.0.0.1")
            try refuse(CSeccomp_recvmmsg, number)
            return try error { _ = try await socket.receive(timeout: .seconds(user == "receive" ? 60 : 1)) }
        case "peers":
            let listener = try DatagramListener(port: 0, interface: "127.0.0.1")
            try refuse(CSeccomp_recvmmsg, number)
            return try error { for try await _ in listener.peers {} }
        case "serve-peers":
            let listener = try DatagramListener(port: 0, interface: "127.0.0.1")
            try refuse(CSeccomp_recvmmsg, number)
            return try error { try await listener.run { _ in } }
        case "peer-soon":
            let listener = try DatagramListener(port: 0, interface: "127.0.0.1")
            let peerErrors = Mailbox<(any Error)?>()
            Task { try await servePeer(of: listener, number, peerErrors, timeout: .seconds(1)) }
            return try required(peerErrors.next())
        case "peer":
            let listener = try DatagramListener(port: 0, interface: "127.0.0.1")
            let peerErrors = Mailbox<(any Error)?>()
            let error = try error { try await servePeer(of: listener, number, peerErrors) }
            let peerError = try required(peerErrors.next())
            guard peerError.message == error.message else { throw ProbeFailure(description: "the peer got \(peerError)") }
            return error
        default: throw ProbeFailure(description: "say who makes the call")
        }
    }

    /// A peer is being served when the calls start to fail.
    private static func servePeer(
        of listener: DatagramListener, _ number: CInt, _ peerErrors: Mailbox<(any Error)?>, timeout: Duration? = nil
    ) async throws {
        let client = AsyncUDPSocket()
        try await client.send(Data([1]), to: "127.0.0.1", port: listener.localPort)
        try await listener.run { socket in
            _ = try await socket.receive()
            try refuse(CSeccomp_recvmmsg, number)
            try await client.send(Data([2]), to: "127.0.0.1", port: listener.localPort)
            do {
                _ = try await socket.receive(timeout: timeout)
                peerErrors.put(nil)
            } catch {
                peerErrors.put(error)
            }
        }
    }

    /// Each connection seems to have failed, but stays in the backlog. Accepting must pause for longer and
    /// longer, and continue.
    static func runSkips() throws {
        let (observer, party) = (PauseObserver(), Party())
        let (listener, beginTime, begin) = (AsyncSocket(inlineDelegate: party), clock(), ContinuousClock.now)
        listener.observer = observer
        try refuse(CSeccomp_accept4, ECONNABORTED)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: .loopback(port: listener.localPort))
        // More pauses than a rejected call would be allowed.
        let pauses = try (0..<15).map { _ in try observer.pauses.next() }
        let busy = Double(clock() - beginTime) / Double(CLOCKS_PER_SEC)
        let seconds = (ContinuousClock.now - begin) / .seconds(1)
        guard pauses.prefix(6).map(\.retryDelay) == [0.05, 0.1, 0.2, 0.4, 0.8, 1].map({ .seconds($0) }), busy < 1 + seconds / 4
        else {
            throw ProbeFailure(description: "\(pauses), \(busy) s of processor time in \(seconds) s")
        }
        withExtendedLifetime((client, listener, party)) {}
        print("\(busy) s of processor time in \(seconds) s")
    }

    private final class PauseObserver: SocketObserver, Sendable {
        let pauses = Mailbox<AcceptPause>()

        func acceptingDidPause(_ pause: AcceptPause) { pauses.put(pause) }
    }

    /// The thread of a loop cannot wait for events. This must be logged once, and the thread must not spin.
    static func runLoop() throws {
        LogCounter.install()
        let loop = try SocketEventLoop()
        let (results, beginTime, begin) = (Mailbox<Int32>(), clock(), ContinuousClock.now)
        loop.run {
            for call in [CSeccomp_epoll_wait, CSeccomp_epoll_pwait] { results.put(CSeccomp_refuse(call, EPERM, 0)) }
        }
        for _ in 0..<2 where try results.next() != 0 { throw ProbeFailure(description: "seccomp") }
        // Each call may need a thread whose calls are not rejected yet, or the end of a pause.
        let threads = Locked<Set<pthread_t>>([])
        for _ in 0..<20 {
            loop.run {
                _ = threads.withLock { $0.insert(pthread_self()) }
                results.put(0)
            }
            _ = try results.next()
        }
        let busy = Double(clock() - beginTime) / Double(CLOCKS_PER_SEC)
        let seconds = (ContinuousClock.now - begin) / .seconds(1)
        let lines = LogCounter.lines.withLock { $0 }
        // On a thread whose calls are not rejected, the loop recovers, and the next failure is logged again.
        guard (1...max(1, threads.withLock { $0.count })).contains(lines.count), busy < 1 + seconds / 4,
            lines.allSatisfy({ $0.contains("epoll_wait: operation not permitted") })
        else {
            throw ProbeFailure(description: "\(lines), \(busy) s of processor time in \(seconds) s")
        }
        print("\(lines[0]), \(busy) s of processor time in \(seconds) s")
    }

    static func refuse(_ call: Int, _ number: CInt) throws {
        guard CSeccomp_refuse(call, number, 1) == 0 else { throw ProbeFailure(description: "seccomp: errno \(errno)") }
    }

    private static func withClient<Result>(of listener: SocketListener, _ body: () throws -> Result) throws -> Result {
        let client = try RawSocket.connected(to: .loopback(port: listener.localPort))
        return try withExtendedLifetime(client) { try body() }
    }

    /// Returns the error that a task throws.
    private static func error(_ body: @escaping @Sendable () async throws -> Void) throws -> AsyncSocketError {
        let ends = Mailbox<(any Error)?>()
        Task {
            do {
                try await body()
                ends.put(nil)
            } catch {
                ends.put(error)
            }
        }
        return try required(ends.next())
    }

    private static func required(_ error: (any Error)?) throws -> AsyncSocketError {
        guard let error else { throw ProbeFailure(description: "it closed without an error") }
        guard let error = error as? AsyncSocketError else { throw error }
        return error
    }

    private final class Party: AsyncSocketDelegate, Sendable {
        let ends = Mailbox<AsyncSocketError?>()

        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) { ends.put(error) }
    }
}

/// Records the lines of the log at level `warning` and above.
private struct LogCounter: LogHandler {
    static let lines = Locked<[String]>([])

    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.warning

    static func install() {
        socketLog.withLock { $0 = Logger(label: "probe") { _ in LogCounter() } }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        Self.lines.withLock { $0.append("\(event.message) \(event.metadata ?? [:])") }
    }
}
