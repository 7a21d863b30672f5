import SocketBuffers
import SocketTLS

/// A client and a server engine, and the wire between them.
final class EnginePair {
    let client: TLSEngine
    let server: TLSEngine
    /// The bytes that the wire carries at a time.
    var chunk = Int.max
    var decideClientTrust: ((PeerTrust) -> Bool?)?
    var decideServerTrust: ((PeerTrust) -> Bool?)?
    private(set) var clientQuestions: [PeerTrust] = []
    private(set) var serverQuestions: [PeerTrust] = []
    private(set) var clientAnswer = TLSEngine.HandshakeAnswer.incomplete
    private(set) var serverAnswer = TLSEngine.HandshakeAnswer.incomplete

    init(_ client: TLSSettings, _ server: TLSSettings) throws {
        self.client = try TLSEngine(context: TLSContext.context(for: client), settings: client)
        self.server = try TLSEngine(context: TLSContext.context(for: server), settings: server)
    }

    /// Shakes hands until neither side has anything to say.
    func shakeHands() {
        repeat {
            clientAnswer = client.handshake()
            if case .awaitingTrust(let trust) = clientAnswer {
                clientQuestions.append(trust)
                if let decision = decideClientTrust?(trust) { client.decideTrust(decision) }
                clientAnswer = client.handshake()
            }
            serverAnswer = server.handshake()
            if case .awaitingTrust(let trust) = serverAnswer {
                serverQuestions.append(trust)
                if let decision = decideServerTrust?(trust) { server.decideTrust(decision) }
                serverAnswer = server.handshake()
            }
        } while carry()
    }

    /// Moves at most `chunk` bytes each way. Returns false when there was nothing to move.
    @discardableResult
    func carry() -> Bool {
        let toServer = move(client.output, server.received)
        let toClient = move(server.output, client.received)
        return toServer || toClient
    }

    func carryAll() {
        while carry() {}
    }

    private func move(_ source: PreBuffer, _ target: PreBuffer) -> Bool {
        let count = min(chunk, source.count)
        guard count > 0 else { return false }
        target.append(UnsafeRawBufferPointer(rebasing: source.readableBytes.prefix(count)))
        source.consume(count)
        return true
    }

    var isComplete: Bool {
        if case .complete = clientAnswer, case .complete = serverAnswer { return true }
        return false
    }

    var clientError: TLSError? { clientAnswer.error }
    var serverError: TLSError? { serverAnswer.error }
}

extension TLSEngine.HandshakeAnswer {
    var error: TLSError? {
        if case .failed(let error) = self { return error }
        return nil
    }

    var isComplete: Bool {
        if case .complete = self { return true }
        return false
    }

    var isIncomplete: Bool {
        if case .incomplete = self { return true }
        return false
    }
}

extension TLSEngine.ReadAnswer {
    var error: TLSError? {
        if case .failed(let error) = self { return error }
        return nil
    }

    var isClosed: Bool {
        if case .closed = self { return true }
        return false
    }

    var isIncomplete: Bool {
        if case .incomplete = self { return true }
        return false
    }
}

extension TLSEngine.WriteAnswer {
    var isIncomplete: Bool {
        if case .incomplete = self { return true }
        return false
    }

    var accepted: Int? {
        if case .accepted(let count) = self { return count }
        return nil
    }

    var error: TLSError? {
        if case .failed(let error) = self { return error }
        return nil
    }
}

extension TLSEngine {
    func write(_ text: String) -> WriteAnswer {
        Array(text.utf8).withUnsafeBytes { write($0) }
    }

    /// Everything that can be read now, as text, and the answer that ended it.
    func readAll() -> (text: String, end: ReadAnswer) {
        let (bytes, end) = readAllBytes()
        return (String(decoding: bytes, as: UTF8.self), end)
    }

    func readAllBytes() -> (bytes: [UInt8], end: ReadAnswer) {
        let buffer = PreBuffer()
        while true {
            let answer = read(into: buffer, limit: 64 * 1024)
            guard case .bytes = answer else { return (Array(buffer.readableBytes), answer) }
        }
    }

    func receive(_ text: String) {
        Array(text.utf8).withUnsafeBytes { received.append($0) }
    }

    func receive(_ bytes: [UInt8]) {
        bytes.withUnsafeBytes { received.append($0) }
    }
}
