// Rules of the pair:
//  1. Nothing moves by itself: only the pair's functions call the engines and carry bytes.
//  2. One `carry()` delivers at most one segment each way, so `pieces(of: 1)` delivers one byte at a time.
//  3. A pair is idle when `carry()` moves nothing. Every loop ends then: a handshake that cannot go on is not
//     an error here.

internal import SocketBuffers
package import SocketTLS

/// A client engine and a server engine with a wire in memory between them, for tests without sockets.
package final class EnginePair {
    package let client: TLSEngine
    package let server: TLSEngine
    /// The result of the last handshake call.
    package private(set) var clientAnswer = TLSEngine.HandshakeAnswer.incomplete
    package private(set) var serverAnswer = TLSEngine.HandshakeAnswer.incomplete
    /// The trust questions that were asked, in order.
    package private(set) var clientQuestions: [PeerTrust] = []
    package private(set) var serverQuestions: [PeerTrust] = []
    /// Decides the trust questions; nil, or a result of nil, leaves them open.
    package var decideClientTrust: ((PeerTrust) -> Bool?)?
    package var decideServerTrust: ((PeerTrust) -> Bool?)?

    private let up: MemoryWire
    private let down: MemoryWire

    /// Engines with these settings. Each direction can tamper with its bytes: see `Tampering`. A `reset`
    /// stops both directions without a call to the engines, since sockets do not report a reset to an engine.
    package init(
        _ clientSettings: TLSClientSettings,
        _ serverSettings: TLSServerSettings,
        fromClient: [Tampering] = [],
        fromServer: [Tampering] = [],
        in cache: ContextCache = .shared
    ) throws(TLSError) {
        client = try TLSEngine(context: TLSContext.context(for: clientSettings, in: cache), settings: clientSettings)
        server = try TLSEngine(context: TLSContext.context(for: serverSettings, in: cache), settings: serverSettings)
        up = MemoryWire(from: client, to: server, TamperingPlan(fromClient))
        down = MemoryWire(from: server, to: client, TamperingPlan(fromServer))
    }

    /// Engines with these settings, and a wire that carries `chunk` bytes at a time.
    package convenience init(_ client: TLSClientSettings, _ server: TLSServerSettings, chunk: Int) throws(TLSError) {
        try self.init(client, server, fromClient: [.pieces(of: chunk)], fromServer: [.pieces(of: chunk)])
    }

    /// Shakes hands until nothing moves any more. Call it again after a new event, such as a trust decision.
    package func shakeHands() {
        repeat {
            clientAnswer = advance(client, &clientQuestions, decideClientTrust)
            serverAnswer = advance(server, &serverQuestions, decideServerTrust)
        } while carry()
    }

    /// Both sides have completed the handshake.
    package var isComplete: Bool {
        if case .complete = clientAnswer, case .complete = serverAnswer { return true }
        return false
    }

    package var clientError: TLSError? {
        if case .failed(let error) = clientAnswer { return error }
        return nil
    }

    package var serverError: TLSError? {
        if case .failed(let error) = serverAnswer { return error }
        return nil
    }

    /// Delivers the next segment of each direction. Returns false if there was none.
    @discardableResult
    package func carry() -> Bool {
        let moved = [up.carry(), down.carry()]
        if up.isReset || down.isReset { (up.isReset, down.isReset) = (true, true) }
        return moved.contains(true)
    }

    /// Appends bytes to what the engine of `side` has received, as if the other one had sent them.
    package func inject(_ bytes: [UInt8], to side: WireTranscript.Side) {
        bytes.withUnsafeBytes { engine(of: side).received.append($0) }
    }

    /// The bytes that the engines have put on the wire.
    package var original: WireTranscript { WireTranscript(fromClient: up.original, fromServer: down.original) }
    /// The bytes that the wire has delivered.
    package var delivered: WireTranscript { WireTranscript(fromClient: up.delivered, fromServer: down.delivered) }

    private func engine(of side: WireTranscript.Side) -> TLSEngine {
        switch side {
        case .client: client
        case .server: server
        }
    }

    private func advance(
        _ engine: TLSEngine, _ questions: inout [PeerTrust], _ decide: ((PeerTrust) -> Bool?)?
    ) -> TLSEngine.HandshakeAnswer {
        let answer = engine.handshake()
        guard case .awaitingTrust(let trust) = answer else { return answer }
        questions.append(trust)
        guard let decision = decide?(trust) else { return answer }
        engine.decideTrust(decision)
        return engine.handshake()
    }
}

extension EnginePair {
    /// Encrypts all of `bytes` on one side and carries them to the other, which reads meanwhile. Returns
    /// everything that the other side has read.
    ///
    /// Throws the failure of either engine, and `internalError` if the wire holds the bytes.
    package func exchange(_ bytes: [UInt8], from side: WireTranscript.Side) throws(TLSError) -> [UInt8] {
        let reader = engine(of: side == .client ? .server : .client)
        let plaintext = PreBuffer()
        var rest = bytes[...]
        while true {
            if !rest.isEmpty { rest = rest.dropFirst(try write(rest, on: engine(of: side))) }
            let moved = carry()
            try readAll(from: reader, into: plaintext)
            if moved { continue }
            if rest.isEmpty { return Array(plaintext.readableBytes) }
            throw TLSError(
                .internalError, "The wire is held: \(rest.count) bytes cannot be sent.", operation: "EnginePair.exchange")
        }
    }

    private func write(_ bytes: ArraySlice<UInt8>, on engine: TLSEngine) throws(TLSError) -> Int {
        switch bytes.withUnsafeBytes({ engine.write($0) }) {
        case .accepted(let count): return count
        case .incomplete: return 0
        case .failed(let error): throw error
        }
    }

    private func readAll(from engine: TLSEngine, into buffer: PreBuffer) throws(TLSError) {
        while true {
            switch engine.read(into: buffer, limit: 64 * 1024) {
            case .bytes: continue
            case .incomplete, .closed: return
            case .truncated(let error), .failed(let error): throw error
            }
        }
    }
}

extension TLSEngine {
    /// A new connection with the settings of a side.
    package convenience init<Side>(
        context: TLSContext, settings: TLSSettings<Side>, endpoint: String? = nil, defersWork: Bool = false,
        clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds
    ) throws(TLSError) {
        try self.init(context: context, settings: settings.values, endpoint: endpoint, defersWork: defersWork, clock: clock)
    }
}
