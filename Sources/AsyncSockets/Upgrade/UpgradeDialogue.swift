// Rules of a dialogue on a connection:
//  1. It starts when both markers of the upgrade have reached the front of their queues. No read or write is
//     served until the handshake is complete, so no data can be mixed with the dialogue.
//  2. Before the last message is sent, the kernel's receive buffer must be empty. Bytes that a server
//  receives after that belong to TLS. 3. TLS bytes that arrived with the last message are returned to
//  `preBuffer` and become the start of the handshake. 4. If the dialogue fails, the protocol's error message
//  is sent if possible, and the connection closes.

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
    enum StepResult {
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
    }

    init(_ request: DialogueRequest) {
        dialogue = request.dialogue
        seconds = request.seconds
    }

    var name: String { dialogue.protocolName }
    var clock: PhaseClock { PhaseClock(.dialogue(name), seconds: seconds) }

    /// Exchanges messages as far as possible.
    func advance(over channel: ByteChannel, _ preBuffer: PreBuffer) -> StepResult {
        do throws(StartTLSError) {
            if case .new = state {
                state = .exchanging
                try follow(dialogue.start(), channel, preBuffer)
            }
            for _ in 0..<ByteChannel.roundsPerTurn {
                sendOutput(over: channel)
                guard output.isEmpty else { return wait(for: channel) }
                if case .sendingLastMessage(let receivedTLSBytes) = state {
                    receivedTLSBytes.withUnsafeBytes { preBuffer.prepend($0) }
                    return .complete
                }
                guard try exchangeMessage(channel, preBuffer) else { return wait(for: channel) }
            }
            return .more
        } catch {
            output += error.reply
            sendOutput(over: channel)
            return .failed(AsyncSocketError(error))
        }
    }

    /// Passes received bytes to the dialogue. Returns `false` if no bytes are available.
    private func exchangeMessage(_ channel: ByteChannel, _ preBuffer: PreBuffer) throws(StartTLSError) -> Bool {
        if preBuffer.isEmpty { fill(preBuffer, from: channel) }
        guard !preBuffer.isEmpty else { return false }
        let received = Array(preBuffer.readableBytes)
        preBuffer.consume(received.count)
        try follow(dialogue.receive(received), channel, preBuffer)
        return true
    }

    private func follow(_ step: StartTLSStep, _ channel: ByteChannel, _ preBuffer: PreBuffer) throws(StartTLSError) {
        switch step {
        case .send(let bytes): output += bytes
        case .startTLS(let bytes, let receivedTLSBytes):
            channel.expectBytes()
            fill(preBuffer, from: channel)
            try dialogue.checkForInjection(receivedByteCount: preBuffer.count)
            output += bytes
            state = .sendingLastMessage(receivedTLSBytes: receivedTLSBytes)
        }
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

    private func wait(for channel: ByteChannel) -> StepResult {
        guard let failure = channel.failure else { return .incomplete }
        guard failure.isOrderlyEnd else { return .failed(failure.during(.startTLS)) }
        return .failed(AsyncSocketError(dialogue.endOfInputError))
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
