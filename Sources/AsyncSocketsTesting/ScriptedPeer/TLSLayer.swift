internal import SocketBuffers
internal import SocketTLS

/// A TLS engine on a blocking socket. Every call sends the engine's output, and receives data when the
/// engine needs more.
final class TLSLayer {
    private let engine: TLSEngine
    private let wire: RecordedWire

    init(settings: TLSSettingValues, wire: RecordedWire) throws(LoopbackError) {
        do throws(TLSError) {
            engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        } catch {
            throw Self.failure(error)
        }
        self.wire = wire
    }

    var session: TLSSession? { engine.session }

    /// Passes the engine the bytes that arrived before this layer was created.
    func take(_ bytes: PreBuffer) {
        bytes.moveAll(to: engine.received)
    }

    func handshake() throws(LoopbackError) {
        while try !advance(sendingAtMost: .max) {}
    }

    /// Performs the handshake until it is complete or would send more than `limit` bytes. In the second
    /// case, only the first `limit` bytes are sent.
    func handshake(sendingOnly limit: Int) throws(LoopbackError) {
        var rest = limit
        while rest >= 0 {
            let before = rest
            let isComplete = try advance(sendingAtMost: before) { rest = before - $0 }
            if isComplete { return }
        }
    }

    /// Performs one step of the handshake and returns whether the handshake is complete. Passes the number
    /// of output bytes to `produced`.
    private func advance(
        sendingAtMost limit: Int, produced: (Int) -> Void = { _ in }
    ) throws(LoopbackError) -> Bool {
        let answer = engine.handshake()
        let count = engine.output.count
        produced(count)
        try flush(atMost: limit)
        if count > limit { return false }
        switch answer {
        case .complete: return true
        case .awaitingSettings:
            throw LoopbackError(.tlsFailed, "a scripted peer needs fixed TLS settings, not a closure", operation: "startTLS")
        case .failed(let error): throw Self.failure(error)
        case .awaitingTrust: engine.decideTrust(true)
        case .awaitingWork(let work): work.perform()
        case .incomplete: try feed()
        }
        return false
    }

    /// Blocks until plaintext arrives. An empty array means close_notify.
    func receive() throws(LoopbackError) -> [UInt8] {
        let plaintext = PreBuffer()
        while true {
            let answer = engine.read(into: plaintext, limit: 65536)
            try flush()
            switch answer {
            case .bytes: return Array(plaintext.readableBytes)
            case .closed: return []
            case .truncated(let error), .failed(let error): throw Self.failure(error)
            case .incomplete: try feed()
            }
        }
    }

    func send(_ bytes: [UInt8]) throws(LoopbackError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let answer = rest.withUnsafeBytes { engine.write($0) }
            try flush()
            switch answer {
            case .accepted(let count): rest = rest.dropFirst(count)
            case .failed(let error): throw Self.failure(error)
            case .incomplete: try feed()
            }
        }
    }

    func sendCloseNotify() throws(LoopbackError) {
        engine.shutdown()
        try flush()
    }

    private func feed() throws(LoopbackError) {
        let bytes = try wire.receive()
        if bytes.isEmpty { engine.receiveEndOfFile() }
        bytes.withUnsafeBytes { engine.received.append($0) }
    }

    private func flush(atMost limit: Int = .max) throws(LoopbackError) {
        let bytes = Array(engine.output.readableBytes)
        engine.output.consume(bytes.count)
        try wire.send(bytes.prefix(limit))
    }

    private static func failure(_ error: TLSError) -> LoopbackError {
        LoopbackError(.tlsFailed, error.description, operation: error.operation)
    }
}
