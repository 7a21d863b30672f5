internal import SocketBuffers
internal import SocketCore
public import SocketTLS
public import StartTLSProtocols

// Upgrades that begin with a protocol's dialogue, for tasks and for delegates.

extension AsyncSocket {
    /// Performs a protocol's STARTTLS dialogue as a client, and then upgrades the connection to TLS.
    ///
    /// ```swift
    /// try await socket.connect(to: "mail.example.org", port: 587)
    /// try await socket.startTLS(as: .smtp(name: "client.example"), settings: .client)
    /// try await socket.writeLine("EHLO client.example")
    /// ```
    ///
    /// Call this immediately after connecting, before any read: the dialogue includes the server's greeting.
    /// Returns when the handshake is complete and the server is trusted. Reads and writes that start during
    /// the dialogue wait until then. The connection is closed if the server does not offer TLS or refuses it,
    /// if it sends anything unexpected, or if bytes arrive ahead of the handshake. It never continues in
    /// plaintext. What the server offered before the upgrade is not returned: request it again over TLS.
    ///
    /// - Parameters:
    ///   - client: The protocol.
    ///   - settings: The settings of the handshake.
    ///   - dialogueTimeout: The time limit of the dialogue. The handshake has its own limit,
    ///     `TLSSettings.handshakeTimeout`.
    ///   - trust: See `startTLS(settings:trust:)`.
    /// - Returns: The negotiated session.
    /// - Throws: The errors of `startTLS(settings:trust:)`, and an `AsyncSocketError` whose property
    ///   `startTLS` describes why the dialogue failed: `.startTLSFailed`, or `.earlyPlaintext` if bytes
    ///   were injected. `.handshakeTimeout` if the dialogue was not complete in time.
    @discardableResult
    public nonisolated(nonsending) func startTLS(
        as client: StartTLSClient, settings: TLSClientSettings, dialogueTimeout: Duration = .seconds(60),
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        try await askForTLS(
            settings.offering(client.applicationProtocol), hasTrust: trust != nil,
            dialogue: DialogueRequest(StartTLSDialogue(client: client), dialogueTimeout)
        ).session(trust).value
    }

    /// Performs a protocol's STARTTLS dialogue as a server, and then upgrades the connection to TLS.
    ///
    /// ```swift
    /// try await socket.acceptStartTLS(
    ///     as: .smtp(greeting: "mail.example.org ESMTP"), settings: .server(identity: identity))
    /// ```
    ///
    /// Call this as the first operation on an accepted connection: the dialogue sends the greeting. The
    /// server replies to the client's commands and rejects those that need TLS. Returns when the client has
    /// requested TLS and the handshake is complete. Nothing that the client sent before is kept: the session
    /// starts again over TLS. The connection is closed if the client ends the session, sends anything after
    /// the command that starts TLS, or exceeds `StartTLSDialogue.maximumLength`.
    ///
    /// - Parameters:
    ///   - server: The protocol.
    ///   - settings: The settings of the handshake.
    ///   - dialogueTimeout: The time limit of the dialogue, whatever the client sends. The handshake has its
    ///     own limit, `TLSSettings.handshakeTimeout`.
    ///   - trust: See `startTLS(settings:trust:)`.
    /// - Returns: The negotiated session.
    /// - Throws: The errors of `startTLS(as:settings:dialogueTimeout:trust:)`. If the client ended
    ///   the session, the code of its `startTLS` is `ended`.
    @discardableResult
    public nonisolated(nonsending) func acceptStartTLS(
        as server: StartTLSServer, settings: TLSServerSettings, dialogueTimeout: Duration = .seconds(60),
        trust: (@Sendable (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        try await askForTLS(
            settings, hasTrust: trust != nil, dialogue: DialogueRequest(StartTLSDialogue(server: server), dialogueTimeout)
        ).session(trust).value
    }

    // MARK: - Delegates

    /// Performs a protocol's STARTTLS dialogue as a client, and then upgrades the connection to TLS.
    ///
    /// The dialogue starts after the reads and writes that are queued now. Reads and writes that are queued
    /// later are served over TLS. `socketDidSecure(_:)` follows, or `socketDidDisconnect(_:withError:)` with
    /// the errors of `startTLS(as:settings:dialogueTimeout:trust:)`.
    ///
    /// - Parameters:
    ///   - client: The protocol.
    ///   - settings: The settings of the handshake.
    ///   - dialogueTimeout: The time limit of the dialogue. Earlier reads and writes are not included.
    /// - Throws: The errors of `beginTLS(settings:)`.
    public func beginTLS(
        as client: StartTLSClient, settings: TLSClientSettings, dialogueTimeout: Duration = .seconds(60)
    ) throws(AsyncSocketError) {
        _ = try startTLS(
            settings: settings.offering(client.applicationProtocol).values, waiter: nil, decidesTrust: false,
            dialogue: DialogueRequest(StartTLSDialogue(client: client), dialogueTimeout))
    }

    /// Performs a protocol's STARTTLS dialogue as a server, and then upgrades the connection to TLS.
    ///
    /// See `acceptStartTLS(as:settings:dialogueTimeout:trust:)` for the dialogue, and
    /// `beginTLS(as:settings:dialogueTimeout:)` for the order of operations and for the delegate's methods.
    ///
    /// - Parameters:
    ///   - server: The protocol.
    ///   - settings: The settings of the handshake.
    ///   - dialogueTimeout: The time limit of the dialogue. Earlier reads and writes are not included.
    /// - Throws: The errors of `beginTLS(settings:)`.
    public func beginAcceptingTLS(
        as server: StartTLSServer, settings: TLSServerSettings, dialogueTimeout: Duration = .seconds(60)
    ) throws(AsyncSocketError) {
        _ = try startTLS(
            settings: settings.values, waiter: nil, decidesTrust: false,
            dialogue: DialogueRequest(StartTLSDialogue(server: server), dialogueTimeout))
    }
}

extension DialogueRequest {
    fileprivate init(_ dialogue: StartTLSDialogue, _ timeout: Duration) {
        self.init(dialogue: dialogue, seconds: max(timeout.inSeconds, 0))
    }
}

extension TLSClientSettings {
    /// Adds the application protocol that a server requires, unless the program has set its own.
    fileprivate func offering(_ applicationProtocol: String?) -> Self {
        guard let applicationProtocol, applicationProtocols.isEmpty else { return self }
        var settings = self
        settings.applicationProtocols = [applicationProtocol]
        return settings
    }
}
