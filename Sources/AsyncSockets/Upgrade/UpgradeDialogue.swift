// Rules of a dialogue on a connection:
//  1. It starts when both markers of the upgrade have reached the front of their queues. No read or write is
//     served until the handshake is complete, so no data can be mixed with the dialogue.
//  2. A server keeps receiving while replies are unsent. The dialogue limits both directions, so a client
//     that does not read its replies is rejected at the same byte as any other client. A client receives
//     nothing until its message has been sent.
//  3. While the last message is unsent, the kernel's receive buffer must be empty. Bytes that a server
//     receives after that belong to TLS.
//  4. TLS bytes that arrived with the last message are returned to `preBuffer` and become the start of the
//     handshake.
//  5. If the dialogue fails, the connection closes. A lingering close sends the rest of a server's replies.
//     After an injection, nothing more is sent.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import StartTLSProtocols

/// The dialogue of `startTLS(as:settings:)` or `acceptStartTLS(as:settings:)`, as requested by the caller.
struct DialogueRequest: Sendable {
    let dialogue: StartTLSDialogue
    /// The time limit of the dialogue.
    let seconds: Double

    /// Makes the dialogue of a call. Fails if a parameter of the call is invalid.
    typealias Maker = () throws(AsyncSocketError) -> DialogueRequest?

    static func maker(_ client: StartTLSClient, _ timeout: Duration) -> Maker {
        { () throws(AsyncSocketError) in
            try Self(timeout) { () throws(StartTLSError) in try StartTLSDialogue(client: client) }
        }
    }

    static func maker(_ server: StartTLSServer, _ timeout: Duration) -> Maker {
        { () throws(AsyncSocketError) in
            try Self(timeout) { () throws(StartTLSError) in try StartTLSDialogue(server: server) }
        }
    }

    /// Adds the application protocol that a protocol requires, unless the program has set its own.
    static func add<Side>(_ applicationProtocol: String?, to settings: TLSSettings<Side>) -> TLSSettings<Side> {
        guard let applicationProtocol, settings.applicationProtocols.isEmpty else { return settings }
        var settings = settings
        settings.applicationProtocols = [applicationProtocol]
        return settings
    }

    private init(_ timeout: Duration, _ makeDialogue: () throws(StartTLSError) -> StartTLSDialogue) throws(AsyncSocketError) {
        guard timeout > .zero else {
            throw .badParameter(.startTLS, "dialogueTimeout must be positive, but is \(timeout)")
        }
        seconds = timeout.inSeconds
        do {
            dialogue = try makeDialogue()
        } catch {
            throw AsyncSocketError(error)
        }
    }
}

/// A dialogue on a connection. Confined to the connection's turn.
final class UpgradeDialogue {
    enum Answer {
        /// The last message has been sent, and the handshake can start.
        case complete
        /// No progress is possible until the next event.
        case incomplete
        /// Continue in another turn.
        case more
        case failed(AsyncSocketError)
    }

    private var dialogue: StartTLSDialogue
    private let seconds: Double
    private var output: ArraySlice<UInt8> = []
    private(set) var transferred = CarriedBytes()
    private var state = State.new

    private enum State {
        case new
        case exchanging
        case sendingLastMessage(receivedTLSBytes: [UInt8])
        case failed
    }

    init(_ request: DialogueRequest, _ policy: StartTLSPolicy = .required) {
        dialogue = request.dialogue
        dialogue.policy = policy
        seconds = request.seconds
    }

    var name: String { dialogue.protocolName }
    var clock: PhaseClock { PhaseClock(.dialogue(name), seconds: seconds) }

    /// The replies that remain to be sent after the dialogue has failed.
    var lastReplies: ArraySlice<UInt8> {
        if case .failed = state { output } else { [] }
    }

    /// Exchanges messages as far as possible.
    func advance(over channel: ByteChannel, _ preBuffer: PreBuffer) -> Answer {
        do throws(StartTLSError) {
            if case .new = state {
                state = .exchanging
                follow(dialogue.start())
            }
            for _ in 0..<ByteChannel.roundsPerTurn {
                if case .sendingLastMessage(let receivedTLSBytes) = state {
                    try checkForInjection(channel, preBuffer)
                    sendOutput(over: channel)
                    guard output.isEmpty else { return try wait(for: channel) }
                    receivedTLSBytes.withUnsafeBytes { preBuffer.prepend($0) }
                    return .complete
                }
                sendOutput(over: channel)
                guard output.isEmpty || !dialogue.isClient, try exchangeMessage(channel, preBuffer) else {
                    return try wait(for: channel)
                }
            }
            return .more
        } catch {
            fail(error, channel)
            return .failed(AsyncSocketError(error))
        }
    }

    /// Passes received bytes to the dialogue. Returns `false` if no bytes are available.
    private func exchangeMessage(_ channel: ByteChannel, _ preBuffer: PreBuffer) throws(StartTLSError) -> Bool {
        if preBuffer.isEmpty { fill(preBuffer, from: channel) }
        guard !preBuffer.isEmpty else { return false }
        let received = Array(preBuffer.readableBytes)
        preBuffer.consume(received.count)
        try follow(dialogue.receive(received))
        return true
    }

    private func follow(_ step: StartTLSStep) {
        switch step {
        case .send(let bytes): output += bytes
        case .startTLS(let bytes, let receivedTLSBytes):
            output += bytes
            state = .sendingLastMessage(receivedTLSBytes: receivedTLSBytes)
        }
    }

    private func checkForInjection(_ channel: ByteChannel, _ preBuffer: PreBuffer) throws(StartTLSError) {
        // More injected bytes may follow a short read, and the error reports their total number.
        while preBuffer.count < StartTLSDialogue.maximumLength {
            let count = preBuffer.count
            channel.expectBytes()
            fill(preBuffer, from: channel)
            guard preBuffer.count > count else { break }
        }
        try dialogue.checkForInjection(receivedByteCount: preBuffer.count)
    }

    private func fill(_ preBuffer: PreBuffer, from channel: ByteChannel) {
        let before = preBuffer.count
        _ = channel.fill(preBuffer, limit: StartTLSDialogue.maximumLength)
        transferred.received &+= preBuffer.count - before
    }

    private func sendOutput(over channel: ByteChannel) {
        while !output.isEmpty {
            let count = output.withUnsafeBytes { channel.send($0) }
            guard count > 0 else { return }
            transferred.sent &+= count
            output = output.dropFirst(count)
        }
    }

    private func fail(_ error: StartTLSError, _ channel: ByteChannel) {
        let isStartingTLS = if case .sendingLastMessage = state { true } else { false }
        // After a failure, neither a client's command nor the reply that starts TLS may be sent.
        if dialogue.isClient || isStartingTLS || error.code == .injected { output = [] }
        output += error.reply
        state = .failed
        sendOutput(over: channel)
    }

    private func wait(for channel: ByteChannel) throws(StartTLSError) -> Answer {
        guard let failure = channel.failure else { return .incomplete }
        guard failure.isOrderlyEnd else { return .failed(failure.during(.startTLS)) }
        throw dialogue.endOfInputError
    }
}

extension StartTLSPolicy {
    /// The policy of a client with these settings, after its records have been looked up.
    init(_ settings: TLSSettingValues) {
        switch settings.promiseOfTLS {
        case .unknown: self = .required
        case .made: self = .promised
        case .absent(let isRequired): self = isRequired ? .required : .opportunistic
        }
    }
}

extension AsyncSocketError {
    init(_ error: StartTLSError) {
        let (code, fault): (Code, TLSError.Fault) =
            switch error.code {
            case .injected: (.earlyPlaintext, .peer)
            case .invalidParameter: (.badParameter, .caller)
            default: (.startTLSFailed, .peer)
            }
        self.init(code, fault: fault, operation: .startTLS, message: "\(error)", startTLS: error)
    }

    static func dialogueTimeout(_ name: String, seconds: Double) -> AsyncSocketError {
        AsyncSocketError(
            .handshakeTimeout, fault: .peer, operation: .startTLS,
            message: "\(name): the dialogue before TLS was not complete within \(text(ofSeconds: seconds)) (dialogueTimeout)")
    }
}
