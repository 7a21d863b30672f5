// Rules of a dialogue:
//  1. A dialogue does no I/O. It takes the received bytes and returns the bytes to send.
//  2. Each conversation removes whole messages from the input, and keeps the partial message at its end.
//  3. The number of received bytes is limited, so that a peer cannot make the dialogue grow or continue
//     forever.
//  4. When TLS starts, every received byte has been consumed. Bytes after the last message are an injection
//     and fail the dialogue, except in the protocols whose clients start TLS without waiting for a reply.
//  5. Anything unexpected fails the dialogue. No message allows the connection to continue in plaintext.

/// The messages that precede TLS on a connection that starts in plaintext, as a value without I/O.
///
/// Use it to add STARTTLS to other transports. With `AsyncSocket`, call `startTLS(as:settings:)` or
/// `acceptStartTLS(as:settings:)` instead.
///
/// Send the bytes that `start()` returns, then pass each received byte to `receive(_:)` once, until the step
/// is `.startTLS` or an error is thrown. After an error, close the connection: it must not continue in
/// plaintext.
///
/// ```swift
/// var dialogue = StartTLSDialogue(client: .smtp(name: "client.example"))
/// var step = try dialogue.start()
/// while case .send(let bytes) = step {
///     try await transport.write(bytes)
///     guard let received = try await transport.read() else { throw dialogue.endOfInput() }
///     step = try dialogue.receive(received)
/// }
/// ```
public struct StartTLSDialogue: Sendable {
    /// The maximum number of bytes that a dialogue receives: 64 KiB. A peer that sends more fails the
    /// dialogue with `StartTLSError.Code.tooLong`.
    public static let maximumLength = MessageInput.limit

    /// The name of the protocol, for messages.
    public var protocolName: String { conversation.name }

    /// Whether the client starts TLS without waiting for a reply. Known at the last step.
    package private(set) var clientStartsImmediately = false
    private var conversation: any Conversation
    private var input = MessageInput()
    private var receivedCount = 0
    private var phase = Phase.new

    private enum Phase {
        case new
        case running
        case over
    }

    /// Creates a client's dialogue.
    public init(client: StartTLSClient) {
        conversation = client.conversation
    }

    /// Creates a server's dialogue.
    public init(server: StartTLSServer) {
        conversation = server.conversation
    }

    /// Returns the first step. Call this once, when the connection is established.
    ///
    /// - Throws: `StartTLSError` with the code `invalidParameter` if a parameter of the protocol contains
    ///   characters that cannot be sent.
    public mutating func start() throws(StartTLSError) -> StartTLSStep {
        guard case .new = phase else { throw misuse("start was called twice") }
        phase = .running
        do {
            return try step(after: conversation.start(), [])
        } catch {
            phase = .over
            throw error
        }
    }

    /// Processes received bytes and returns the next step.
    ///
    /// - Parameter bytes: The bytes received since the last call.
    /// - Throws: The reason why TLS cannot start. If `StartTLSError.reply` is not empty, send it before you
    ///   close the connection.
    public mutating func receive(_ bytes: some Collection<UInt8>) throws(StartTLSError) -> StartTLSStep {
        guard case .running = phase else { throw misuse("receive was called before start, or after the last step") }
        do {
            return try process(bytes)
        } catch {
            phase = .over
            throw error
        }
    }

    /// Returns the error for a connection that is closed before the dialogue is complete.
    public func endOfInput() -> StartTLSError {
        StartTLSError(
            .closed, name: conversation.name, "the \(conversation.peer) closed the connection before TLS started",
            line: input.isEmpty ? nil : input.text)
    }

    /// Returns the error for bytes that arrived after the message that starts TLS.
    package func injection(of count: Int) -> StartTLSError { conversation.injected(count) }

    private mutating func process(_ bytes: some Collection<UInt8>) throws(StartTLSError) -> StartTLSStep {
        receivedCount += bytes.count
        guard receivedCount <= Self.maximumLength else {
            throw conversation.error(
                .tooLong, "the \(conversation.peer) sent more than \(Self.maximumLength) bytes before TLS",
                reply: conversation.farewell)
        }
        input.append(bytes)
        var output: [UInt8] = []
        while !input.isEmpty {
            try checkForTLS()
            guard let action = try conversation.receive(&input) else { break }
            switch try step(after: action, output) {
            case .send(let bytes): output = bytes
            case .startTLS(let bytes, let surplus): return .startTLS(sending: bytes, surplus: surplus)
            }
        }
        return .send(output)
    }

    private mutating func step(after action: ConversationAction, _ output: [UInt8]) throws(StartTLSError) -> StartTLSStep {
        switch action {
        case .send(let bytes):
            guard bytes.isEmpty || input.isEmpty || conversation.allows(following: input.rest) else {
                throw conversation.injected(input.count)
            }
            return .send(output + bytes)
        case .startTLS(let bytes):
            guard input.isEmpty else { throw conversation.injected(input.count) }
            phase = .over
            return .startTLS(sending: output + bytes, surplus: [])
        case .startTLSImmediately(let bytes):
            guard input.isEmpty || input.rest.first == MessageInput.handshakeRecord else {
                throw conversation.injected(input.count)
            }
            phase = .over
            clientStartsImmediately = true
            return .startTLS(sending: output + bytes, surplus: Array(input.rest))
        }
    }

    /// A TLS record between two messages: an early ClientHello, or the alert of a server that expects TLS.
    private func checkForTLS() throws(StartTLSError) {
        let first = input.rest.first
        if conversation.isClient, first == MessageInput.alertRecord {
            throw conversation.error(
                .unexpectedTLS, "the server sent a TLS alert: this port expects TLS from the first byte, without STARTTLS")
        }
        if !conversation.isClient, !conversation.acceptsDirectTLS, first == MessageInput.handshakeRecord {
            throw conversation.error(.unexpectedTLS, "the client started TLS without the \(conversation.name) command for it")
        }
    }

    private func misuse(_ message: String) -> StartTLSError {
        StartTLSError(.invalidParameter, name: conversation.name, message)
    }
}

/// The next step of a dialogue.
public enum StartTLSStep: Sendable, Hashable {
    /// Send these bytes, if there are any, and pass the next received bytes to the dialogue.
    case send([UInt8])
    /// Send `sending`, then start TLS. `surplus` contains the first received bytes of TLS. It is empty except
    /// on servers of protocols whose clients start TLS without waiting for a reply.
    case startTLS(sending: [UInt8], surplus: [UInt8])
}
