// Rules of a dialogue:
//  1. A dialogue does no I/O. It takes the received bytes and returns the bytes to send.
//  2. Each side of a protocol removes whole messages from the input. A partial message stays at its end.
//  3. The number of received bytes is limited, and so is the number of bytes in replies to them. A peer
//     cannot make the dialogue grow or continue forever. Both limits apply to the whole dialogue, so the
//     result does not depend on how the received bytes are split.
//  4. When TLS starts, every received byte has been consumed. Bytes after the last message are an injection
//     and fail the dialogue, except in the protocols whose clients start TLS without waiting for a reply.
//  5. Anything unexpected fails the dialogue. No message allows the connection to continue in plaintext.

/// The messages that precede TLS on a connection that starts in plaintext, as a value without I/O.
///
/// Use it to add STARTTLS to other transports. With `AsyncSocket`, call `startTLS(as:settings:)` or
/// `acceptStartTLS(as:settings:)` instead.
///
/// Send the bytes that `start()` returns. Then pass everything you receive to `receive(_:)`, and send the
/// bytes that it returns, until the step is `.startTLS`. If an error is thrown, send its `reply` and close
/// the connection: it must not continue in plaintext.
///
/// ```swift
/// var dialogue = try StartTLSDialogue(client: .smtp(name: "client.example"))
/// var step = dialogue.start()
/// while case .send(let bytes) = step {
///     try await transport.write(bytes)
///     guard let received = try await transport.read() else { throw dialogue.endOfInputError }
///     step = try dialogue.receive(received)
/// }
/// guard case .startTLS(let lastBytes, let firstTLSBytes) = step else { return }
/// try dialogue.checkForInjection(receivedByteCount: transport.bufferedByteCount)
/// try await transport.write(lastBytes)
/// try await transport.startTLS(firstReceivedBytes: firstTLSBytes)
/// ```
public struct StartTLSDialogue: Sendable {
    /// The maximum number of bytes that a dialogue receives, and of bytes that it sends in response: 64 KiB
    /// each. If a peer sends or requests more, the dialogue fails with `StartTLSError.Code.tooLong`.
    public static let maximumLength = MessageInput.limit

    /// The name of the protocol, for messages.
    public var protocolName: String { side.name }
    package var isClient: Bool { side.isClient }

    private var side: any ProtocolSide
    /// How to treat a missing offer of TLS. A server ignores it.
    package var policy: StartTLSPolicy
    private var input = MessageInput()
    private var replyCount = 0
    private var phase = Phase.new

    private enum Phase {
        case new
        case running
        case complete(clientStartsImmediately: Bool)
        case failed(StartTLSError)
    }

    /// Creates a client's dialogue.
    ///
    /// - Parameters:
    ///   - client: The protocol.
    ///   - policy: How to treat a missing offer of TLS.
    /// - Throws: `StartTLSError` with the code `invalidParameter` if a parameter of the protocol contains
    ///   characters that cannot be sent.
    public init(client: StartTLSClient, policy: StartTLSPolicy = .required) throws(StartTLSError) {
        side = client.side
        self.policy = policy
        try side.validate()
    }

    /// Creates a server's dialogue.
    ///
    /// - Throws: The error of `init(client:policy:)`.
    public init(server: StartTLSServer) throws(StartTLSError) {
        side = server.makeSide()
        policy = .required
        try side.validate()
    }

    /// Returns the first step. Call this once, when the connection is established.
    public mutating func start() -> StartTLSStep {
        guard case .new = phase else { preconditionFailure("start() was called twice: create a dialogue for each connection") }
        phase = .running
        switch side.start() {
        case .send(let bytes): return .send(bytes)
        case .startTLS(let bytes), .startTLSImmediately(let bytes):
            phase = .complete(clientStartsImmediately: false)
            return .startTLS(sending: bytes, receivedTLSBytes: [])
        }
    }

    /// Processes received bytes and returns the next step.
    ///
    /// - Parameter bytes: The bytes received since the last call.
    /// - Throws: The reason why TLS cannot start. If `StartTLSError.reply` is not empty, send it before you
    ///   close the connection.
    public mutating func receive(_ bytes: some Collection<UInt8>) throws(StartTLSError) -> StartTLSStep {
        switch phase {
        case .new: preconditionFailure("receive(_:) was called before start()")
        case .running: break
        case .complete: throw side.injected(bytes.count)
        case .failed(let error): throw error
        }
        var output: [UInt8] = []
        do {
            return try process(bytes, &output)
        } catch {
            // A client must not take the reply to its last command for the reply to an earlier one.
            let error = side.isClient || error.code == .injected ? policy.applied(to: error) : error.prepending(output)
            phase = .failed(error)
            throw error
        }
    }

    /// Checks that nothing was received after the last message and before TLS. Call this before you send the
    /// last bytes.
    ///
    /// - Parameter receivedByteCount: The number of bytes that the transport has received but not passed to
    ///   the dialogue.
    /// - Throws: `StartTLSError` with the code `injected` if there are such bytes, unless the protocol's
    ///   clients start TLS without waiting for a reply.
    public func checkForInjection(receivedByteCount: Int) throws(StartTLSError) {
        if case .complete(clientStartsImmediately: true) = phase { return }
        if receivedByteCount > 0 { throw side.injected(receivedByteCount) }
    }

    /// The error for a connection that is closed before the dialogue is complete.
    public var endOfInputError: StartTLSError {
        side.error(.closed, "the \(side.peer) closed the connection before TLS started", line: input.isEmpty ? nil : input.text)
    }

    private mutating func process(
        _ bytes: some Collection<UInt8>, _ output: inout [UInt8]
    ) throws(StartTLSError) -> StartTLSStep {
        input.append(bytes)
        while !input.isEmpty {
            try checkForTLS()
            // Without its second byte, a TLS record looks like a malformed message.
            guard input.count > 1 || !side.isTLS(input.rest + [MessageInput.recordVersion]) else { break }
            guard let action = try side.receive(&input) else { break }
            if let receivedTLSBytes = try perform(action, &output) {
                return .startTLS(sending: output, receivedTLSBytes: receivedTLSBytes)
            }
            guard replyCount + output.count <= Self.maximumLength else { throw side.tooLong() }
        }
        guard !input.exceedsLimit else { throw side.tooLong() }
        replyCount += output.count
        return .send(output)
    }

    /// Returns the received bytes that belong to TLS, or `nil` if the dialogue continues.
    private mutating func perform(_ action: DialogueAction, _ output: inout [UInt8]) throws(StartTLSError) -> [UInt8]? {
        let rest = input.everything
        var isExpected = rest.isEmpty
        switch action {
        case .send(let bytes):
            guard bytes.isEmpty || isExpected || side.allows(following: rest) else { throw side.injected(rest.count) }
            output += bytes
            return nil
        case .startTLS(let bytes):
            output += bytes
            phase = .complete(clientStartsImmediately: false)
        case .startTLSImmediately(let bytes):
            output += bytes
            phase = .complete(clientStartsImmediately: true)
            isExpected = isExpected || rest.first == MessageInput.handshakeRecord
        }
        guard isExpected else { throw side.injected(rest.count) }
        return Array(rest)
    }

    /// Rejects a TLS record between two messages: an early ClientHello, or the alert of a server that expects
    /// TLS.
    private func checkForTLS() throws(StartTLSError) {
        guard side.isTLS(input.rest) else { return }
        throw side.error(
            .unexpectedTLS,
            side.isClient
                ? "the server sent a TLS alert: this port expects TLS from the first byte, without STARTTLS"
                : "the client started TLS without requesting it first")
    }
}

/// The next step of a dialogue.
public enum StartTLSStep: Sendable, Hashable {
    /// Send these bytes, if any, and pass the next received bytes to the dialogue.
    case send([UInt8])
    /// Send `sending`, then start the handshake with `receivedTLSBytes`, which arrived with the client's last
    /// message. They are empty except on MySQL servers and on PostgreSQL servers that accept direct TLS.
    case startTLS(sending: [UInt8], receivedTLSBytes: [UInt8])
}
