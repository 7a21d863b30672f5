// Rules of a handover:
//  1. The successor connects to the predecessor's socket. Both check that the other process belongs to the
//     same user or root.
//  2. The predecessor sends its listening sockets and ticket keys, and stays in service until the successor
//     replies that it is ready. If the successor closes the connection instead, or does not reply in time,
//     the predecessor continues as before.
//  3. When the successor is ready, the predecessor frees its path, gives up the files of its Unix-domain
//     sockets, stops accepting, and confirms. It closes its descriptors without shutting down the sockets, so
//     the successor accepts the connections in the kernel's backlog.
//  4. If the predecessor exits after its offer, the successor continues with the sockets it has.
//  5. A process offers its sockets to one successor at a time. Others wait.

internal import SocketBuffers
public import SocketCore
public import SocketTLS

/// Replaces a running server by a new process that continues with the same listening sockets, so that no
/// client is refused and no connection is lost.
///
/// ```swift
/// let restart = try await HotRestart(path: "/run/mail/restart")
/// let inherited = restart.descriptors(named: "smtp")
/// let listener = inherited.isEmpty ? try SocketListener(port: 25) : try SocketListener(inherited: inherited)
/// async let handover = restart.run(["smtp": listener])
/// try await listener.run(untilSignals: [SIGTERM]) { socket in … }
/// _ = try await handover
/// ```
///
/// Start the new version of the program while the old one is running. It takes over the listening sockets and
/// the session ticket keys, and reports with `run` that it can serve. The old process then stops accepting,
/// lets its connections finish, and exits. If the new process fails before that, the old process stays in
/// service.
///
/// Both processes must run as the same user or as root. TCP and Unix-domain sockets can be handed over, but
/// not the sockets of a `DatagramListener`, because the peers of the old process would be lost.
public final class HotRestart: Sendable {
    private struct State {
        /// The connection to the predecessor, until it has confirmed.
        var predecessor: PacketSocket?
        var descriptors: [InheritedDescriptor] = []
    }

    /// Ticket keys that the successor takes over:
    /// `settings.sessionTickets = .issued(2, keys: restart.ticketKeys)`.
    public let ticketKeys: TLSRotatingTicketKeys
    /// Whether another process has offered its sockets.
    public let hasPredecessor: Bool
    private let path: String
    private let address: SocketEndpoint
    private let loop: SocketEventLoop
    private let state: Locked<State>

    /// Takes over the sockets of a running process with the same path.
    ///
    /// - Parameters:
    ///   - path: The path of the Unix-domain socket at which the running process offers its sockets. Its
    ///     directory must be writable only for the user of the server, for example a `RuntimeDirectory=` of
    ///     systemd.exec(5). The path has 1 to 107 bytes.
    ///   - timeout: How long the running process may take to send its offer.
    /// - Throws: `.badParameter` for an invalid path; `.badConfiguration` if the offer cannot be used;
    ///   `.system` with EPERM if the running process belongs to another user, with ETIMEDOUT after `timeout`,
    ///   and with the kernel's error if connecting fails; `.tls` for invalid keys; `CancellationError` if the
    ///   task is cancelled.
    public nonisolated(nonsending) init(path: String, timeout: Duration = .seconds(30)) async throws {
        self.path = path
        address = try SocketEndpoint.ofSocket(at: path, .restart)
        loop = try Self.typed { () throws(SystemError) in try SocketEventLoop.next() }
        guard let predecessor = try Self.typed({ [address, loop] () throws(SystemError) in try Self.connect(to: address, loop) })
        else {
            (ticketKeys, hasPredecessor, state) = (try TLSRotatingTicketKeys(), false, Locked(State()))
            return
        }
        do {
            try Self.typed { () throws(SystemError) in try predecessor.checkPeer() }
            let deadline = Deadline(after: timeout.inSeconds)
            let offer = try await Self.packet(from: predecessor, until: deadline)
            let descriptors = try HandoverOffer.descriptors(in: offer)
            let keys = try await Self.packet(from: predecessor, until: deadline)
            ticketKeys = try keys.bytes.withUnsafeBytes { try TLSRotatingTicketKeys(records: $0) }
            state = Locked(State(predecessor: predecessor, descriptors: descriptors))
            hasPredecessor = true
        } catch {
            predecessor.close()
            throw error
        }
    }

    deinit { state.withLock { $0.predecessor.take() }?.close() }

    /// Returns `nil` if no process listens at the address.
    private static func connect(to address: SocketEndpoint, _ loop: SocketEventLoop) throws(SystemError) -> PacketSocket? {
        do throws(SystemError) {
            return try PacketSocket.connect(to: address, on: loop)
        } catch {
            if error.isMissing { return nil }
            throw error
        }
    }

    private nonisolated(nonsending) static func packet(
        from socket: PacketSocket, until deadline: Deadline?
    ) async throws -> PacketSocket.Packet {
        let packet: PacketSocket.Packet?
        do throws(SystemError) {
            packet = try await socket.receive(until: deadline)
        } catch {
            try Task.checkCancellation()
            throw AsyncSocketError(error, operation: .restart)
        }
        guard let packet else { throw AsyncSocketError.handover("the running process closed the connection without an offer") }
        return packet
    }

    private static func typed<Result>(_ call: () throws(SystemError) -> Result) throws(AsyncSocketError) -> Result {
        do throws(SystemError) {
            return try call()
        } catch {
            throw AsyncSocketError(error, operation: .restart)
        }
    }

    // MARK: - The successor

    /// Returns the listening sockets that the running process offered under a name, once. The array is empty
    /// if the process offered none, or if no process was running.
    ///
    /// Pass them to `SocketListener(inherited:)`. Sockets that you do not request are closed when `run`
    /// is called or this object is released. Their connections in the backlog are reset if the old process
    /// has also closed the socket.
    public func descriptors(named name: String) -> [InheritedDescriptor] {
        state.withLock { state in
            defer { state.descriptors.removeAll { $0.name == name } }
            return state.descriptors.filter { $0.name == name }
        }
    }

    /// Declares that this process can serve, so that the running process stops accepting, and then offers the
    /// listeners to a later process.
    ///
    /// Call this when your program is ready: the listeners exist, configuration and certificates are loaded.
    /// Connections that arrive before `SocketListener.run` is called are kept in the kernel's backlog.
    /// Returns when a successor takes over, or when one of the listeners starts to close for another reason,
    /// such as a signal. The path is then free.
    ///
    /// - Parameters:
    ///   - listeners: The listeners by name. A successor receives their sockets under the same names.
    ///   - closeTimeout: How long the connections may take after a successor takes over. Defaults to 30
    ///     seconds; `nil` sets no limit. See `ServingListener.close(timeout:)`.
    ///   - startTimeout: How long a successor may take from the offer to its call of `run`. After that, this
    ///     process stays in service. Defaults to 60 seconds.
    /// - Returns: Whether this process was replaced.
    /// - Throws: `.badParameter` for a listener that cannot be handed over, or for too many sockets;
    ///   `.badConfiguration` if the running process stays in service because this process started too slowly;
    ///   `.system` with EADDRINUSE if another process uses the path, and with the kernel's error if listening
    ///   or accepting fails; `CancellationError` if the task is cancelled. The listeners are not closed.
    @concurrent
    public func run(
        _ listeners: [String: any ServingListener], closeTimeout: Duration? = .seconds(30),
        startTimeout: Duration = .seconds(60)
    ) async throws -> Bool {
        let party = try HandoverParty(listeners)
        try await takeOver(party)
        let door = try Self.typed { () throws(SystemError) in try PacketSocket.listen(at: address, on: loop) }
        defer { door.close() }
        party.notify(.ready, .mainProcess)
        let ticketKeys = ticketKeys
        let isReplaced =
            try await party.untilClosing { () async throws -> Bool? in
                while true {
                    let successor: PacketSocket
                    do throws(SystemError) {
                        successor = try await door.accept()
                    } catch {
                        try Task.checkCancellation()
                        throw AsyncSocketError(error, operation: .restart)
                    }
                    defer { successor.close() }
                    var isTrusted = false
                    do {
                        try successor.checkPeer()
                        isTrusted = true
                        try await party.offer(to: successor, ticketKeys, startTimeout)
                    } catch {
                        try Task.checkCancellation()
                        party.note("a new process did not take over", error)
                        if isTrusted { try? successor.send(HandoverReply.late) }
                        continue
                    }
                    door.close()
                    party.handOver(closeTimeout)
                    try? successor.send(HandoverReply.closing)
                    party.noteReplacement()
                    return true
                }
            } ?? false
        if !isReplaced { party.notify(.stopping) }
        return isReplaced
    }

    /// Replaces the predecessor, and takes over its files.
    private nonisolated(nonsending) func takeOver(_ party: HandoverParty) async throws {
        let (predecessor, unused) = state.withLock { state in
            defer { state = State() }
            return (state.predecessor, state.descriptors)
        }
        withExtendedLifetime(unused) {}
        guard let predecessor else { return }
        defer { predecessor.close() }
        // If the predecessor has closed the connection, its last packet can still be received.
        try? predecessor.send(HandoverReply.ready)
        let reply: PacketSocket.Packet?
        do throws(SystemError) {
            reply = try await predecessor.receive(until: Deadline(after: Self.confirmationSeconds))
        } catch {
            try Task.checkCancellation()
            throw AsyncSocketError(error, operation: .restart)
        }
        switch reply?.bytes {
        case HandoverReply.closing: break
        case nil: party.note("the previous process exited during the handover")
        default: throw AsyncSocketError.handover("the previous process stays in service, because this process started too slowly")
        }
        party.takeFiles()
    }

    private static let confirmationSeconds = 30.0
}
