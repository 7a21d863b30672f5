internal import SocketBuffers
internal import SocketTLS

/// The connection of a scripted peer. Used only by the peer's thread.
final class ScriptedConnection {
    /// `nil` after the connection was closed or reset.
    private var wire: RecordedWire?
    private var tls: TLSLayer?
    /// Plaintext that no step has consumed yet.
    private let incoming = PreBuffer()
    private let recording: WireRecording
    private var read: [[UInt8]] = []

    init(socket: RawSocket, side: WireTranscript.Side) {
        recording = WireRecording(side: side)
        wire = RecordedWire(socket, recording)
    }

    /// Performs the steps. If a step fails, the connection is reset when this object is deallocated.
    func perform(_ steps: [ScriptedPeer.Step]) throws(LoopbackError) -> ScriptedPeer.Report {
        var report = ScriptedPeer.Report()
        for (number, step) in steps.enumerated() {
            do throws(LoopbackError) {
                try perform(step)
            } catch {
                wire?.socket.resetWhenClosed()
                throw error.inStep(number, step)
            }
        }
        report.read = read
        report.session = tls?.session
        report.transcript = recording.transcript
        return report
    }

    /// Receives and discards bytes until the other side closes the connection or the wait limit is reached.
    func drain() {
        while let wire, let bytes = try? wire.socket.receive(), !bytes.isEmpty {}
    }

    private func perform(_ step: ScriptedPeer.Step) throws(LoopbackError) {
        switch step.action {
        case .expect(let bytes): try expect(bytes)
        case .expectThrough(let delimiter): try expect(through: delimiter)
        case .expectClientHello: try expectRecord()
        case .expectEnd: try expectEnd()
        case .expectReset: try expectReset()
        case .send(let bytes, let pieces): try send(bytes, inPiecesOf: pieces ?? bytes.count)
        case .sendRaw(let bytes): try openWire().send(bytes)
        case .wait(let signal): try openWire().socket.waitLimit.wait(for: signal)
        case .fire(let signal): signal.fire()
        case .startTLS(let settings, let cut): try startTLS(settings, cut: cut)
        case .sendCloseNotify: try tls?.sendCloseNotify()
        case .finish: try openWire().socket.finish()
        case .close: close()
        case .reset: try reset()
        }
    }

    // MARK: - Receiving

    private func expect(_ bytes: [UInt8]) throws(LoopbackError) {
        var compared = 0
        while true {
            let common = min(incoming.count, bytes.count)
            // Compares only the bytes that arrived since the last comparison, because a megabyte arrives in
            // hundreds of pieces.
            guard incoming.readableBytes[compared..<common].elementsEqual(bytes[compared..<common]) else { throw unexpected() }
            if common == bytes.count { return take(common) }
            compared = common
            try fill()
        }
    }

    private func expect(through delimiter: [UInt8]) throws(LoopbackError) {
        incoming.restartSearch()
        while true {
            if let end = delimiter.withUnsafeBytes({ incoming.endOfFirst($0) }) { return take(end) }
            try fill()
        }
    }

    /// RFC 8446, section 5.1: type (one byte), version (two bytes), length (two bytes), payload.
    private func expectRecord() throws(LoopbackError) {
        while true {
            let bytes = incoming.readableBytes
            if bytes.count >= 5, bytes.count >= 5 + Int(bytes[3]) << 8 + Int(bytes[4]) { return }
            try fill()
        }
    }

    private func expectEnd() throws(LoopbackError) {
        guard incoming.isEmpty, try receive().isEmpty else { throw unexpected() }
    }

    private func expectReset() throws(LoopbackError) {
        do throws(LoopbackError) {
            while true { try fill() }
        } catch  where error.code == .reset {}
    }

    private func take(_ count: Int) {
        read.append(Array(incoming.readableBytes.prefix(count)))
        incoming.consume(count)
    }

    private func fill() throws(LoopbackError) {
        guard try !receive().isEmpty else {
            throw LoopbackError(
                .ended, "the other side closed the connection after \(Self.quoted(incoming))", operation: "receive")
        }
    }

    /// Appends received bytes to `incoming` and returns them. An empty array means the end of the stream.
    private func receive() throws(LoopbackError) -> [UInt8] {
        let bytes = if let tls { try tls.receive() } else { try openWire().receive() }
        bytes.withUnsafeBytes { incoming.append($0) }
        return bytes
    }

    private func unexpected() -> LoopbackError {
        LoopbackError(.unexpectedBytes, "the other side sent \(Self.quoted(incoming))", operation: "receive")
    }

    private static func quoted(_ buffer: PreBuffer) -> String {
        String(decoding: buffer.readableBytes.prefix(200), as: UTF8.self).debugDescription
    }

    // MARK: - Sending and closing

    private func send(_ bytes: [UInt8], inPiecesOf size: Int) throws(LoopbackError) {
        for start in stride(from: 0, to: bytes.count, by: max(1, size)) {
            let piece = bytes[start..<min(bytes.count, start + max(1, size))]
            if let tls { try tls.send(Array(piece)) } else { try openWire().send(piece) }
        }
    }

    private func startTLS(_ settings: TLSSettingValues, cut: ScriptedPeer.HandshakeCut?) throws(LoopbackError) {
        guard tls == nil else { throw LoopbackError(.tlsFailed, "the script starts TLS a second time", operation: "startTLS") }
        let layer = try TLSLayer(settings: settings, wire: try openWire())
        layer.take(incoming)
        guard let cut else {
            try layer.handshake()
            tls = layer
            return
        }
        try layer.handshake(sendingOnly: cut.byteCount)
        switch cut.ending {
        case .finish: try openWire().socket.finish()
        case .reset: try reset()
        case .silence: break
        }
    }

    private func close() {
        tls = nil
        wire = nil
    }

    private func reset() throws(LoopbackError) {
        try openWire().socket.resetWhenClosed()
        tls = nil
        wire = nil
    }

    private func openWire() throws(LoopbackError) -> RecordedWire {
        guard let wire else {
            throw LoopbackError(.reset, "the script closed or reset the connection before this step", operation: "script")
        }
        return wire
    }
}

extension LoopbackError {
    fileprivate func inStep(_ number: Int, _ step: ScriptedPeer.Step) -> LoopbackError {
        var error = self
        error.step = number
        error.operation = "\(step), \(operation)"
        return error
    }
}
