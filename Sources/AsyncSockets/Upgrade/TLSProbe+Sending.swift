internal import SocketBuffers
public import SocketTLS
public import StartTLSProtocols

extension TLSProbe {
    /// Sends the offer over a connection, and returns the server's reply. No handshake is completed.
    ///
    /// Use a new connection for each probe, and close it afterwards. The bytes that follow the reply are not
    /// read.
    ///
    /// ```swift
    /// let probe = TLSProbe(version: 0x0301, cipherSuites: [0x002F], serverName: "mail.example.org")
    /// let reply = try await AsyncSocket.withConnection(to: "mail.example.org", port: 993) {
    ///     try await probe.reply(over: $0)
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - socket: A connection that is not secure.
    ///   - timeout: The time limit for the reply.
    /// - Throws: The errors of `read(maxLength:timeout:)` and `write(_:timeout:)`. `.closedByPeer` if the
    ///   server closes the connection without a reply, as some servers do to reject an offer.
    public nonisolated(nonsending) func reply(
        over socket: AsyncSocket, timeout: Duration = .seconds(30)
    ) async throws -> Reply {
        try await withDeadline(timeout) {
            try await socket.write(record)
            var bytes: [UInt8] = []
            while bytes.count < Self.maximumReplyBytes {
                guard let more = try await socket.read(maxLength: Self.maximumReplyBytes - bytes.count) else {
                    throw AsyncSocketError(
                        .closedByPeer, fault: .peer, operation: .read,
                        message: "the server closed the connection without a reply to the TLS offer")
                }
                bytes += more
                if let reply = Self.reply(in: bytes) { return reply }
            }
            return .notTLS
        }
    }

    /// Performs a protocol's STARTTLS dialogue as a client, sends the offer, and returns the server's reply.
    ///
    /// See `reply(over:timeout:)`. Bytes that the server injects before its TLS reply are not detected,
    /// because a probe transfers no data. Call this immediately after connecting, because the dialogue
    /// includes the server's greeting.
    ///
    /// - Parameters:
    ///   - socket: A connection that is not secure.
    ///   - client: The protocol and its client-side parameters.
    ///   - timeout: The time limit for the dialogue and the reply.
    /// - Throws: The errors of `reply(over:timeout:)`, and a `StartTLSError` if the server refuses TLS.
    public nonisolated(nonsending) func reply(
        over socket: AsyncSocket, after client: StartTLSClient, timeout: Duration = .seconds(30)
    ) async throws -> Reply {
        try await withDeadline(timeout) {
            try await Self.perform(StartTLSDialogue(client: client), over: socket)
            return try await reply(over: socket, timeout: timeout)
        }
    }

    private nonisolated(nonsending) static func perform(_ dialogue: StartTLSDialogue, over socket: AsyncSocket) async throws {
        var dialogue = dialogue
        var step = dialogue.start()
        while case .send(let bytes) = step {
            if !bytes.isEmpty { try await socket.write(bytes) }
            guard let received = try await socket.read() else { throw dialogue.endOfInputError }
            step = try dialogue.receive(received)
        }
        if case .startTLS(let bytes, _) = step, !bytes.isEmpty { try await socket.write(bytes) }
    }
}
