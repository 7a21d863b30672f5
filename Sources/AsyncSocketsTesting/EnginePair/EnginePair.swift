// Rules of the pair:
//  1. All activity is explicit: only the functions of the pair call the engines and transfer bytes.
//  2. One `carry()` delivers at most one segment in each direction, so `pieces(of: 1)` delivers one byte at
//     a time.
//  3. A pair is idle when `carry()` transfers no data. Loops return when the pair is idle, so a handshake
//     that cannot continue is not reported as an error.

internal import SocketBuffers
package import SocketTLS

/// A client engine and a server engine that are connected in memory, for tests without sockets.
package final class EnginePair {
    package let client: TLSEngine
    package let server: TLSEngine
    /// The result of the client's most recent handshake call.
    package private(set) var clientAnswer = TLSEngine.HandshakeAnswer.incomplete
    package private(set) var serverAnswer = TLSEngine.HandshakeAnswer.incomplete
    /// The trust decisions that the client engine has requested, in order.
    package private(set) var clientQuestions: [PeerTrust] = []
    package private(set) var serverQuestions: [PeerTrust] = []
    /// Makes the client's trust decisions. Without a closure, or if it returns `nil`, the decision remains
    /// pending.
    package var decideClientTrust: ((PeerTrust) -> Bool?)?
    package var decideServerTrust: ((PeerTrust) -> Bool?)?

    private let up: MemoryWire
    private let down: MemoryWire

    /// Creates engines with these settings. `fromClient` and `fromServer` modify the bytes in each
    /// direction: see `Tampering`. A `reset` stops both directions without calling the engines, because a
    /// socket does not report a reset to its engine.
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

    /// Creates engines with these settings, connected by a wire that delivers `chunk` bytes at a time.
    package convenience init(_ client: TLSClientSettings, _ server: TLSServerSettings, chunk: Int) throws(TLSError) {
        try self.init(client, server, fromClient: [.pieces(of: chunk)], fromServer: [.pieces(of: chunk)])
    }

    /// Performs the handshake until no more data moves. Call this again after a new event, such as a trust
    /// decision.
    package func shakeHands() {
        repeat {
            clientAnswer = advance(client, &clientQuestions, decideClientTrust)
            serverAnswer = advance(server, &serverQuestions, decideServerTrust)
        } while carry()
    }

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

    /// Delivers the next segment in each direction. Returns `false` if neither direction had a segment.
    @discardableResult
    package func carry() -> Bool {
        let moved = [up.carry(), down.carry()]
        if up.isReset || down.isReset { (up.isReset, down.isReset) = (true, true) }
        return moved.contains(true)
    }

    /// Appends bytes to the input of `side`'s engine, as if the other engine had sent them.
    package func inject(_ bytes: [UInt8], to side: WireTranscript.Side) {
        bytes.withUnsafeBytes { engine(of: side).received.append($0) }
    }

    /// The bytes that the engines sent, before tampering.
    package var original: WireTranscript { WireTranscript(fromClient: up.original, fromServer: down.original) }
    /// The bytes that the wire delivered, after tampering.
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
    /// Encrypts `bytes` on one side and transfers them to the other side, which reads them as they arrive.
    /// Returns all bytes that the other side has read.
    ///
    /// - Throws: The failure of either engine, or `internalError` if the wire is held.
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
                .internalError, "the wire is held: \(rest.count) bytes cannot be sent", operation: "EnginePair.exchange")
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
    package convenience init<Side>(
        context: TLSContext, settings: TLSSettings<Side>, endpoint: String? = nil, defersWork: Bool = false,
        clock: @escaping @Sendable () -> Int = MessageAllowance.monotonicNanoseconds
    ) throws(TLSError) {
        try self.init(context: context, settings: settings.values, endpoint: endpoint, defersWork: defersWork, clock: clock)
    }
}
