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
    /// The unproven peers, which give way to new peers.
    private(set) var handshakes = HandshakeTable<ListenerPeer>()
    var prefix: SourcePrefix {
        get { handshakes.prefix }
        set { handshakes.prefix = newValue }
    }
    var maximumPeers: Int
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
    mutating func admit(hasHello: Bool, insteadOf earlier: ListenerPeer?, mayEvict: Bool = true) -> Bool {
        let isFull = excess(hasHello: hasHello, insteadOf: earlier) > 0
        isAdding = admits(hasHello: hasHello, insteadOf: earlier) && (mayEvict || !isFull)
        if !isAdding { noteRefusal(hasHello: hasHello, insteadOf: earlier) }
        return isAdding
    }

    /// - Parameter count: Counts the reason, unless `begin` has counted it.
    mutating func giveUp(_ count: (inout ServerSnapshot.Refusals) -> Void = { _ in }) {
        isAdding = false
        count(&refused)
    }

    private mutating func noteRefusal(hasHello: Bool, insteadOf earlier: ListenerPeer?) {
        if !isAccepting {
            refused.byClosing += 1
        } else if peerExcess(insteadOf: earlier) > 0 || !hasHello {
            refused.byConnections += 1
        } else {
            refused.byHandshakes += 1
        }
    }

    /// Whether a new peer is admitted, possibly in place of an unproven peer.
    ///
    /// - Parameter earlier: The peer that the new peer replaces.
    func admits(hasHello: Bool, insteadOf earlier: ListenerPeer?) -> Bool {
        guard isAccepting else { return false }
        let excess = excess(hasHello: hasHello, insteadOf: earlier)
        if excess <= 0 { return true }
        // After a limit was lowered, handshakes above the limit are not replaced.
        return excess == 1 && handshakes.count > (isShakingHands(earlier) ? 1 : 0)
    }

    private func excess(hasHello: Bool, insteadOf earlier: ListenerPeer?) -> Int {
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

    /// Makes room for a peer that `admits` has allowed, and adds its handshake.
    ///
    /// - Returns: The number of the handshake, and the peer that was removed to make room, if any. `nil` if
    ///   a limit was reached since `admit`.
    mutating func begin(
        _ key: PeerKey, hasHello: Bool, insteadOf earlier: ListenerPeer?
    ) -> (handshake: HandshakeNumber, evicted: ListenerPeer?)? {
        // A peer may have been proven since `admit`.
        guard admits(hasHello: hasHello, insteadOf: earlier) else {
            noteRefusal(hasHello: hasHello, insteadOf: earlier)
            return nil
        }
        if let earlier { remove(key, earlier.mailbox, earlier.handshake) }
        var evicted: ListenerPeer?
        if excess(hasHello: hasHello, insteadOf: nil) > 0 { evicted = handshakes.endOldestOfLargestSource() }
        if let evicted {
            remove(evicted.key, evicted.mailbox, nil)
            if hasHello { refused.byHandshakes += 1 } else { refused.byConnections += 1 }
        }
        return (handshakes.begin(from: key.peer), evicted)
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
    mutating func remove(_ key: PeerKey, _ mailbox: PeerMailbox, _ handshake: HandshakeNumber?) {
        if let handshake { handshakes.end(handshake) }
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
            message: "a new peer replaced this one, which has not replied yet, because the listener reached maximumPeers")
    }

    static var gaveWay: AsyncSocketError {
        AsyncSocketError(
            .tooManyHandshakes, fault: .peer, operation: .startDTLS,
            message: "a new client replaced this handshake because the listener reached maximumHandshakes or maximumPeers")
    }
}
