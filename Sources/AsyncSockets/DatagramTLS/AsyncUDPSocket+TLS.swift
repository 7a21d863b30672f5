internal import Dispatch
internal import SocketBuffers
internal import SocketCore
public import SocketTLS
internal import Synchronization

// DTLS 1.2 (RFC 6347): TLS for datagrams.
extension AsyncUDPSocket {
    /// Upgrades a connected socket to DTLS 1.2, after the datagrams that were sent before.
    ///
    /// Datagrams that were sent before the call are plaintext, and later ones are encrypted. One that another
    /// thread or task sends before the handshake has begun may be either: let it wait, or send it first. A
    /// `receiveOnce()` of the delegate from before gets its datagram first. After that nothing in plaintext
    /// is delivered any more: what was received and not delivered is dropped, also when it is on its way to
    /// a delegate or a filter, and what arrives without being of DTLS is dropped and counted
    /// (`droppedRecordCount`). For DTLS from the first datagram call it right after `connect`.
    ///
    /// Returns when the handshake is complete and the peer trusted. The messages of the handshake are sent
    /// again when answers do not come, after a second, two, four and so on, until
    /// `TLSSettings.handshakeTimeout`. The wait for what comes before the handshake may take as long again:
    /// for datagrams that the kernel has no room for, an earlier `receiveOnce()`, and filters that have not
    /// answered. A handshake that fails or is cancelled closes the socket: nothing leads back to plaintext.
    /// The socket hears nothing but its peer, also when that goes on from another port.
    ///
    /// DTLS protects each datagram, and promises no more than UDP: datagrams may be lost, and come in another
    /// order. None is delivered twice. When the peer says that it closes (close_notify), the socket closes,
    /// and `receive(timeout:)` throws `.closedByPeer`.
    ///
    /// - Parameters:
    ///   - settings: The role and what it needs. DTLS 1.2 has no early data, no authentication after the
    ///     handshake and no `serverNames`, and `minimumVersion` and the policy have to allow it (`.tls12` or
    ///     `.dtls12`).
    ///   - trust: As for `AsyncSocket.startTLS(settings:trust:)`.
    /// - Returns: The session that the handshake negotiated.
    /// - Throws: `CancellationError` when the task is cancelled, what `trust` throws, or an
    ///   `AsyncSocketError`: `.tls` (with `invalidSettings` before anything is sent), `.handshakeTimeout`,
    ///   `.trustTimeout`, `.badConfiguration` when the socket is not connected or was upgraded before, when
    ///   neither `trust` nor a delegate decides though the settings ask for it, or when a task waits in
    ///   `receive(timeout:)`, which closes the socket; and why the socket has closed.
    @discardableResult
    public nonisolated(nonsending) func startDTLS(
        settings: TLSSettings<some TLSSide>, trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        try await askForDTLS(settings, hasTrust: trust != nil).session(trust).value
    }

    /// Begins `startDTLS(settings:trust:)`. The task that waits keeps none of the settings.
    @inline(never)
    func askForDTLS(_ settings: TLSSettings<some TLSSide>, hasTrust: Bool) throws -> AwaitedDatagramHandshake {
        let limit = OperationLimit(nil)
        do {
            try limit.check(.startTLS)
        } catch {
            // Later datagrams must not leave in plaintext.
            close()
            throw error
        }
        let connection = try upgradable()
        var settings = settings.values
        if hasTrust, settings.trustEvaluation == .builtIn { settings.trustEvaluation = .delegate }
        guard hasTrust || settings.trustEvaluation == .builtIn || hasDelegate else {
            let error = AsyncSocketError.badConfiguration(
                "startDTLS", "the settings leave the certificate to the program to decide about: pass trust, or set a delegate")
            connection.post(.close(error))
            throw error
        }
        let waiter = HandshakeWaiter(.startTLS, limit)
        try startDTLS(settings, waiter, decidesTrust: hasTrust, on: connection)
        return AwaitedDatagramHandshake(waiter: waiter, limit: limit, connection: connection, socket: self)
    }

    /// Upgrades a connected socket to DTLS 1.2: see `startDTLS(settings:trust:)`. Datagrams that are sent
    /// once this has returned are encrypted.
    ///
    /// `udpSocketDidSecure(_:)` follows, or `udpSocketDidClose(_:withError:)`. If the settings ask for it,
    /// `udpSocket(_:didReceive:completionHandler:)` comes before.
    ///
    /// `TLSSettings.handshakeTimeout` counts from the beginning of the handshake. The wait for what comes
    /// before it has no limit: a `receiveOnce()` whose datagram does not come, or a filter that does not
    /// answer, keeps the handshake from beginning.
    ///
    /// - Parameter settings: The role and what it needs.
    /// - Throws: `.tls` when the settings are unusable, and the socket closes with that error: what you send
    ///   after the call never leaves in plaintext, even if you ignore the error. `.badConfiguration`, and
    ///   nothing changes, when the socket is not connected, or DTLS was begun on it before. `.closed` when it
    ///   is closed.
    public func beginDTLS(settings: TLSSettings<some TLSSide>) throws(AsyncSocketError) {
        try startDTLS(settings.values, nil, decidesTrust: false, on: upgradable())
    }

    /// A connected socket, or one that connects.
    private func upgradable() throws(AsyncSocketError) -> DatagramConnection {
        guard let connection, connection.record.withLock({ $0.isConnectClaimed }) else {
            throw .badConfiguration("startDTLS", "the socket is not connected: connect it first")
        }
        return connection
    }

    private func startDTLS(
        _ settings: TLSSettingValues, _ waiter: HandshakeWaiter?, decidesTrust: Bool, on connection: DatagramConnection
    ) throws(AsyncSocketError) {
        let endpoint = try connection.claimUpgrade()
        do throws(TLSError) {
            let settings = settings.expecting(endpoint?.host)
            let context = try TLSContext.context(for: settings, over: .datagrams)
            connection.post(
                .startTLS(
                    TLSRequest(
                        settings: settings, context: context, waiter: waiter, waiterDecidesTrust: decidesTrust,
                        endpoint: endpoint.map { "\($0.host):\($0.port)" })))
        } catch {
            let failure = AsyncSocketError(error, operation: "startDTLS")
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

    // MARK: - Facts

    /// True once the handshake of DTLS is complete and the peer is trusted. It stays true after the end.
    public var isSecure: Bool { security != nil }

    /// The result of the handshake of DTLS. Nil before; it stays after the end.
    public var tlsSession: TLSSession? { security?.session?.value }

    private var security: DatagramSecurity? { connection?.record.withLock { $0.security } }

    /// The most bytes that a datagram of a secure socket may have: 16,384, or less when the path carries less
    /// (see `maximumDatagramSize`); it changes when the path is found to carry less. Larger ones fail with
    /// `.badParameter` and the errno EMSGSIZE. Nil before the socket is secure.
    public var maximumSendSize: Int? {
        guard let limit = connection?.counts.secureSendLimit.load(ordering: .relaxed), limit > 0 else { return nil }
        return limit
    }

    /// How many records DTLS has dropped: not of DTLS, not authentic, or not new. Anyone can send those, and
    /// they change nothing else.
    public var droppedRecordCount: Int { connection?.counts.droppedRecords.load(ordering: .relaxed) ?? 0 }

    /// A channel binding of the connection: see `AsyncSocket.channelBinding(_:)`.
    ///
    /// - Throws: The errors of that.
    public func channelBinding(_ kind: TLSChannelBinding) throws(AsyncSocketError) -> [UInt8] {
        try KeyExporter.ask(security?.exporter, "channelBinding") { exporter throws(KeyExporter.Failure) in
            try exporter.channelBinding(kind)
        }
    }

    /// Bytes that only the two ends can derive: see
    /// `AsyncSocket.exportKeyingMaterial(label:context:length:)`.
    ///
    /// - Throws: The errors of that.
    public func exportKeyingMaterial(
        label: String, context: [UInt8]?, length: Int
    ) throws(AsyncSocketError) -> [UInt8] {
        try KeyExporter.ask(security?.exporter, "exportKeyingMaterial") { exporter throws(KeyExporter.Failure) in
            try exporter.keyingMaterial(label: label, context: context, length: length)
        }
    }
}

extension DatagramConnection {
    /// Claims the one upgrade of the socket; returns the host that it connects to.
    fileprivate func claimUpgrade() throws(AsyncSocketError) -> HostQuery? {
        let (endpoint, refusal) = record.withLock { record -> (HostQuery?, AsyncSocketError?) in
            if record.isClosed { return (nil, .closed) }
            if record.isUpgradeClaimed {
                return (nil, .badConfiguration("startDTLS", "startDTLS was called on this socket before"))
            }
            record.isUpgradeClaimed = true
            // At once: events with plaintext may be on their way to the delegate.
            counts.isUpgradeClaimed.store(true, ordering: .releasing)
            return (record.endpoint, nil)
        }
        if let refusal { throw refusal }
        return endpoint
    }
}

/// A handshake of DTLS that a task has begun, and waits for: see `AwaitedHandshake`.
struct AwaitedDatagramHandshake {
    let waiter: HandshakeWaiter
    let limit: OperationLimit
    let connection: DatagramConnection
    let socket: AsyncUDPSocket

    /// Waits for the end, and has `trust` decide on the way.
    nonisolated(nonsending) func session(
        _ trust: (@Sendable (PeerTrust) async throws -> Bool)?
    ) async throws -> CopyOnWrite<TLSSession> {
        let session = try await waiter.session(.startTLS, limit, from: connection, trust) { [weak connection] in
            connection?.post(.upgrading($0))
        }
        if let session { return session }
        socket.close()
        throw AsyncSocketError.badConfiguration("startDTLS", "the handshake ended without a session")
    }
}
