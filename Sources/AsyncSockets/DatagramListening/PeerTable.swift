internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

final class ListenerPeer: Sendable {
    let key: PeerKey
    let mailbox: PeerMailbox
    let connection: DatagramConnection
    /// The digest of the peer's ClientHello; `nil` if the listener does not use DTLS.
    let helloDigest: Int?
    /// Digests of earlier ClientHellos from the peer's address, which the network may deliver again.
    let earlierDigests: [Int]
    /// The number of the peer's handshake. Without DTLS, this is the first exchange of datagrams.
    let handshake: HandshakeNumber

    /// - Parameter earlier: The previous peer at this address.
    init(
        key: PeerKey, mailbox: PeerMailbox, connection: DatagramConnection, helloDigest: Int?, insteadOf earlier: ListenerPeer?,
        handshake: HandshakeNumber
    ) {
        (self.key, self.mailbox, self.connection) = (key, mailbox, connection)
        (self.helloDigest, self.handshake) = (helloDigest, handshake)
        let digests = earlier.map { $0.earlierDigests + [$0.helloDigest].compactMap(\.self) } ?? []
        earlierDigests = Array(digests.suffix(Self.digestLimit))
    }

    /// The number of earlier ClientHellos remembered for a peer. If a client reconnects more often while its
    /// first cookie is valid, a repeated ClientHello may replace its connection.
    private static let digestLimit = 16

    /// Whether a datagram is a ClientHello that starts a different connection from the peer's current one.
    func isReplaced(by datagram: ReceivedDatagram) -> Bool {
        guard let helloDigest, let digest = DTLSCookies.digest(ofHello: datagram.bytes) else { return false }
        return digest != helloDigest
    }
}

/// The peers of a `DatagramListener`, and its limits. The hub protects this value with a lock.
struct PeerTable {
    /// The peers by address. Peers share an address if they send to different local addresses.
    private var peers: [InternetAddress: [ListenerPeer]] = [:]
    private(set) var peerCount = 0
    /// The number of peers added since the table was created.
    private(set) var acceptedCount = 0
    var refused = ServerSnapshot.Refusals()
    /// Whether the loop is adding a peer, from `admit` to `insert` or `giveUp`.
    private var isAdding = false
    /// The peers by source. Unproven ones give way to new peers.
    private(set) var handshakes = HandshakeTable<ListenerPeer>()
    var prefix: SourcePrefix {
        get { handshakes.prefix }
        set { handshakes.prefix = newValue }
    }
    var maximumPeers: Int
    /// `nil` for four fifths of `maximumPeers`.
    var chosenMaximumPeersPerSource: Int?
    var maximumPeersPerSource: Int { chosenMaximumPeersPerSource ?? SourceKey.share(of: maximumPeers) }
    var maximumHandshakes = 4096
    var isAccepting = true
    /// The reason why receiving has failed permanently.
    var failure: AsyncSocketError?
    var registration: LoopRegistration?
    /// Whether another process has the listener's sockets.
    private(set) var hasLeftSockets = false
    /// Whether the hub has opened sockets for peers (`PeerSockets`).
    var hasPeerSockets = false

    init(maximumPeers: Int) {
        self.maximumPeers = maximumPeers
    }

    var all: [ListenerPeer] { peers.values.flatMap(\.self) }

    func peer(_ key: PeerKey) -> ListenerPeer? { peers[key.peer]?.first { $0.key == key } }

    func peers(at address: InternetAddress) -> [ListenerPeer] { peers[address] ?? [] }

    /// Whether the peer's DTLS handshake is complete.
    func isEstablished(_ peer: ListenerPeer?) -> Bool {
        peer.map { $0.helloDigest != nil && !handshakes.contains($0.handshake) } ?? false
    }

    // MARK: - Admission

    /// Whether the hub has no peers and accepts no further peers.
    var isUnused: Bool { !isAccepting && peerCount == 0 && !isAdding }

    /// Starts to add a peer, if it is admitted, and otherwise counts a refusal. Until `insert` or `giveUp`,
    /// the hub is in use.
    ///
    /// - Parameter mayEvict: Whether the new peer may take the place of an unproven one.
    mutating func admit(_ key: PeerKey, hasHello: Bool, insteadOf earlier: ListenerPeer?, mayEvict: Bool = true) -> Bool {
        let room = room(for: key, hasHello: hasHello, insteadOf: earlier)
        isAdding = isAccepting && (room == .free || (room == .afterEviction && mayEvict))
        if !isAdding { noteRefusal(of: key, hasHello: hasHello, insteadOf: earlier) }
        return isAdding
    }

    /// - Parameter count: Counts the reason, unless `begin` has counted it.
    mutating func giveUp(_ count: (inout ServerSnapshot.Refusals) -> Void = { _ in }) {
        isAdding = false
        count(&refused)
    }

    private mutating func noteRefusal(of key: PeerKey, hasHello: Bool, insteadOf earlier: ListenerPeer?) {
        if !isAccepting {
            refused.byClosing += 1
        } else if totalExcess(hasHello: hasHello, insteadOf: earlier) <= 0, sourceExcess(key, insteadOf: earlier) > 0 {
            refused.bySource += 1
        } else if peerExcess(insteadOf: earlier) > 0 || !hasHello {
            refused.byConnections += 1
        } else {
            refused.byHandshakes += 1
        }
    }

    private enum Room {
        case free
        /// If an unproven peer gives way.
        case afterEviction
        case none
    }

    /// - Parameter earlier: The peer that the new peer replaces.
    private func room(for key: PeerKey, hasHello: Bool, insteadOf earlier: ListenerPeer?) -> Room {
        let (ofSource, total) = (
            sourceExcess(key, insteadOf: earlier), totalExcess(hasHello: hasHello, insteadOf: earlier)
        )
        if max(ofSource, total) <= 0 { return .free }
        // After a limit was lowered, handshakes above the limit are not replaced.
        guard max(ofSource, total) == 1 else { return .none }
        let source = handshakes.source(of: key.peer)
        let own = isShakingHands(earlier) && (ofSource <= 0 || isOfSource(earlier, source)) ? 1 : 0
        let unproven = ofSource > 0 ? handshakes.count(of: source) : handshakes.count
        return unproven > own ? .afterEviction : .none
    }

    private func sourceExcess(_ key: PeerKey, insteadOf earlier: ListenerPeer?) -> Int {
        let source = handshakes.source(of: key.peer)
        return handshakes.peerCount(of: source) - (isOfSource(earlier, source) ? 1 : 0) + 1 - maximumPeersPerSource
    }

    private func isOfSource(_ peer: ListenerPeer?, _ source: SourceKey) -> Bool {
        peer.map { handshakes.contains($0.handshake, of: source) } ?? false
    }

    private func totalExcess(hasHello: Bool, insteadOf earlier: ListenerPeer?) -> Int {
        let peerExcess = peerExcess(insteadOf: earlier)
        let handshakeExcess = handshakes.count - (isShakingHands(earlier) ? 1 : 0) + 1 - maximumHandshakes
        return hasHello ? max(peerExcess, handshakeExcess) : peerExcess
    }

    private func peerExcess(insteadOf earlier: ListenerPeer?) -> Int {
        peerCount - (earlier == nil ? 0 : 1) + 1 - maximumPeers
    }

    private func isShakingHands(_ peer: ListenerPeer?) -> Bool {
        peer.map { handshakes.contains($0.handshake) } ?? false
    }

    /// Makes room for a peer that `admit` has allowed, and adds its handshake.
    ///
    /// - Returns: The number of the handshake, and the peer that was removed to make room, if any. `nil` if
    ///   a limit was reached since `admit`.
    mutating func begin(
        _ key: PeerKey, hasHello: Bool, insteadOf earlier: ListenerPeer?
    ) -> (handshake: HandshakeNumber, evicted: ListenerPeer?)? {
        // A peer may have been proven since `admit`.
        guard isAccepting, room(for: key, hasHello: hasHello, insteadOf: earlier) != .none else {
            noteRefusal(of: key, hasHello: hasHello, insteadOf: earlier)
            return nil
        }
        if let earlier { remove(key, earlier.mailbox, earlier.handshake) }
        let evicted = evict(for: key, hasHello: hasHello)
        return (handshakes.begin(from: key.peer), evicted)
    }

    private mutating func evict(for key: PeerKey, hasHello: Bool) -> ListenerPeer? {
        let isFull = totalExcess(hasHello: hasHello, insteadOf: nil) > 0
        var evicted: ListenerPeer?
        if sourceExcess(key, insteadOf: nil) > 0 {
            evicted = handshakes.endOldest(of: handshakes.source(of: key.peer))
        } else if isFull {
            evicted = handshakes.endOldestOfLargestSource()
        }
        guard let evicted else { return nil }
        remove(evicted.key, evicted.mailbox, evicted.handshake)
        if !isFull { refused.bySource += 1 } else if hasHello { refused.byHandshakes += 1 } else { refused.byConnections += 1 }
        return evicted
    }

    mutating func insert(_ peer: ListenerPeer) {
        peers[peer.key.peer, default: []].append(peer)
        (peerCount, acceptedCount, isAdding) = (peerCount + 1, acceptedCount + 1, false)
        handshakes.setClient(peer, of: peer.handshake)
    }

    /// Records that another process has the listener's sockets. Returns whether the hub has received from
    /// them.
    mutating func leaveSockets() -> Bool {
        hasLeftSockets = true
        return registration != nil
    }

    mutating func resumeSockets() { hasLeftSockets = false }

    // MARK: - Removal

    /// Removes a handshake that has succeeded or failed.
    mutating func endHandshake(_ number: HandshakeNumber) { handshakes.end(number) }

    /// Removes a peer that was replaced or has closed its socket.
    mutating func remove(_ key: PeerKey, _ mailbox: PeerMailbox, _ handshake: HandshakeNumber) {
        handshakes.leave(handshake)
        guard var all = peers[key.peer], let index = all.firstIndex(where: { $0.mailbox === mailbox }) else { return }
        all.remove(at: index)
        peers[key.peer] = all.isEmpty ? nil : all
        peerCount -= 1
    }
}

extension AsyncSocketError {
    static var gaveWayToPeer: AsyncSocketError {
        AsyncSocketError(
            .tooManyConnections, fault: .peer, operation: .receive,
            message: "a new peer replaced this one, which has not replied yet, because of maximumPeers or maximumPeersPerSource")
    }

    static var gaveWay: AsyncSocketError {
        AsyncSocketError(
            .tooManyHandshakes, fault: .peer, operation: .startDTLS,
            message: "a new client replaced this handshake because of maximumHandshakes, maximumPeers or maximumPeersPerSource")
    }
}
