internal import SocketBuffers
internal import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// Upgrades the connection to TLS, after the reads and writes that were asked for before.
    ///
    /// Returns when the handshake is complete and the peer trusted. See `startTLS(settings:)` for what
    /// becomes of bytes that came early. Sequences such as `lines` end here; begin new ones afterwards. A
    /// cancelled handshake closes the connection, and so does every error of the handshake: there is no way
    /// back to plaintext.
    ///
    /// - Parameters:
    ///   - settings: The role and what it needs.
    ///   - trust: Decides about the peer's certificate, in this task, within `TLSSettings.trustTimeout`. It
    ///     can only refuse what OpenSSL has accepted, except with `TLSSettings.TrustEvaluation.manual`. Nil:
    ///     OpenSSL decides, or the delegate if the settings say so.
    /// - Returns: What the handshake negotiated.
    /// - Throws: `CancellationError` when the task is cancelled, what `trust` throws, or an
    ///   `AsyncSocketError`: `.tls`, `.handshakeTimeout`, `.trustTimeout`, `.bytesBufferedAtUpgrade`,
    ///   `.badConfiguration` when the socket is not in use, was upgraded before or has no one to decide, and
    ///   why the connection has ended.
    @discardableResult
    public nonisolated(nonsending) func startTLS(
        settings: TLSSettings, trust: (nonisolated(nonsending) (PeerTrust) async throws -> Bool)? = nil
    ) async throws -> TLSSession {
        let limit = OperationLimit(nil)
        do {
            try limit.check(.startTLS)
        } catch {
            // What follows must not be sent in plaintext.
            disconnect()
            throw error
        }
        guard let connection else { throw Self.notInUse("startTLS") }
        var settings = settings
        if trust != nil, settings.trustEvaluation == .builtIn { settings.trustEvaluation = .delegate }
        guard trust != nil || settings.trustEvaluation == .builtIn || hasDelegate else {
            let error = AsyncSocketError.badConfiguration(
                "startTLS", "no one decides about the certificate: give the parameter trust, or set a delegate")
            connection.post(.fail(error))
            throw error
        }
        var waiter = HandshakeWaiter(.startTLS, limit)
        _ = try startTLS(settings: settings, waiter: waiter, decidesTrust: trust != nil)
        while true {
            switch try await waiter.value(from: connection) {
            case .secured(let session):
                if let session { return session }
                disconnect()
                throw AsyncSocketError.badConfiguration("startTLS", "the handshake has brought no session")
            case .asksTrust(let peer):
                let isAccepted: Bool
                do {
                    isAccepted = try await trust?(peer) ?? false
                } catch {
                    connection.post(.verdict(false))
                    throw error
                }
                waiter = HandshakeWaiter(.startTLS, limit)
                connection.post(.verdictOf(waiter, isAccepted))
            }
        }
    }
}
