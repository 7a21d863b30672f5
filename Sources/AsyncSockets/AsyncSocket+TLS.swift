internal import SocketBuffers
internal import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// Upgrades the connection to TLS, after the reads and writes that are queued now.
    ///
    /// Everything queued before the call is plaintext, everything after it is encrypted; the handshake begins
    /// when the last of the former is complete. For TLS from the first byte, call it before the connection is
    /// established. `socketDidSecure(_:)` follows, or `socketDidDisconnect(_:withError:)` with an error that
    /// says who is to blame and what was wrong.
    ///
    /// `TLSSettings.handshakeTimeout` counts from the beginning of the handshake. The wait for the reads and
    /// writes before it has no limit of its own: give those one, or a silent peer keeps the connection.
    ///
    /// Bytes that the peer sends before the handshake are never delivered as if they had come after it: a
    /// client refuses them (`.bytesBufferedAtUpgrade`, by `TLSSettings.bytesBufferedAtUpgrade`), a server
    /// takes them as the start of the handshake. So read the reply to a STARTTLS command up to its delimiter,
    /// never with a read that takes what is there (`readData` without a length or a delimiter, `readBytes`),
    /// and discard what the peer said before (RFC 3207, section 4.2; RFC 9051, section 6.2.1).
    ///
    /// - Parameter settings: The role and what it needs. The first use of the system's root certificates
    ///   reads them, which takes about 25 milliseconds.
    /// - Throws: `.tls` when the settings are unusable. The connection ends with that error: what you queue
    ///   after the call is never sent in plaintext, even if you ignore the error. `.badConfiguration`, and
    ///   nothing changes, when the socket is not in use, or when TLS was begun on this connection before;
    ///   `.closed` when you are closing it, and then nothing more is sent than what is queued. When the
    ///   connection has ended by itself it does not throw: `socketDidDisconnect(_:withError:)` says why.
    public func beginTLS(settings: TLSSettings<some TLSSide>) throws(AsyncSocketError) {
        _ = try startTLS(settings: settings.values, waiter: nil, decidesTrust: false)
    }

    /// Asks the client for its certificate after the handshake (RFC 8446, section 4.6.2). For a server whose
    /// settings have `clients` set to `.certificatesOnRequest`, in TLS 1.3.
    ///
    /// `socket(_:didRequestClientCertificate:)` follows: with what is known of the client, or with the reason
    /// why it could not be asked. If the settings ask for it, `socket(_:didReceive:completionHandler:)` comes
    /// before. A bad certificate, none where one is required, a refusal, and an answer that does not come
    /// within `TLSSettings.handshakeTimeout` end the connection. For what becomes of data meanwhile
    /// see `requestClientCertificate(isRequired:trust:)`.
    ///
    /// - Parameter isRequired: True: a client without a certificate is refused, with the alert
    ///   certificate_required. False: `TLSSession.peerCertificates` is empty then.
    /// - Throws: `.badConfiguration` when the socket is not in use. When the connection has ended by itself
    ///   the call does not throw: `socketDidDisconnect(_:withError:)` says why.
    public func beginClientCertificateRequest(isRequired: Bool = true) throws(AsyncSocketError) {
        guard let connection else {
            throw .badConfiguration("requestClientCertificate", "the socket is not in use: connect it first")
        }
        connection.post(
            .requestClient(
                ClientCertificateRequest(
                    isRequired: isRequired, waiter: nil, waiterDecidesTrust: false, hasDecider: hasDelegate)))
    }

    /// A channel binding of the connection: what an authentication over it, such as SCRAM-SHA-256-PLUS, has
    /// to include, so that it cannot be relayed.
    ///
    /// Both sides get the same bytes. It serves tasks and delegates alike, may be called on any thread, and
    /// does not wait for the delegate.
    ///
    /// - Throws: `.badConfiguration` when the handshake is not complete, or the connection has ended; `.tls`,
    ///   with the code `bindingUnavailable`, when the version of TLS, the server's certificate or the peer
    ///   does not allow this kind: see `TLSChannelBinding`.
    public func channelBinding(_ kind: TLSChannelBinding) throws(AsyncSocketError) -> [UInt8] {
        try export("channelBinding") { exporter throws(KeyExporter.Failure) in try exporter.channelBinding(kind) }
    }

    /// Bytes that only the two ends of this connection can derive, for a purpose of yours (RFC 5705; RFC
    /// 8446, section 7.5).
    ///
    /// It may be called on any thread. TLS 1.2 must have the extended master secret, as it has with every
    /// current peer (RFC 7627).
    ///
    /// - Parameters:
    ///   - label: The name of the purpose: 1 to 249 bytes. Registered labels begin with "EXPORTER", and your
    ///     own with "EXPERIMENTAL".
    ///   - context: Other bytes that the result depends on; nil for none. At most 65,535 bytes, but with TLS
    ///     1.2 and OpenSSL 3.0 958 together with the label. In TLS 1.2 no context and an empty one give
    ///     different bytes, in TLS 1.3 the same.
    ///   - length: The number of bytes: at least 1, and at most 255 times the size of the hash of the cipher
    ///     suite, which is 32 or 48.
    /// - Throws: What `channelBinding(_:)` throws, and `.badParameter` when the label, the context or the
    ///   length is out of these limits, or TLS uses the label itself.
    public func exportKeyingMaterial(
        label: String, context: [UInt8]?, length: Int
    ) throws(AsyncSocketError) -> [UInt8] {
        try export("exportKeyingMaterial") { exporter throws(KeyExporter.Failure) in
            try exporter.keyingMaterial(label: label, context: context, length: length)
        }
    }

    private func export(
        _ operation: String, _ body: (KeyExporter) throws(KeyExporter.Failure) -> [UInt8]
    ) throws(AsyncSocketError) -> [UInt8] {
        try KeyExporter.ask(connection?.record.withLock { $0.snapshot.exporter }, operation, body)
    }

    /// False when the connection has ended by itself and no waiter is to hear of it.
    func startTLS(
        settings: TLSSettingValues, waiter: (any OperationWaiter<HandshakeNews>)?, decidesTrust: Bool,
        waitsForNoTask: Bool = false
    ) throws(AsyncSocketError) -> Bool {
        guard let connection else { throw .badConfiguration("startTLS", "the socket is not in use: connect it first") }
        // The turn answers a waiter: it knows why the connection has ended.
        guard try claimUpgrade(of: connection) || waiter != nil else { return false }
        do throws(TLSError) {
            let claims = connection.record.withLock { $0.claims }
            let settings = settings.expecting(claims.host)
            let context = try TLSContext.context(for: settings)
            let request = TLSRequest(
                settings: settings, context: context, waiter: waiter, waiterDecidesTrust: decidesTrust,
                waitsForNoTask: waitsForNoTask, endpoint: claims.endpoint?.value)
            connection.post(.startTLS(request))
            return true
        } catch {
            let failure = AsyncSocketError(error, operation: "startTLS")
            connection.post(.fail(failure))
            throw failure
        }
    }

    /// False when the connection has ended.
    private func claimUpgrade(of connection: StreamConnection) throws(AsyncSocketError) -> Bool {
        switch connection.record.withLock({ $0.claimUpgrade() }) {
        case .granted: return true
        case .over: return false
        case .repeated: throw .badConfiguration("startTLS", "startTLS was called on this connection before")
        case .closing(let intent):
            // The thread that does it may only have said so yet: no write may leave before that.
            connection.post(intent.map { .close($0) } ?? .closeWriteStream)
            throw .closing("startTLS")
        }
    }
}
