// Rules of the hub:
//  1. One descriptor per IP version serves all peers. The hub receives on its loop, and puts each datagram
//     into the mailbox of its peer. A peer is identified by its address and the local address.
//  2. A stranger becomes a peer when its first datagram arrives or, with DTLS, a ClientHello that contains a
//     valid cookie. Until then the hub stores no data about it. If there are too many peers, or no space for
//     the datagram, the datagram is dropped. With DTLS, a new client at a limit replaces an incomplete
//     handshake instead: the oldest handshake of the source with the most handshakes. A source has only a
//     part of the peers, and at that limit replaces its own handshakes. This way no source can shut out
//     other sources. Sockets that close before a task has taken them are released (`Reception`).
//  3. A ClientHello from a peer's address that differs from the ClientHello of the current connection is
//     treated as if a stranger had sent it (RFC 6347, section 4.2.8). If it contains a valid cookie, it
//     replaces the current peer. The replaced socket closes without sending anything to the new client. A
//     repeated earlier ClientHello does not replace the peer.
//  4. The hub deregisters from its loop when it no longer accepts peers and the last peer is gone. The
//     descriptors close with the last socket that uses them.
//  5. If receiving fails permanently, the listener closes, and each peer's socket closes with the error.
//  6. The rate limit does not apply to a DTLS peer after its handshake. Otherwise a flood of datagrams from
//     the same address could block the peer's data.
//  7. When another process takes over, the hub first opens a socket for each peer (`PeerSockets`). It then
//     receives the datagrams that have arrived at the listener's sockets, and stops watching them. The other
//     process receives later datagrams from strangers.
//  8. Receiving is confined to the loop. The table has a lock, because sockets can close on any thread.

internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// The descriptors of a `DatagramListener`, and the table of its peers.
final class DatagramHub: EventHandler, PortHandler {
    struct Setup {
        let loop: SocketEventLoop
        let logger: Logger
        let rateLimit: SourceRateLimit?
        /// If `nil`, datagrams are plaintext.
        let cookies: DTLSCookies?
        let options: SocketOptionSet
        let maximumReceiveSize: Int
        let reception: DatagramReception
        /// Creates the socket of a peer. Called on the loop.
        let accept: @Sendable (PeerChannel, PeerKey) -> DatagramConnection
        /// Returns the number of peers that have a task, or wait for one.
        let taskCount: @Sendable () -> Int
        /// Called when a peer's socket has closed, possibly before a task has taken it.
        let closed: @Sendable () -> Void
        /// Called on the loop when receiving has failed permanently. No new peers appear after this.
        let failed: @Sendable () -> Void
    }

    let loop: SocketEventLoop
    let localAddresses: [SocketEndpoint]
    /// The listener's own descriptors, and those for multicast groups. Empty once the hub has deregistered.
    let descriptors: Locked<(own: [DatagramDescriptor], receivers: GroupReceivers)>
    let mailboxes: MailboxSpace
    let setup: Setup
    let state: Locked<PeerTable>
    // Confined to the loop: `handle` is called there, one call at a time.
    @exclusivity(unchecked) nonisolated(unsafe) var ports: [DatagramPort]
    /// The ports that another process receives from.
    @exclusivity(unchecked) nonisolated(unsafe) var leftPorts: [DatagramPort] = []
    @exclusivity(unchecked) nonisolated(unsafe) private var limiter: SourceRateLimiter?
    let peerSockets: PeerSockets
    /// Sockets of peers with new datagrams, to be notified at the end of this turn.
    @exclusivity(unchecked) nonisolated(unsafe) private var announced: [DatagramConnection] = []

    private static let datagramsPerTurn = 256

    init(_ descriptors: [DatagramDescriptor], maximumPeers: Int, _ setup: Setup) {
        self.setup = setup
        loop = setup.loop
        peerSockets = PeerSockets(on: setup.loop)
        localAddresses = descriptors.compactMap(\.localAddress)
        self.descriptors = Locked((descriptors, GroupReceivers()))
        ports = descriptors.map { DatagramPort($0, maximumSize: setup.maximumReceiveSize, setup.reception) }
        limiter = setup.rateLimit.map { SourceRateLimiter($0) }
        state = Locked(PeerTable(maximumPeers: maximumPeers))
        mailboxes = MailboxSpace(mailboxLimit: maximumPeers)
    }

    // MARK: - Properties

    var isAccepting: Bool { state.withLock { $0.isAccepting } }

    /// The reason why receiving has failed permanently.
    var failure: AsyncSocketError? { state.withLock { $0.failure } }

    var maximumPeers: Int {
        get { state.withLock { $0.maximumPeers } }
        set {
            state.withLock { $0.maximumPeers = newValue }
            mailboxes.mailboxLimit.store(newValue, ordering: .relaxed)
        }
    }

    var maximumPeersPerSource: Int {
        get { state.withLock { $0.maximumPeersPerSource } }
        set { state.withLock { $0.chosenMaximumPeersPerSource = newValue } }
    }

    var maximumHandshakes: Int {
        get { state.withLock { $0.maximumHandshakes } }
        set { state.withLock { $0.maximumHandshakes = newValue } }
    }

    var sourcePrefix: SourcePrefix {
        get { state.withLock { $0.prefix } }
        set { state.withLock { $0.prefix = newValue } }
    }

    var handshakeCount: Int { state.withLock { $0.handshakes.count } }

    /// - Parameter waitingCount: The number of peers without a task.
    func snapshot(waitingCount: Int) -> ServerSnapshot {
        state.withLock { state in
            ServerSnapshot(
                isListening: state.isAccepting, openCount: state.peerCount,
                handshakeCount: setup.cookies == nil ? 0 : state.handshakes.count, waitingCount: waitingCount,
                pendingByteCount: mailboxes.byteCount, acceptedCount: state.acceptedCount, refused: state.refused)
        }
    }

    /// Called when a peer has completed its handshake or, without DTLS, its first exchange.
    func noteHandshake(_ number: HandshakeNumber) {
        state.withLock { $0.endHandshake(number) }
    }

    // MARK: - Starting and stopping

    /// Starts receiving. Called once.
    func start() throws(SystemError) {
        let registration = loop.register(self)
        let isNeeded = state.withLock { state in
            guard state.isAccepting, state.registration == nil else { return false }
            state.registration = registration
            return true
        }
        guard isNeeded else { return loop.deregister(registration) }
        for descriptor in descriptors.withLock({ $0.own }) { try loop.watch(descriptor.socket, for: registration) }
        loop.run { [self] in updateReceivers() }
    }

    /// Changes the receivers for multicast groups.
    func changeReceivers(
        _ change: ([BoundDescriptor], inout GroupReceivers) throws(AsyncSocketError) -> Void
    ) throws(AsyncSocketError) {
        try descriptors.withLock { (descriptors) throws(AsyncSocketError) in
            try change(descriptors.own.map { BoundDescriptor($0) }, &descriptors.receivers)
        }
        loop.run { [self] in updateReceivers() }
    }

    /// Watches new receivers, and closes removed ones. Called on the loop.
    private func updateReceivers() {
        guard let registration = state.withLock({ $0.registration }) else { return }
        let (own, receivers) = descriptors.withLock { $0 }
        for port in ports where port.descriptor.socket !== port.replyDescriptor.socket && !receivers.contains(port.descriptor) {
            close(port)
            ports.removeAll { $0 === port }
        }
        for descriptor in receivers.descriptors where !ports.contains(where: { $0.descriptor.socket === descriptor.socket }) {
            guard let own = own.first(where: { $0.families == descriptor.families }) ?? own.first else { continue }
            let port = DatagramPort(
                descriptor, replyingThrough: own, maximumSize: setup.maximumReceiveSize, setup.reception)
            do throws(SystemError) {
                try loop.watch(descriptor.socket, for: registration)
            } catch {
                return fail(with: error)
            }
            ports.append(port)
        }
    }

    func close(_ port: DatagramPort) {
        loop.unwatch(port.descriptor.socket)
        port.receiver.discard()
    }

    /// Drops datagrams from strangers from now on.
    func stopAccepting() {
        leaveIfUnused { $0.isAccepting = false }
    }

    private func forget(_ key: PeerKey, _ mailbox: PeerMailbox, _ handshake: HandshakeNumber) {
        var hasSocket = false
        leaveIfUnused { state in
            state.remove(key, mailbox, handshake)
            hasSocket = state.hasPeerSockets
        }
        if hasSocket { loop.run { [peerSockets] in peerSockets.close(of: mailbox) } }
    }

    private func leaveIfUnused(after change: (inout PeerTable) -> Void) {
        let registration = state.withLock { state -> LoopRegistration? in
            change(&state)
            return state.isUnused ? state.registration.take() : nil
        }
        guard let registration else { return }
        loop.run { [self] in
            closePorts()
            peerSockets.closeAll()
            loop.deregister(registration)
        }
    }

    private func closePorts() {
        for port in ports + leftPorts { close(port) }
        (ports, leftPorts) = ([], [])
        descriptors.withLock { $0 = ([], GroupReceivers()) }
    }

    // MARK: - On the loop

    func handle(_ events: LoopEvents) { handle(events, of: ports, as: state.withLock { $0.registration }) }

    func handle(_ events: LoopEvents, of ports: [DatagramPort], as registration: @autoclosure () -> LoopRegistration?) {
        if events.contains(.readable) { for port in ports where port.retry == nil { port.isReady = true } }
        if events.contains(.deadline) { for port in ports { port.retryIfDue() } }
        if events.contains(.hangup) { for port in ports { reportErrors(of: port) } }
        var (mayHaveMore, mustRetry) = (false, events.contains(.deadline))
        for port in ports {
            receive(from: port)
            if port.takePause() { mustRetry = true }
            mayHaveMore = mayHaveMore || port.isReady || !port.receiver.isEmpty
        }
        announce()
        guard mayHaveMore || mustRetry, let registration = registration() else { return }
        if mustRetry, let retry = ports.reduce(nil, { Deadline.earlier($0, $1.retry) }) {
            loop.setDeadline(retry, of: registration)
        }
        if mayHaveMore { loop.resume(registration) }
    }

    func announce() {
        for connection in announced { connection.handle(.readable) }
        announced.removeAll(keepingCapacity: true)
    }

    func receive(from port: DatagramPort) {
        defer { port.sendReplies() }
        var left = Self.datagramsPerTurn
        // Errors are counted too, because other hosts control their number.
        while left > 0 {
            while left > 0, let datagram = port.receiver.next() {
                dispatch(datagram, port)
                left -= 1
            }
            guard port.isReady, left > 0 else { return }
            left -= 1
            switch port.receiver.receive(from: port.descriptor) {
            case .received(let mayHaveMore):
                port.isReady = mayHaveMore
                port.note(nil)
            case .wouldBlock:
                port.isReady = false
                port.note(nil)
            case .refused: reportErrors(of: port)
            case .exhausted: port.pause(for: SocketDescriptor.shortageSeconds)
            case .denied(let error, let seconds, let isFirst):
                port.pause(for: seconds)
                port.note(error)
                if isFirst {
                    setup.logger.warning("receiving failed and will be retried", metadata: ["reason": "\(error)"])
                }
            case .failed(let error):
                port.isReady = false
                return fail(with: error)
            }
        }
    }

    func fail(with error: SystemError) {
        let failure = AsyncSocketError(error, operation: .receive)
        let peers = state.withLock { state -> [ListenerPeer]? in
            guard state.failure == nil else { return nil }
            state.failure = failure
            return state.all
        }
        guard let peers else { return }
        setup.logger.error("a datagram listener failed", metadata: ["error": "\(error)"])
        setup.failed()
        stopAccepting()
        for peer in peers { peer.connection.post(.close(failure)) }
    }

    func dispatch(_ datagram: ReceivedDatagram, _ port: DatagramPort) {
        let key = PeerKey(peer: datagram.sender, local: datagram.arrival.local)
        let peer = state.withLock { $0.peer(key) }
        let isOfPeer = peer.map { !$0.isReplaced(by: datagram) } ?? false
        if limiter != nil, !(isOfPeer && state.withLock({ $0.isEstablished(peer) })),
            limiter?.judge(key.peer.socketAddress, at: .now) != .admitted
        {
            return state.withLock { $0.refused.byRate += 1 }
        }
        if let peer, isOfPeer { deliver(datagram, to: peer) } else { meet(key, datagram, port, insteadOf: peer) }
    }

    private func deliver(_ datagram: ReceivedDatagram, to peer: ListenerPeer) {
        switch peer.mailbox.put(datagram.bytes, datagram.arrival) {
        case nil: peer.connection.counts.mailboxDrops.add(1, ordering: .relaxed)
        case false: break
        case true: announced.append(peer.connection)
        }
    }

    /// Handles a datagram from a stranger.
    ///
    /// - Parameter earlier: The current peer at the stranger's address.
    private func meet(_ key: PeerKey, _ datagram: ReceivedDatagram, _ port: DatagramPort, insteadOf earlier: ListenerPeer? = nil)
    {
        guard let cookies = setup.cookies else { return accept(key, datagram, port, digest: nil) }
        switch cookies.judge(datagram.bytes, from: key.bytes) {
        case .none: state.withLock { $0.refused.invalid += 1 }
        case .request(let reply):
            reply.withUnsafeBytes { port.replies.append($0) }
            port.addresses.append((reply.count, key.peer, port.source(for: datagram.arrival)))
        case .admission:
            let digest = DTLSCookies.digest(ofHello: datagram.bytes)
            if let digest, earlier?.earlierDigests.contains(digest) == true {
                state.withLock { $0.refused.invalid += 1 }
            } else if let earlier, state.withLock({ $0.hasLeftSockets }) {
                // The other process serves the new connection when the client repeats its ClientHello.
                earlier.connection.post(.replaced)
            } else {
                accept(key, datagram, port, digest: digest, insteadOf: earlier)
            }
        }
    }

    private func accept(
        _ key: PeerKey, _ datagram: ReceivedDatagram, _ port: DatagramPort, digest: Int?, insteadOf earlier: ListenerPeer? = nil
    ) {
        let mayEvict = digest != nil || setup.taskCount() <= maximumPeers + maximumPeers / 8 + Self.unfinishedTasks
        guard state.withLock({ $0.admit(key, hasHello: digest != nil, insteadOf: earlier, mayEvict: mayEvict) }) else { return }
        // Without a limit for each source, one source may also use all the memory.
        let share = state.withLock { state in
            state.maximumPeersPerSource < state.maximumPeers ? mailboxes.share(of: state.handshakes.source(of: key.peer)) : nil
        }
        guard let mailbox = PeerMailbox(in: mailboxes, share, with: datagram.bytes, datagram.arrival) else {
            return leaveIfUnused { $0.giveUp { $0.byPendingBytes += 1 } }
        }
        guard let (handshake, evicted) = state.withLock({ $0.begin(key, hasHello: digest != nil, insteadOf: earlier) }) else {
            return leaveIfUnused { $0.giveUp() }
        }
        earlier?.connection.post(.replaced)
        evicted?.connection.post(.close(digest == nil ? .gaveWayToPeer : .gaveWay))
        let channel = PeerChannel(
            port.replyDescriptor, key, from: port.source(for: datagram.arrival), mailbox, hasHello: digest != nil,
            denial: port.denial,
            proved: { [weak self] in self?.noteHandshake(handshake) },
            left: { [weak self, setup] in
                self?.forget(key, mailbox, handshake)
                setup.closed()
            })
        let connection = setup.accept(channel, key)
        let peer = ListenerPeer(
            key: key, mailbox: mailbox, connection: connection, helloDigest: digest, insteadOf: earlier, handshake: handshake)
        state.withLock { $0.insert(peer) }
        // The socket may have closed before it was added to the table.
        if connection.record.withLock({ $0.isClosed }) { forget(key, mailbox, handshake) }
    }

    /// Reports errors for sent datagrams to the peers at the destination addresses.
    private func reportErrors(of port: DatagramPort) {
        for error in port.takeErrors() where error.origin != .local {
            guard let destination = error.destination else { continue }
            for peer in state.withLock({ $0.peers(at: InternetAddress(destination)) }) {
                peer.connection.post(.unreachable(AsyncSocketError(datagram: error.systemError, .send)))
            }
        }
    }
    /// Without DTLS, evicted peers may have tasks that have not finished yet. This many more are allowed than
    /// nine eighths of `maximumPeers`.
    private static let unfinishedTasks = 64
}
