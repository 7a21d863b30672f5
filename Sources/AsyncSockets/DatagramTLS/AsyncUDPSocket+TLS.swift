internal import Dispatch
internal import SocketBuffers
internal import SocketCore
public import SocketTLS
internal import Synchronization

// DTLS 1.2 (RFC 6347): TLS for datagrams.
extension AsyncUDPSocket {
    /// Upgrades a connected socket to DTLS 1.2, after all datagrams that have already been queued.
    ///
    /// Datagrams sent before the call are plaintext, and later datagrams are encrypted. A datagram that
    /// another thread or task sends between the call and the start of the handshake may be sent in plaintext
    /// or encrypted, so send it earlier or later. A `receiveOnce()` that a delegate requested before the call
    /// receives its datagram first. After that, no plaintext is delivered. Plaintext that was received but
    /// not delivered is dropped, even if it is already queued for a delegate or a filter. Arriving datagrams
    /// that are not DTLS are dropped and counted (`dropped`). To use DTLS from the first datagram,
    /// call this right after `connect`.
    ///
    /// Returns when the handshake is complete and the peer is trusted. If the peer does not reply, handshake
    /// messages are retransmitted after one second, two, four and so on, until
    /// `TLSSettings.handshakeTimeout`. The same limit applies separately to work before the handshake:
    /// datagrams that the kernel has no room for, an earlier `receiveOnce()`, and filters that have not
    /// returned a verdict. If the handshake fails or is cancelled, the socket closes; it never returns to
    /// plaintext. The socket receives only from the peer's address and port. If the peer changes its port,
    /// its datagrams are dropped.
    ///
    /// DTLS protects each datagram, but is as unreliable as UDP: datagrams may be lost or reordered. No
    /// datagram is delivered twice. When the peer closes the connection (close_notify), the socket closes,
    /// and `receive(timeout:)` throws `.closedByPeer`.
    ///
    /// - Parameters:
    ///   - settings: The role and its settings. DTLS 1.2 does not support early data or authentication after
    ///     the handshake, and `serverNames` requires a `DatagramListener`. The `minimumVersion` and the
    ///     policy must allow DTLS 1.2 (`.tls12` or `.dtls12`).
    ///   - trust: See `AsyncSocket.startTLS(settings:trust:)`.
    /// - Returns: The session that the handshake negotiated.
    /// - Throws: `CancellationError` if the task is cancelled, the errors of `trust`, or an
    ///   `AsyncSocketError`: `.tls` (with `invalidSettings` before anything is sent); `.handshakeTimeout` (if
    ///   the network reported delivery failures (ICMP), the message gives their number and the last one, and
    ///   `errno` is the last one's); `.trustTimeout`; `.badConfiguration` if the socket is not connected or
    ///   an upgrade has already been started, if the settings require a trust decision but there is neither
    ///   `trust` nor a delegate, or if a task has a pending `receive(timeout:)` or exchange, which closes the
    ///   socket; or the error that closed the socket.
    @discardableResult
    public nonisolated(nonsending) func startDTLS(
        settings: TLSSettings<some TLSRole.Side>, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        try await askForDTLS(settings, hasTrust: trust != nil).session(trust).value
    }

    /// Starts `startDTLS(settings:trust:)`. A separate function, so that the waiting task does not keep the
    /// settings in memory.
    @inline(never)
    func askForDTLS(_ settings: TLSSettings<some TLSRole.Side>, hasTrust: Bool) throws -> AwaitedHandshake<AsyncUDPSocket> {
        let limit = OperationLimit(nil)
        do {
            try limit.check(.startDTLS)
        } catch {
            // Later datagrams must not be sent in plaintext.
            disconnect()
            throw error
        }
        let connection = try upgradable()
        let values: TLSSettingValues
        do {
            values = try settings.values.forTask(hasTrust: hasTrust, hasDelegate: hasDelegate, .startDTLS)
        } catch {
            connection.post(.close(error))
            throw error
        }
        let waiter = HandshakeWaiter(.startDTLS, limit)
        try startDTLS(values, waiter, decidesTrust: hasTrust, on: connection)
        return AwaitedHandshake(operation: .startDTLS, waiter: waiter, limit: limit, connection: connection, socket: self)
    }

    /// Starts the upgrade of a connected socket to DTLS 1.2: see `startDTLS(settings:trust:)`.
    ///
    /// Datagrams sent after this returns are encrypted. When the handshake is complete,
    /// `udpSocketDidSecure(_:)` is called. If it fails, `udpSocketDidClose(_:withError:)` is called. If the
    /// settings require a trust decision, `udpSocket(_:didReceive:completionHandler:)` is called first.
    ///
    /// `TLSSettings.handshakeTimeout` is measured from the start of the handshake. Work before the handshake
    /// has no time limit: a `receiveOnce()` without a datagram, or a filter that does not return a verdict,
    /// prevents the handshake from starting.
    ///
    /// - Parameter settings: The role and its settings.
    /// - Throws: `.tls` if the settings are unusable. The socket then closes with that error, so data sent
    ///   after the call is never sent in plaintext, even if you ignore the error. `.badConfiguration`,
    ///   without any effect, if the socket is not connected or DTLS was already started. The error that
    ///   closed the socket, or `.closed` after `disconnect()`.
    public func beginDTLS(settings: TLSSettings<some TLSRole.Side>) throws(AsyncSocketError) {
        try startDTLS(settings.values, nil, decidesTrust: false, on: upgradable())
    }

    /// Returns the connection of a socket that is connected or connecting.
    private func upgradable() throws(AsyncSocketError) -> DatagramConnection {
        guard let connection, connection.record.withLock({ $0.isConnectClaimed }) else {
            throw .badConfiguration(.startDTLS, "the socket is not connected: connect it first")
        }
        return connection
    }

    private func startDTLS(
        _ settings: TLSSettingValues, _ waiter: HandshakeWaiter?, decidesTrust: Bool, on connection: DatagramConnection
    ) throws(AsyncSocketError) {
        let endpoint = try connection.claimUpgrade()
        do throws(TLSError) {
            let settings = settings.expecting(endpoint?.host)
            try settings.requireListenerForNames(connection.record.withLock { $0.isShared })
            let context = try TLSContext.context(for: settings, over: .datagrams)
            connection.post(
                .startTLS(
                    TLSRequest(
                        settings: settings, context: context, waiter: waiter, waiterDecidesTrust: decidesTrust,
                        endpoint: endpoint.map { "\($0.host):\($0.port)" })))
        } catch {
            let failure = AsyncSocketError(error, operation: .startDTLS)
            connection.post(.close(failure))
            throw failure
        }
    }

    private var hasDelegate: Bool {
        var delegate: (any AsyncUDPSocketDelegate)?
        var queue: DispatchQueue?
        copyDelegate(to: &delegate, &queue)
        return delegate != nil
    }

    // MARK: - Properties

    /// Whether the DTLS handshake is complete and the peer is trusted. Stays true after the socket has
    /// closed.
    public var isSecure: Bool { security != nil }

    /// The session that the DTLS handshake negotiated, or `nil` until the handshake is complete. Still
    /// available after the socket has closed.
    public var tlsSession: TLSSession? { security?.session?.value }

    private var security: DatagramSecurity? { connection?.record.withLock { $0.security } }

    /// The maximum size of a datagram on a secure socket in bytes, or `nil` until the socket is secure.
    ///
    /// The size is 16,384, or less if the path cannot carry that much (see `maximumDatagramSize`). It is
    /// reduced if the path turns out to carry less. Larger datagrams fail with `.badParameter` and the errno
    /// EMSGSIZE.
    public var maximumSendSize: Int? {
        guard let limit = connection?.counts.secureSendLimit.load(ordering: .relaxed), limit > 0 else { return nil }
        return limit
    }

    /// Returns a channel binding of the connection: see `AsyncSocket.channelBinding(_:)`.
    ///
    /// - Throws: The errors of `AsyncSocket.channelBinding(_:)`.
    public func channelBinding(_ kind: TLSChannelBinding) throws(AsyncSocketError) -> [UInt8] {
        try KeyExporter.ask(security?.exporter, .channelBinding) { exporter throws(KeyExporter.Failure) in
            try exporter.channelBinding(kind)
        }
    }

    /// Returns bytes that only the two peers can derive: see
    /// `AsyncSocket.exportKeyingMaterial(label:context:length:)`.
    ///
    /// - Throws: The errors of `AsyncSocket.exportKeyingMaterial(label:context:length:)`.
    public func exportKeyingMaterial(
        label: String, context: [UInt8]?, length: Int
    ) throws(AsyncSocketError) -> [UInt8] {
        try KeyExporter.ask(security?.exporter, .exportKeyingMaterial) { exporter throws(KeyExporter.Failure) in
            try exporter.keyingMaterial(label: label, context: context, length: length)
        }
    }
}

extension DatagramConnection {
    /// Claims the socket's only upgrade. Returns the host that the socket connects to.
    fileprivate func claimUpgrade() throws(AsyncSocketError) -> HostQuery? {
        let (endpoint, refusal) = record.withLock { record -> (HostQuery?, AsyncSocketError?) in
            if record.isClosed { return (nil, record.end ?? .closed) }
            if record.isUpgradeClaimed {
                return (nil, .badConfiguration(.startDTLS, "startDTLS has already been called on this socket"))
            }
            record.isUpgradeClaimed = true
            // Set immediately, because events with plaintext may already be queued for the delegate.
            counts.isUpgradeClaimed.store(true, ordering: .releasing)
            return (record.endpoint, nil)
        }
        if let refusal { throw refusal }
        return endpoint
    }
}

extension AsyncUDPSocket: UpgradableSocket {
    static func post(_ news: UpgradeNews, to connection: DatagramConnection) { connection.post(.upgrading(news)) }

    func abandonUpgrade() { disconnect() }
}
