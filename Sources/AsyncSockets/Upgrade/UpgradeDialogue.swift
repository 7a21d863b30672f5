// Rules of a dialogue on a connection:
//  1. It starts when both markers of the upgrade have reached the front of their queues. No read or write is
//     served until the handshake is complete, so no data can be mixed with the dialogue.
//  2. Before the last message is sent, the kernel must have no more received bytes. Bytes that a server
//     receives after its last message belong to TLS.
//  3. Bytes of TLS that arrived with the last message return to `preBuffer`, and the handshake starts with
//     them.
//  4. If the dialogue fails, the connection closes, and the peer receives the protocol's error message.

internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import StartTLSProtocols

/// The dialogue of `startTLS(as:settings:)` or `acceptStartTLS(as:settings:)`, as requested by the caller.
struct DialogueRequest: Sendable {
    let dialogue: StartTLSDialogue
    /// The time limit of the dialogue.
    let seconds: Double

    init(_ dialogue: StartTLSDialogue, _ timeout: Duration) {
        self.dialogue = dialogue
        seconds = max(timeout.inSeconds, 0)
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
    private var state = State.new

    private enum State {
        case new
        case exchanging
        case sendingLastMessage(surplus: [UInt8])
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
                if case .sendingLastMessage(let surplus) = state {
                    surplus.withUnsafeBytes { preBuffer.prepend($0) }
                    return .complete
                }
                guard receive(from: channel, into: preBuffer) else { return wait(for: channel) }
                let received = Array(preBuffer.readableBytes)
                preBuffer.consume(received.count)
                try follow(dialogue.receive(received), channel, preBuffer)
            }
            return .more
        } catch {
            output = error.reply[...]
            sendOutput(over: channel)
            return .failed(AsyncSocketError(error))
        }
    }

    private func follow(_ step: StartTLSStep, _ channel: ByteChannel, _ preBuffer: PreBuffer) throws(StartTLSError) {
        switch step {
        case .send(let bytes): output += bytes
        case .startTLS(let bytes, let surplus):
            if !dialogue.clientStartsImmediately {
                channel.expectBytes()
                _ = channel.fill(preBuffer, limit: ReadHalf.readAheadLimit)
                guard preBuffer.isEmpty else { throw dialogue.injection(of: preBuffer.count) }
            }
            output += bytes
            state = .sendingLastMessage(surplus: surplus)
        }
    }

    /// Returns `false` if no bytes are available.
    private func receive(from channel: ByteChannel, into preBuffer: PreBuffer) -> Bool {
        if !preBuffer.isEmpty { return true }
        if case .bytes = channel.fill(preBuffer, limit: StartTLSDialogue.maximumLength) { return true }
        return false
    }

    private func sendOutput(over channel: ByteChannel) {
        while !output.isEmpty {
            let count = output.withUnsafeBytes { channel.send($0) }
            guard count > 0 else { return }
            output = output.dropFirst(count)
        }
    }

    private func wait(for channel: ByteChannel) -> StepResult {
        guard let failure = channel.failure else { return .incomplete }
        guard failure.isOrderlyEnd else { return .failed(failure.during(.startTLS)) }
        return .failed(AsyncSocketError(dialogue.endOfInput()))
    }
}

extension AsyncSocketError {
    init(_ error: StartTLSError) {
        self.init(
            error.code == .injected ? .earlyPlaintext : .startTLSFailed, fault: error.code == .invalidParameter ? .caller : .peer,
            operation: .startTLS, message: "\(error)",
            startTLS: error)
    }

    static func dialogueTimeout(_ name: String, seconds: Double) -> AsyncSocketError {
        AsyncSocketError(
            .handshakeTimeout, fault: .peer, operation: .startTLS,
            message: "\(name): the dialogue before TLS was not complete within \(text(ofSeconds: seconds)) (dialogueTimeout)")
    }
}

extension TLSClientSettings {
    /// Adds the application protocol that a server requires, unless the program has set its own.
    func offering(_ applicationProtocol: String?) -> Self {
        guard let applicationProtocol, applicationProtocols.isEmpty else { return self }
        var settings = self
        settings.applicationProtocols = [applicationProtocol]
        return settings
    }
}
