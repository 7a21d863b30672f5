internal import SocketBuffers
public import SocketTLS
public import StartTLSProtocols

extension AsyncSocket {
    /// Upgrades the connection to TLS, after the reads and writes that are queued now.
    ///
    /// Everything queued before the call is plaintext, and everything queued after it is encrypted. The
    /// handshake starts when the last earlier read and write are complete. For TLS from the first byte, call
    /// this before the connection is established. `socketDidSecure(_:)` follows, or
    /// `socketDidDisconnect(_:withError:)` with an error that describes the failure.
    ///
    /// `TLSSettings.handshakeTimeout` is measured from the start of the handshake. The preceding reads and
    /// writes are not covered by it: give them timeouts, or a silent peer can keep the connection open.
    ///
    /// Bytes that the peer sends before the handshake are never delivered as if they had been received over
    /// TLS. By default, a client rejects them (`.earlyPlaintext`; the setting is
    /// `TLSSettings.earlyPlaintext`), and a server treats them as the start of the handshake.
    /// Therefore, read the reply to a STARTTLS command up to its delimiter, never with a read of arbitrary
    /// length (`readData` without a length or a delimiter, `readBytes`), and discard any capabilities that
    /// the peer announced before the upgrade (RFC 3207, section 4.2; RFC 9051, section 6.2.1).
    ///
    /// - Parameter settings: The role and its settings. The first use of the system's root certificates loads
    ///   them, which takes about 25 milliseconds.
    /// - Throws: `.tls` if the settings are unusable. The connection then closes with that error: data queued
    ///   after the call is never sent in plaintext, even if you ignore the error. `.badConfiguration`,
    ///   without changing anything, if the socket is not in use or if TLS was already started on this
    ///   connection. `.closed` if you are already closing the connection; then only data that is already
    ///   queued is sent. If the connection has closed for another reason, the call does not throw:
    ///   `socketDidDisconnect(_:withError:)` reports the reason.
    public func beginTLS(settings: TLSSettings<some TLSRole.Side>) throws(AsyncSocketError) {
        try TLSRequest.post(settings.values, to: connection)
    }

    /// Performs a protocol's STARTTLS dialogue as a client, and then upgrades the connection to TLS.
    ///
    /// The dialogue starts after the reads and writes that are queued now. Reads and writes that are queued
    /// later are served over TLS. `socketDidSecure(_:)` or `socketDidDisconnect(_:withError:)` follows.
    ///
    /// - Parameters:
    ///   - client: The protocol and its client-side parameters.
    ///   - settings: The settings of the handshake.
    ///   - dialogueTimeout: The time limit for the dialogue, excluding earlier reads and writes.
    /// - Throws: The errors of `beginTLS(settings:)`, and `.badParameter` if a parameter cannot be sent.
    public func beginTLS(
        as client: StartTLSClient, settings: TLSClientSettings, dialogueTimeout: Duration = .seconds(60)
    ) throws(AsyncSocketError) {
        let values = DialogueRequest.add(client.applicationProtocol, to: settings).values
        try TLSRequest.post(values, to: connection, DialogueRequest.maker(client, dialogueTimeout))
    }

    /// Performs a protocol's STARTTLS dialogue as a server, and then upgrades the connection to TLS.
    ///
    /// For the dialogue, see `acceptStartTLS(as:settings:dialogueTimeout:trust:)`. For the order of
    /// operations, the delegate's methods and the errors, see `beginTLS(as:settings:dialogueTimeout:)`.
    public func beginAcceptingStartTLS(
        as server: StartTLSServer, settings: TLSServerSettings, dialogueTimeout: Duration = .seconds(60)
    ) throws(AsyncSocketError) {
        let values = DialogueRequest.add(server.applicationProtocol, to: settings).values
        try TLSRequest.post(values, to: connection, DialogueRequest.maker(server, dialogueTimeout))
    }

    /// Requests the client's certificate after the handshake (RFC 8446, section 4.6.2). For servers with TLS
    /// 1.3 and `clients` set to `.certificatesOnRequest` in the settings.
    ///
    /// `socket(_:didReceiveClientCertificate:)` follows with the updated session, or with the reason why the
    /// certificate could not be requested. If the settings require a trust decision,
    /// `socket(_:didReceive:completionHandler:)` is called first. The connection closes if the certificate is
    /// bad, missing although required, or rejected, or if the client does not respond within
    /// `TLSSettings.handshakeTimeout`. For how data is handled during the request, see
    /// `requestClientCertificate(isRequired:trust:)`.
    ///
    /// - Parameter isRequired: Whether a client without a certificate is rejected, with the alert
    ///   certificate_required. If `false`, `TLSSession.peerCertificates` is empty for such a client.
    /// - Throws: `.badConfiguration` if the socket is not in use. If the connection has closed for another
    ///   reason, the call does not throw: `socketDidDisconnect(_:withError:)` reports the reason.
    public func beginClientCertificateRequest(isRequired: Bool = true) throws(AsyncSocketError) {
        guard let connection else {
            throw .badConfiguration(.requestClientCertificate, "the socket is not in use: connect it first")
        }
        connection.post(
            .requestClient(
                ClientCertificateRequest(
                    isRequired: isRequired, waiter: nil, waiterDecidesTrust: false, hasDecider: hasDelegate)))
    }

    /// Returns a channel binding of the connection: bytes that an authentication mechanism over the
    /// connection, such as SCRAM-SHA-256-PLUS, must include to prevent relaying.
    ///
    /// Both sides compute the same bytes. The method is for tasks and delegates alike, may be called on any
    /// thread, and does not wait for the delegate.
    ///
    /// - Throws: `.badConfiguration` if the handshake is not complete or the connection has closed; `.tls`
    ///   with the code `bindingUnavailable` if the TLS version, the server's certificate or the peer does not
    ///   support this kind of binding: see `TLSChannelBinding`.
    public func channelBinding(_ kind: TLSChannelBinding) throws(AsyncSocketError) -> [UInt8] {
        try export(.channelBinding) { exporter throws(KeyExporter.Failure) in try exporter.channelBinding(kind) }
    }

    /// Returns keying material that only the two endpoints of this connection can derive, for a purpose of
    /// your own (RFC 5705; RFC 8446, section 7.5).
    ///
    /// May be called on any thread. TLS 1.2 requires the extended master secret, which every current peer
    /// supports (RFC 7627).
    ///
    /// - Parameters:
    ///   - label: The name of the purpose, 1 to 249 bytes. Registered labels start with "EXPORTER", your own
    ///     with "EXPERIMENTAL".
    ///   - context: Additional bytes that the result depends on, or `nil` for no context. At most 65,535
    ///     bytes. With TLS 1.2 and OpenSSL 3.0, the label and the context together may have at most 958
    ///     bytes. In TLS 1.2, no context and an empty context produce different results; in TLS 1.3, the same
    ///     result.
    ///   - length: The number of bytes to return: at least 1, and at most 255 times the hash size of the
    ///     cipher suite, which is 32 or 48 bytes.
    /// - Throws: The errors of `channelBinding(_:)`, and `.badParameter` if the label, the context or the
    ///   length is outside these limits, or if the label is used by TLS itself.
    public func exportKeyingMaterial(
        label: String, context: [UInt8]?, length: Int
    ) throws(AsyncSocketError) -> [UInt8] {
        try export(.exportKeyingMaterial) { exporter throws(KeyExporter.Failure) in
            try exporter.keyingMaterial(label: label, context: context, length: length)
        }
    }

    private func export(
        _ operation: AsyncSocketError.Operation, _ body: (KeyExporter) throws(KeyExporter.Failure) -> [UInt8]
    ) throws(AsyncSocketError) -> [UInt8] {
        try KeyExporter.ask(connection?.record.withLock { $0.snapshot.exporter }, operation, body)
    }
}
