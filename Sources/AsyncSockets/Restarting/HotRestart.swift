// Rules of a handover:
//  1. The successor connects to the predecessor's socket, the door. Each process rejects a peer that belongs
//     neither to its own user nor to root.
//  2. The predecessor sends its listening sockets, the door and its secrets, and stays in service until
//     the successor replies that it is ready. If the successor closes the connection instead, or does not
//     reply in time, the predecessor continues as before.
//  3. When the successor is ready, the predecessor opens sockets for UDP peers, stops accepting and confirms.
//     It closes its descriptors without shutting down the sockets, so the successor accepts the connections
//     in the kernel's backlog. The successor accepts nothing before the confirmation.
//  4. While an offer is open, neither process removes the files of Unix-domain sockets, because either may
//     continue to serve. After the offer, the files belong to that process.
//  5. If the predecessor exits after its offer, the successor continues with the sockets that it received.
//  6. A process offers its sockets to one successor at a time. Further successors are queued at the door.

internal import FoundationEssentials
internal import Glibc
internal import SocketBuffers
public import SocketCore
public import SocketTLS

/// Replaces a running server with a new process that takes over the listening sockets. Clients are not
/// refused, connections in the backlog are kept, and open connections have time to finish.
///
/// ```swift
/// let restart = try await HotRestart(path: "/run/mail/restart")
/// let inherited = restart.descriptors(named: "smtp")
/// let listener = inherited.isEmpty ? try SocketListener(port: 25) : try SocketListener(inherited: inherited)
/// try await restart.takeOver(["smtp": listener])
/// async let isReplaced = restart.untilReplaced()
/// try await listener.run(untilSignals: [SIGTERM]) { socket in … }
/// _ = try await isReplaced
/// ```
///
/// Start the new version of the program while the old one is running. The new process receives the listening
/// sockets and the session ticket keys, and calls `takeOver` when it is ready. The old process then stops
/// accepting, lets its connections finish, and exits. If the new process fails before that, the old process
/// stays in service.
///
/// Run both processes as the same user. Each rejects a peer of any other user except root. The peers of a
/// `DatagramListener` stay with the old process until it closes. For each peer, the old process opens a
/// socket that is connected to the peer, so a handover needs one descriptor per peer.
public final class HotRestart: Sendable {
    private enum Phase {
        case new, takingOver, serving, offering, failed
    }

    private struct State {
        var phase = Phase.new
        /// The connection to the predecessor, until `takeOver` is called.
        var predecessor: PacketSocket?
        var descriptors: [InheritedDescriptor] = []
        var cookieSecrets: [String: Data] = [:]
        /// The socket for successors.
        var door: PacketSocket?
        var party: HandoverParty?
    }

    /// The session ticket keys of the old process, or new keys in the first process. Use them in the TLS
    /// settings: `settings.sessionTickets = .issued(2, keys: restart.ticketKeys)`.
    public let ticketKeys: TLSRotatingTicketKeys
    /// Whether this process has received the sockets of a running process.
    public let hasPredecessor: Bool
    private let address: SocketEndpoint
    private let loop: SocketEventLoop
    private let state: Locked<State>

    /// Receives the sockets of a running process with the same path.
    ///
    /// - Parameters:
    ///   - path: The path of the Unix-domain socket at which the old process offers its sockets, from 1 to
    ///     107 bytes. Only the user of the server and root may have write access to the directory. A
    ///     `RuntimeDirectory=` (systemd.exec(5)) is suitable.
    ///   - timeout: How long the old process may take to send its offer, for example because another process
    ///     is taking over. Defaults to 90 seconds.
    /// - Throws: `.badParameter` for an invalid path; `.badConfiguration` if the offer cannot be used;
    ///   `.system` with EPERM if the old process belongs to another user, with ETIMEDOUT after `timeout`, and
    ///   with the kernel's error if connecting fails; `.tls` for invalid keys; `CancellationError` if the
    ///   task is cancelled.
    public nonisolated(nonsending) init(path: String, timeout: Duration = .seconds(90)) async throws {
        // Absolute, because the program may change its working directory.
        address = try SocketEndpoint.ofSocket(
            at: path.isEmpty || path.hasPrefix("/") ? path : Self.workingDirectory + path, .restart)
        loop = try Self.typed { () throws(SystemError) in try SocketEventLoop.next() }
        guard let predecessor = try Self.typed({ [address, loop] () throws(SystemError) in try Self.connect(to: address, loop) })
        else {
            (ticketKeys, hasPredecessor, state) = (try TLSRotatingTicketKeys(), false, Locked(State()))
            return
        }
        do {
            try Self.typed { () throws(SystemError) in try predecessor.checkPeer() }
            let deadline = Deadline(after: timeout.inSeconds)
            let offer = try HandoverOffer.parse(await Self.packet(from: predecessor, until: deadline))
            ticketKeys = try await Self.keys(from: predecessor, until: deadline)
            let socket = try Self.typed { [loop] () throws(SystemError) in
                try PacketSocket(adoptingListener: offer.door, on: loop)
            }
            state = Locked(
                State(predecessor: predecessor, descriptors: offer.listeners, cookieSecrets: offer.cookieSecrets, door: socket))
            hasPredecessor = true
        } catch {
            predecessor.close()
            throw error
        }
    }

    deinit {
        let state = state.withLock { $0 }
        state.predecessor?.close()
        state.door?.close()
    }

    private static var workingDirectory: String {
        guard let here = getcwd(nil, 0) else { return "" }
        defer { free(here) }
        return String(cString: here) + "/"
    }

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
        guard let packet else { throw AsyncSocketError.handover("the old process closed the connection without an offer") }
        return packet
    }

    private nonisolated(nonsending) static func keys(
        from socket: PacketSocket, until deadline: Deadline?
    ) async throws -> TLSRotatingTicketKeys {
        var packet = try await packet(from: socket, until: deadline)
        defer { packet.wipe() }
        guard packet.descriptors.isEmpty else {
            packet.closeDescriptors()
            throw AsyncSocketError.handover("the old process sent unexpected descriptors")
        }
        return try packet.bytes.withUnsafeBytes { try TLSRotatingTicketKeys(records: $0) }
    }

    private static func typed<Result>(_ call: () throws(SystemError) -> Result) throws(AsyncSocketError) -> Result {
        do throws(SystemError) {
            return try call()
        } catch {
            throw AsyncSocketError(error, operation: .restart)
        }
    }

    // MARK: - The successor

    /// Returns the listening sockets that the old process offered under this name. A second call with the
    /// same name returns an empty array, as does a call when no process was running.
    ///
    /// Pass the result to `SocketListener(inherited:)` or `DatagramListener(inherited:)`. Sockets that you
    /// have not requested are closed when you call `takeOver` or release this object. Connections in their
    /// backlog are then reset when the old process closes its copies.
    public func descriptors(named name: String) -> [InheritedDescriptor] {
        state.withLock { state in
            defer { state.descriptors.removeAll { $0.name == name } }
            return state.descriptors.filter { $0.name == name }
        }
    }

    /// Takes over from the old process, which then stops accepting. Without an old process, listens at the
    /// path.
    ///
    /// Call this once, when your program is ready to serve: its listeners exist, and its configuration and
    /// certificates are loaded. Then call `run` of each listener. Until then, new connections wait in
    /// the kernel's backlog. Also sends `.ready` and `.mainProcess` to the `ServiceManager`.
    ///
    /// - Parameters:
    ///   - listeners: The listeners by name. A later process receives their sockets under the same names.
    ///   - datagrams: The UDP listeners by name. A name must not appear in both dictionaries.
    ///   - timeout: How long the old process may take to stop accepting. With a `DatagramListener`, it first
    ///     opens a socket for each peer. Defaults to 30 seconds.
    /// - Throws: `.badParameter` if both dictionaries are empty, for a name in both, too many sockets, or a
    ///   listener that is closed; `.badConfiguration` if the old process stays in service because this
    ///   process took too long to start, or if this was called before; `.system` with ETIMEDOUT after
    ///   `timeout`, with EADDRINUSE if the path is in use, and with the kernel's error if listening fails;
    ///   `CancellationError` if the task is cancelled. The listeners are not closed. Do not run them then,
    ///   and do not call this again: exit.
    @concurrent
    public func takeOver(
        _ listeners: [String: SocketListener] = [:], datagrams: [String: DatagramListener] = [:],
        timeout: Duration = .seconds(30)
    ) async throws {
        let party = try HandoverParty(listeners, datagrams)
        let (predecessor, door, unused, isFirst) = state.withLock {
            state -> (PacketSocket?, PacketSocket?, [InheritedDescriptor], Bool) in
            guard state.phase == .new else { return (nil, nil, [], false) }
            defer { (state.phase, state.predecessor, state.door, state.descriptors) = (.takingOver, nil, nil, []) }
            return (state.predecessor, state.door, state.descriptors, true)
        }
        guard isFirst else { throw AsyncSocketError.handover("takeOver was called before", fault: .caller) }
        party.adopt(state.withLock { $0.cookieSecrets })
        do {
            let door = try await open(predecessor, door, party, unused, timeout)
            state.withLock { ($0.phase, $0.door, $0.party) = (.serving, door, party) }
        } catch {
            // No process must connect to a door that is not served.
            door?.close()
            state.withLock { $0.phase = .failed }
            throw error
        }
        party.notify(.mainProcess, .ready)
    }

    /// Returns the door, after the predecessor has stopped accepting.
    private nonisolated(nonsending) func open(
        _ predecessor: PacketSocket?, _ door: PacketSocket?, _ party: HandoverParty, _ unused: [InheritedDescriptor],
        _ timeout: Duration
    ) async throws -> PacketSocket {
        guard let predecessor, let door else {
            return try Self.typed { () throws(SystemError) in try PacketSocket.listen(at: address, on: loop) }
        }
        defer { predecessor.close() }
        try await confirm(predecessor, party, timeout)
        party.takeFiles()
        door.takeFile()
        for descriptor in unused { descriptor.file?.remove() }
        return door
    }

    /// Returns when the predecessor has stopped accepting, or has exited.
    private nonisolated(nonsending) func confirm(
        _ predecessor: PacketSocket, _ party: HandoverParty, _ timeout: Duration
    ) async throws {
        // Ignores the error: if the predecessor has closed the connection, its reply can still be read.
        try? predecessor.send(HandoverReply.ready)
        let reply: PacketSocket.Packet?
        do throws(SystemError) {
            reply = try await predecessor.receive(until: Deadline(after: timeout.inSeconds))
        } catch {
            try Task.checkCancellation()
            throw AsyncSocketError(error, operation: .restart)
        }
        reply?.closeDescriptors()
        switch reply?.bytes {
        case HandoverReply.closing: break
        case nil: party.note("the old process exited during the handover")
        default: throw AsyncSocketError.handover("the old process stays in service, because this process started too slowly")
        }
    }

    // MARK: - The predecessor

    /// Offers the listeners to later processes until one of them takes over.
    ///
    /// Call this once, after `takeOver`, while the listeners run. When a new process takes over, starts to
    /// close the listeners and returns `true`, without waiting for open connections. When a listener closes
    /// for another reason, such as a signal, sends `.stopping` to the `ServiceManager` and returns `false`.
    /// If the task is cancelled, the listeners stay open, but can no longer be handed over.
    ///
    /// - Parameters:
    ///   - closeTimeout: How long open connections may take to finish after a new process takes over.
    ///     Defaults to 30 seconds; `nil` sets no limit. See `ServingListener.close(timeout:)`.
    ///   - startTimeout: How long a new process may take from the receipt of the sockets to its call of
    ///     `takeOver`. If it takes longer, this process stays in service. Defaults to 60 seconds.
    /// - Returns: Whether this process was replaced. Also `true` if it is shut down while a new process is
    ///   starting, which then takes over.
    /// - Throws: `.badConfiguration` if `takeOver` has not succeeded, or if this was called before;
    ///   `CancellationError` if the task is cancelled.
    @concurrent
    @discardableResult
    public func untilReplaced(
        closeTimeout: Duration? = .seconds(30), startTimeout: Duration = .seconds(60)
    ) async throws -> Bool {
        let (party, door) = state.withLock { state -> (HandoverParty?, PacketSocket?) in
            guard state.phase == .serving else { return (nil, nil) }
            defer { (state.phase, state.door) = (.offering, nil) }
            return (state.party, state.door)
        }
        guard let party, let door else {
            throw AsyncSocketError.handover("call takeOver first, and untilReplaced only once", fault: .caller)
        }
        defer { door.close() }
        let ticketKeys = ticketKeys
        let isReplaced =
            try await party.untilClosing { () async throws -> Bool? in
                while true {
                    let successor = try await party.successor(at: door)
                    defer { successor.close() }
                    switch await party.handOver(to: successor, door, ticketKeys, startTimeout, closeTimeout) {
                    case .handedOver: return true
                    case .stays: try Task.checkCancellation()
                    }
                }
            } ?? false
        if !isReplaced { party.notify(.stopping) }
        return isReplaced
    }
}
