public import Dispatch
public import FoundationEssentials
internal import Logging
internal import SocketBuffers
public import SocketCore
internal import Synchronization

extension AsyncUDPSocket {
    // MARK: - Sending

    /// Sends a datagram to the peer of a connected socket, after all datagrams queued before it.
    ///
    /// When the kernel has accepted the datagram, `udpSocket(_:didSendDataWithTag:)` is called. If sending
    /// fails, `udpSocket(_:didNotSendDataWithTag:dueToError:)` is called with `.badParameter` and the errno
    /// EMSGSIZE if the datagram is too large, `.writeTimeout`, `.writeQueueFull`, `.badConfiguration` if the
    /// socket is not connected, `.closed`, or the kernel's error. You can call this while the socket is
    /// connecting. It has no effect on a closed socket.
    ///
    /// - Parameters:
    ///   - data: The payload, at most 65,507 bytes. It may be empty. It is not copied.
    ///   - timeout: The time limit in seconds, measured from when the datagram reaches the front of the
    ///     queue. A negative value means no limit.
    ///   - tag: A value that is passed to the callback.
    public func send(_ data: Data, withTimeout timeout: TimeInterval, tag: Int) {
        queue(data, timeout, tag) { () throws(AsyncSocketError) in .peer }
    }

    /// Sends a datagram to a host: see `send(_:withTimeout:tag:)`.
    ///
    /// The host name is resolved outside the event loop. The result is kept only while operations on this
    /// socket need it. The datagram is sent to the first usable address of the `preferredFamily`, or else to
    /// the first usable address. A socket that is not in use is first bound to a port chosen by the kernel.
    /// On a connected socket, sending fails.
    public func send(_ data: Data, toHost host: String, port: UInt16, withTimeout timeout: TimeInterval, tag: Int) {
        queue(data, timeout, tag) { () throws(AsyncSocketError) in try target(host, port, .send) }
    }

    /// Sends a datagram to an address: see `send(_:toHost:port:withTimeout:tag:)`. On a connected socket, the
    /// address must be the peer's.
    public func send(_ data: Data, toAddress address: SocketEndpoint, withTimeout timeout: TimeInterval, tag: Int) {
        if let connection = connection(reaching: address) {
            let target = DatagramTarget.address(InternetAddress(address))
            return connection.send(DatagramPacket(data, to: target, timeout: timeout, completion: .delegate(tag: tag)))
        }
        queue(data, timeout, tag) { () throws(AsyncSocketError) in try target(address, .send) }
    }

    /// Returns the connection if the socket is in use and `address` is valid. If this returns `nil`, call
    /// `target(_:from:_:)` and `openIfNeeded(_:)`, which make the same checks with more locking and throw
    /// errors.
    func connection(reaching address: SocketEndpoint) -> DatagramConnection? {
        let family = address.family
        guard family.isInternet, address.port != 0, !address.isMapped else { return nil }
        let connection = state.withLock { state in
            // Reads the fields directly, because calling a method would copy the configuration.
            let isEnabled =
                family == .ipv4 ? state.configuration.value.isIPv4Enabled : state.configuration.value.isIPv6Enabled
            return isEnabled ? state.connection : nil
        }
        guard let connection, connection.record.withLock({ $0.isInUse }) else { return nil }
        return connection
    }

    /// Sends a reply to a datagram's sender, from the local address that the datagram was sent to. See
    /// `send(_:toHost:port:withTimeout:tag:)`. A connected socket can reply only to its peer.
    public func send(_ data: Data, inReplyTo datagram: Datagram, withTimeout timeout: TimeInterval, tag: Int) {
        if let connection = connection(reaching: datagram.sender) {
            let target = DatagramTarget.address(datagram.origin, from: datagram.arrival.replySource)
            return connection.send(DatagramPacket(data, to: target, timeout: timeout, completion: .delegate(tag: tag)))
        }
        queue(data, timeout, tag) { () throws(AsyncSocketError) in try reply(to: datagram) }
    }

    func reply(to datagram: Datagram) throws(AsyncSocketError) -> DatagramTarget {
        try target(datagram.sender, from: datagram.arrival.replySource, .send)
    }

    private func queue(
        _ data: Data, _ timeout: TimeInterval, _ tag: Int, to makeTarget: () throws(AsyncSocketError) -> DatagramTarget
    ) {
        do throws(AsyncSocketError) {
            let target = try makeTarget()
            let connection = try target == .peer ? use(.send) : openIfNeeded(.send)
            connection.send(DatagramPacket(data, to: target, timeout: timeout, completion: .delegate(tag: tag)))
        } catch {
            refuse(tag, error)
        }
    }

    /// Reports the error to the delegate, even if the socket is not in use.
    private func refuse(_ tag: Int, _ error: AsyncSocketError) {
        do throws(AsyncSocketError) {
            try use(.send).post(.refuse(tag: tag, error))
        } catch {
            logger.warning("a datagram was dropped, and no event loop is available to report it", metadata: ["error": "\(error)"])
        }
    }

    /// The number of bytes queued for sending, plus 64 for each datagram. A snapshot.
    public var pendingSendByteCount: Int {
        connection?.counts.pendingSendBytes.load(ordering: .relaxed) ?? 0
    }

    // MARK: - Receiving

    /// Delivers the next datagram to the delegate. If a filter is set, this is the next datagram that it
    /// accepts.
    ///
    /// - Throws: `.badConfiguration` if the socket is neither bound nor connected, `.closed` after
    ///   `disconnect()`.
    public func receiveOnce() throws(AsyncSocketError) {
        try receive(.once)
    }

    /// Delivers all datagrams to the delegate until `pauseReceiving()` or `receiveOnce()` is called.
    ///
    /// If undelivered datagrams exceed `maximumPendingReceiveBytes`, further datagrams stay in the kernel's
    /// receive buffer. The kernel drops datagrams when that buffer is full: see `dropped`.
    ///
    /// - Throws: The errors of `receiveOnce()`.
    public func beginReceiving() throws(AsyncSocketError) {
        try receive(.continuous)
    }

    /// Stops delivering datagrams to the delegate. Datagrams already queued for the delegate are still
    /// delivered.
    public func pauseReceiving() {
        connection?.post(.setReceiveMode(.off))
    }

    private func receive(_ mode: ReceiveMode) throws(AsyncSocketError) {
        try openConnection(.receive).post(.setReceiveMode(mode))
    }

    /// Returns the connection if the socket is in use or has unbound descriptors, and throws otherwise.
    func openConnection(_ operation: AsyncSocketError.Operation) throws(AsyncSocketError) -> DatagramConnection {
        guard let connection else { throw .notOpen(operation) }
        // Fast path that does not construct an error.
        if connection.record.withLock({ $0.isInUse }) { return connection }
        let (end, isCreated) = connection.record.withLock { record in
            (record.isClosed ? record.end ?? .closed : nil, record.isCreated)
        }
        if let end { throw end }
        guard isCreated else { throw .notOpen(operation) }
        return connection
    }

    /// The numbers of received datagrams that were dropped, by reason.
    public var dropped: DroppedDatagrams {
        var dropped = DroppedDatagrams()
        guard let connection else { return dropped }
        let counts = connection.counts
        dropped.overflowed =
            connection.record.withLock { $0.countDrops() } + counts.mailboxDrops.load(ordering: .relaxed)
        dropped.byRate = counts.rateLimited.load(ordering: .relaxed)
        dropped.invalid = counts.droppedRecords.load(ordering: .relaxed)
        return dropped
    }

    // MARK: - Filters

    /// Sets a filter that is called before each datagram is sent. A rejected datagram is dropped and reported
    /// as sent.
    ///
    /// - Parameters:
    ///   - queue: A serial queue on which the filter runs. The datagram and all later ones are delayed until
    ///     the filter returns. If `nil`, the filter runs inside the socket: it must be fast and must not
    ///     block.
    ///   - filter: Receives the payload, destination and tag, and returns whether to send the datagram. If
    ///     `nil`, the filter is removed.
    public func setSendFilter(
        on queue: DispatchQueue? = nil,
        _ filter: (@Sendable (_ data: Data, _ address: SocketEndpoint, _ tag: Int) -> Bool)?
    ) {
        queue?.requireSerial()
        let send = filter.map { filter in SendFilter(on: queue) { filter($0.data, $0.address, $0.tag) } }
        set(.setSendFilter(send))
    }

    /// Sets a filter that is called for each received datagram before the delegate or a task receives it.
    ///
    /// - Parameters:
    ///   - queue: A serial queue on which the filter runs. If `nil`, the filter runs inside the socket: it
    ///     must be fast and must not block.
    ///   - filter: Accepts the datagram, optionally with a context of your choice, or drops it. If `nil`, the
    ///     filter is removed.
    public func setReceiveFilter(on queue: DispatchQueue? = nil, _ filter: (@Sendable (Datagram) -> DatagramVerdict)?) {
        queue?.requireSerial()
        set(.setReceiveFilter(filter.map { ReceiveFilter(on: queue, $0) }))
    }

    private func set(_ filter: DatagramMessage) {
        do throws(AsyncSocketError) {
            try use(.setFilter).post(filter)
        } catch {
            logger.warning("the filter was not set", metadata: ["error": "\(error)"])
        }
    }
}
