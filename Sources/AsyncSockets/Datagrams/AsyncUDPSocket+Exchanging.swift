public import Dispatch
public import FoundationEssentials
internal import Logging
internal import SocketBuffers
public import SocketCore
internal import Synchronization

extension AsyncUDPSocket {
    // MARK: - Sending

    /// Sends a datagram to the peer of a connected socket, after those that wait already.
    ///
    /// `udpSocket(_:didSendDataWithTag:)` follows once the kernel has it, or
    /// `udpSocket(_:didNotSendDataWithTag:dueToError:)`: `.badParameter` with the errno EMSGSIZE when it is
    /// too large, `.writeTimeout`, `.writeQueueFull`, `.badConfiguration` when the socket is not connected,
    /// `.closed`, or what the kernel says. You may call this while the socket is connecting. After the end it
    /// does nothing.
    ///
    /// - Parameters:
    ///   - data: The bytes, at most 65,507; none is a datagram too. They are not copied.
    ///   - timeout: Seconds from the moment when this is the oldest that waits; negative: no limit.
    ///   - tag: Comes back with the answer.
    public func send(_ data: Data, withTimeout timeout: TimeInterval, tag: Int) {
        queue(data, timeout, tag) { () throws(AsyncSocketError) in .peer }
    }

    /// Sends a datagram to a host: see `send(_:withTimeout:tag:)`.
    ///
    /// The host is looked up off the loop, and its answer kept for the socket only while operations wait for
    /// it. The datagram goes to one address: the first of the `preferredFamily`, or else of another. On a
    /// socket that is not in use this binds it first, to a port that the kernel chooses. It fails on a
    /// connected one.
    public func send(_ data: Data, toHost host: String, port: UInt16, withTimeout timeout: TimeInterval, tag: Int) {
        queue(data, timeout, tag) { () throws(AsyncSocketError) in try target(host, port, "send") }
    }

    /// Sends a datagram to an address: see `send(_:toHost:port:withTimeout:tag:)`. A connected socket may
    /// name its peer.
    public func send(_ data: Data, toAddress address: SocketAddress, withTimeout timeout: TimeInterval, tag: Int) {
        if let connection = connection(reaching: address) {
            let target = DatagramTarget.address(InternetAddress(address))
            return connection.send(DatagramPacket(data, to: target, timeout: timeout, completion: .delegate(tag: tag)))
        }
        queue(data, timeout, tag) { () throws(AsyncSocketError) in try target(address, "send") }
    }

    /// The connection of a socket that is in use, for an address with which nothing is wrong; nil: ask
    /// `target(_:from:_:)` and `openIfNeeded(_:)`, which find the same with more locks.
    func connection(reaching address: SocketAddress) -> DatagramConnection? {
        let family = address.family
        guard family.isInternet, address.port != 0 else { return nil }
        let connection = state.withLock { state in
            // The fields, not a method: that would copy the configuration.
            let isEnabled =
                family == .ipv4 ? state.configuration.value.isIPv4Enabled : state.configuration.value.isIPv6Enabled
            return isEnabled ? state.connection : nil
        }
        guard let connection, connection.record.withLock({ $0.isInUse }) else { return nil }
        return connection
    }

    /// Replies to a datagram: from the address that it came to, to its sender. See
    /// `send(_:toHost:port:withTimeout:tag:)`; a connected socket sends to its peer.
    public func send(_ data: Data, inReplyTo datagram: Datagram, withTimeout timeout: TimeInterval, tag: Int) {
        if let connection = connection(reaching: datagram.sender) {
            let target = DatagramTarget.address(datagram.origin, from: datagram.arrival.replySource)
            return connection.send(DatagramPacket(data, to: target, timeout: timeout, completion: .delegate(tag: tag)))
        }
        queue(data, timeout, tag) { () throws(AsyncSocketError) in try reply(to: datagram) }
    }

    func reply(to datagram: Datagram) throws(AsyncSocketError) -> DatagramTarget {
        try target(datagram.sender, from: datagram.arrival.replySource, "send")
    }

    private func queue(
        _ data: Data, _ timeout: TimeInterval, _ tag: Int, to makeTarget: () throws(AsyncSocketError) -> DatagramTarget
    ) {
        do throws(AsyncSocketError) {
            let target = try makeTarget()
            let connection = try target == .peer ? use("send") : openIfNeeded("send")
            connection.send(DatagramPacket(data, to: target, timeout: timeout, completion: .delegate(tag: tag)))
        } catch {
            refuse(tag, error)
        }
    }

    /// Also on a socket that is not in use, whose delegate waits for the answer all the same.
    private func refuse(_ tag: Int, _ error: AsyncSocketError) {
        do throws(AsyncSocketError) {
            try use("send").post(.refuse(tag: tag, error))
        } catch {
            logger.warning("a datagram was dropped, and no loop can say so", metadata: ["error": "\(error)"])
        }
    }

    /// How many bytes wait to be sent, and 64 for each datagram. A snapshot.
    public var pendingSendByteCount: Int {
        connection?.counts.pendingSendBytes.load(ordering: .relaxed) ?? 0
    }

    // MARK: - Receiving

    /// Has the delegate get one datagram: the next that the filter accepts.
    ///
    /// - Throws: `.badConfiguration` when the socket is neither bound nor connected, `.closed` after
    ///   `close()`.
    public func receiveOnce() throws(AsyncSocketError) {
        try receive(.once)
    }

    /// Has the delegate get all datagrams, until `pauseReceiving()` or `receiveOnce()`.
    ///
    /// While the delegate is behind by more than `maximumPendingReceiveBytes`, the kernel keeps the others,
    /// and drops what its buffer has no room for: see `dropCount`.
    ///
    /// - Throws: The errors of `receiveOnce()`.
    public func beginReceiving() throws(AsyncSocketError) {
        try receive(.continuous)
    }

    /// Has the delegate get no more datagrams. Those that are on their way to it still come.
    public func pauseReceiving() {
        connection?.post(.setReceiveMode(.off))
    }

    private func receive(_ mode: ReceiveMode) throws(AsyncSocketError) {
        try openConnection("receive").post(.setReceiveMode(mode))
    }

    /// The connection of a socket that is in use.
    func openConnection(_ operation: String) throws(AsyncSocketError) -> DatagramConnection {
        guard let connection else { throw .notOpen(operation) }
        // The usual case, without the error.
        if connection.record.withLock({ $0.isInUse }) { return connection }
        let (end, isOpen) = connection.record.withLock { record in
            (record.isClosed ? record.end ?? .closed : nil, record.isOpen || record.isConnectClaimed)
        }
        if let end { throw end }
        guard isOpen else { throw .notOpen(operation) }
        return connection
    }

    /// How many datagrams the kernel has dropped, or for the socket of a `DatagramListener` the listener,
    /// since the receive buffer had no room, or since they were damaged. A piece with several datagrams of
    /// one sender (`UDP_GRO`, udp(7)) counts once, unless there is a `maximumReceiveSize`. See
    /// `SocketOption.receiveBufferSize`.
    public var dropCount: Int {
        guard let connection else { return 0 }
        return connection.record.withLock { $0.countDrops() } + connection.counts.mailboxDrops.load(ordering: .relaxed)
    }

    /// How many datagrams `rateLimit` has dropped.
    public var rateLimitedCount: Int {
        connection?.counts.rateLimited.load(ordering: .relaxed) ?? 0
    }

    // MARK: - Filters

    /// Sets a filter that sees each datagram before it leaves, with its address and its tag; one that it
    /// refuses is dropped, and counts as sent.
    ///
    /// - Parameters:
    ///   - queue: A serial queue on which the filter runs, while the datagram and those behind it wait. Nil:
    ///     it runs inside the socket: be quick, and do not block.
    ///   - filter: True: the datagram leaves. Nil: no filter.
    public func setSendFilter(
        on queue: DispatchQueue? = nil,
        _ filter: (@Sendable (_ data: Data, _ address: SocketAddress, _ tag: Int) -> Bool)?
    ) {
        queue?.requireSerial()
        let send = filter.map { filter in SendFilter(on: queue) { filter($0.data, $0.address, $0.tag) } }
        set(.setSendFilter(send))
    }

    /// Sets a filter that sees each datagram before the delegate or a task does.
    ///
    /// - Parameters:
    ///   - queue: A serial queue on which the filter runs. Nil: it runs inside the socket: be quick, and do
    ///     not block.
    ///   - filter: Accepts the datagram, with a context of your own if you like, or drops it. Nil: no filter.
    public func setReceiveFilter(on queue: DispatchQueue? = nil, _ filter: (@Sendable (Datagram) -> DatagramVerdict)?) {
        queue?.requireSerial()
        set(.setReceiveFilter(filter.map { ReceiveFilter(on: queue, $0) }))
    }

    private func set(_ filter: DatagramMessage) {
        do throws(AsyncSocketError) {
            try use("setFilter").post(filter)
        } catch {
            logger.warning("a filter was not set", metadata: ["error": "\(error)"])
        }
    }
}
