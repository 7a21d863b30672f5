internal import SocketBuffers
internal import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// Turns the connection into a TLS connection, behind the reads and writes that are queued now.
    ///
    /// Everything read or written before the call is plaintext, everything after it is encrypted; the handshake begins when the last of the
    /// former is complete. Call it before the connection stands for TLS from the first byte. `socketDidSecure(_:)` follows, or
    /// `socketDidDisconnect(_:withError:)` with an error that says who is to blame and what was wrong.
    ///
    /// Bytes that the peer sends before the handshake are never delivered as if they had come after it: a client refuses them
    /// (`.bytesBufferedAtUpgrade`, by `TLSSettings.bytesBufferedAtUpgrade`), a server takes them for the beginning of the handshake. So read the
    /// reply to a STARTTLS command to its delimiter, never with `readData(withTimeout:tag:)`, and forget what the peer said before
    /// (RFC 3207, section 4.2; RFC 9051, section 6.2.1).
    ///
    /// - Parameter settings: The role and what it takes. The first use of the system's root certificates reads them, which takes some 25 milliseconds.
    /// - Throws: `.tls` when the settings make no sense, before a byte is sent; `.badConfiguration` when the socket is not in use or when `startTLS` has been
    ///   called on this connection before.
    public func startTLS(settings: TLSSettings) throws(AsyncSocketError) {
        let request = try makeRequest(settings)
        guard let connection else { throw .badConfiguration("startTLS", "there is no connection, and none is being made") }
        let refusal = connection.facts.withLock { facts -> String? in
            if facts.isOver { return "the connection has ended" }
            if facts.isClosing || facts.isWriteStreamClosing { return "the connection is being closed" }
            if facts.isUpgradeClaimed { return "startTLS was called on this connection before" }
            facts.isUpgradeClaimed = true
            return nil
        }
        if let refusal { throw .badConfiguration("startTLS", refusal) }
        connection.post(.startTLS(request))
    }

    private func makeRequest(_ settings: TLSSettings) throws(AsyncSocketError) -> TLSRequest {
        do throws(TLSError) {
            return TLSRequest(settings: settings, context: try TLSContext.context(for: settings))
        } catch {
            throw AsyncSocketError(error, operation: "startTLS")
        }
    }
}
