internal import SocketBuffers
internal import SocketCore

/// The sender of a datagram, and the local address to which the datagram was sent.
struct PeerKey: Hashable, Sendable {
    let peer: InternetAddress
    /// `nil` if the kernel does not report the address.
    let local: InternetAddress?

    /// Whether the peer sends to a multicast group or a broadcast address.
    var isGroup: Bool {
        guard let host = local?.socketAddress.hostBytes, let first = host.first else { return false }
        return host.count == 4 ? (224...239).contains(first) || host == [255, 255, 255, 255] : first == 0xFF
    }

    /// The input for cookies: both addresses and the peer's port.
    var bytes: [UInt8] {
        let port = peer.port
        return peer.socketAddress.hostBytes + [UInt8(port >> 8), UInt8(port & 0xFF)] + (local?.socketAddress.hostBytes ?? [])
    }
}

/// The channel of a peer's socket. It receives from a mailbox, and sends through the descriptor that all
/// peers of a listener share. The descriptor closes when its last user is released.
final class PeerChannel: DatagramChannel {
    private let key: PeerKey
    private let source: DatagramSource?
    private let mailbox: PeerMailbox
    /// The datagram most recently returned by `next()`.
    @exclusivity(unchecked) private var current: PeerDatagram?
    private var hasHello: Bool
    private let listenersDenial: Locked<SystemError?>
    /// Decides when a peer without DTLS is proven. `nil` afterwards.
    @exclusivity(unchecked) private var trial: Trial?
    private let proved: @Sendable () -> Void
    private let left: @Sendable () -> Void

    /// A peer is proven by a datagram that arrives after one was sent to it, or a second after its first.
    private struct Trial {
        private let end: Deadline
        private var takenCount = 0
        /// The number of arrivals when a datagram was sent to the peer.
        private var arrivalCountBeforeReply = Int.max

        init(end: Deadline) { self.end = end }

        mutating func noteReply(after arrivalCount: Int) {
            arrivalCountBeforeReply = min(arrivalCountBeforeReply, arrivalCount)
        }

        /// Returns whether the peer is proven by the next datagram.
        mutating func noteDatagram() -> Bool {
            takenCount += 1
            return takenCount > arrivalCountBeforeReply || (takenCount > 1 && end <= .now)
        }
    }

    /// - Parameters:
    ///   - source: The source address for sent datagrams.
    ///   - hasHello: Whether the first datagram is a ClientHello with a cookie.
    ///   - seconds: How long after its first datagram a peer is proven by another one.
    ///   - denial: Why the listener has paused receiving.
    ///   - proved: Called when the handshake is complete or, without DTLS, when the peer is proven.
    ///   - left: Called when the socket has closed.
    init(
        _ descriptor: DatagramDescriptor, _ key: PeerKey, from source: DatagramSource?, _ mailbox: PeerMailbox,
        hasHello: Bool, provenAfter seconds: Double = 1, denial: Locked<SystemError?>, proved: @escaping @Sendable () -> Void,
        left: @escaping @Sendable () -> Void
    ) {
        self.key = key
        self.source = source
        self.mailbox = mailbox
        self.hasHello = hasHello
        (listenersDenial, self.proved, self.left) = (denial, proved, left)
        trial = hasHello ? nil : Deadline(after: seconds).map { Trial(end: $0) }
        super.init(descriptor, maximumSize: 1, coalesces: false)
    }

    override var fixedPeer: InternetAddress? { key.peer }

    override func reaches(_ address: InternetAddress) -> Bool { address == key.peer }

    // MARK: - Receiving

    override func next() -> ReceivedDatagram? {
        current = mailbox.take()
        guard let current else { return nil }
        if trial?.noteDatagram() == true {
            trial = nil
            proved()
        }
        return ReceivedDatagram(bytes: current.bytes, sender: key.peer, arrival: current.arrival)
    }

    override var mayHaveInput: Bool { !mailbox.isEmpty }

    // Before its upgrade, a DTLS peer has sent no authentic data.
    override var arrivalCount: Int { hasHello ? 0 : mailbox.arrivalCount }

    override func takeHello() -> [UInt8]? {
        guard hasHello else { return nil }
        hasHello = false
        return mailbox.take().map { Array($0.bytes) }
    }

    override func noteSecured() {
        // The peer's task would do this too late: it runs on the program's executor, which may be busy.
        proved()
    }

    override var currentDenial: SystemError? { listenersDenial.withLock { $0 } }

    // The listener reads the descriptor's errors, and reports them to the affected peers.

    override func takeErrors() -> [DatagramError] { [] }

    override var hasErrors: Bool { false }

    // MARK: - Sending

    override func send(_ datagrams: UnsafeBufferPointer<OutgoingDatagram>) -> DatagramSendReport {
        let addressed = datagrams.map { OutgoingDatagram($0.bytes, to: key.peer, from: source) }
        return noting(addressed.withUnsafeBufferPointer { super.send($0) })
    }

    override func send(_ datagram: OutgoingDatagram) -> DatagramSendReport {
        noting(super.send(OutgoingDatagram(datagram.bytes, to: key.peer, from: source)))
    }

    private func noting(_ report: DatagramSendReport) -> DatagramSendReport {
        if trial != nil, report.handledCount > report.failures.count { trial?.noteReply(after: mailbox.arrivalCount) }
        if report.rest == .wouldBlock { waitForRoom() }
        return report
    }

    /// The event that reports room in the kernel's buffer goes only to the listener, so this channel retries
    /// later.
    private func waitForRoom() {
        output = .exhausted(until: Deadline(after: SocketDescriptor.shortageSeconds))
    }

    // MARK: - The path

    /// The kernel cannot report a path MTU for the shared descriptor, because it is not connected to a peer.
    /// A temporary descriptor, connected to this peer, is used instead.
    override var pathSize: Int? {
        do throws(SystemError) {
            let probe = try DatagramDescriptor(opening: descriptor.families)
            defer { probe.socket.close() }
            try probe.connect(to: key.peer.socketAddress)
            return try probe.pathMTU - Self.headerSize(to: key.peer)
        } catch {
            return nil
        }
    }

    override func preparePath() -> Int { pathSize ?? Self.safePathSize }

    // MARK: - Closing

    override func leave(_ loop: SocketEventLoop) {
        mailbox.close()
        current = nil
        left()
    }
}
