internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// Applies the state machine of `TLSUpgrade` to the channel and to the markers in both queues.
extension TLSUpgrade {
    enum Step {
        /// No progress until the next event.
        case waiting
        /// A task's `startTLS` must wait for earlier writes. The time limit restarts when bytes are sent.
        case waitsForWrites(seconds: Double)
        /// Continue in another turn.
        case more
        /// The dialogue before the handshake has started.
        case beganDialogue(UpgradeDialogue)
        /// The handshake has started. `earlyByteCount` of the bytes already received belong to it.
        case began(TLSSettingValues, earlyByteCount: Int)
        case asks(PeerTrust, TrustQuestionNumber)
        case asksSettings(TLSServerQuestion)
        case asksWork(HandshakeWork)
        case secured(TLSSession?, KeyExporter)
        /// The client's identity is verified.
        case authenticated(TLSSession)
        /// The client is no longer able to respond to the request.
        case unanswered(AsyncSocketError)
        case failed(AsyncSocketError)
    }

    /// Advances the upgrade as far as possible without further events.
    mutating func advance(over channel: ByteChannel, _ reads: ReadHalf, _ writes: WriteHalf) -> Step {
        switch self {
        case .queuedTLS: return beginIfDrained(channel, reads, writes)
        case .inDialogue(let request, let dialogue):
            switch dialogue.advance(over: channel, reads.preBuffer) {
            case .complete: return begin(request, channel, reads, rejectsEarlyBytes: request.settings.role == .client)
            case .incomplete: return .waiting
            case .more: return .more
            case .failed(let error): return .failed(error)
            }
        case .handshaking, .authenticating(.answered): return shakeHands(channel, reads, writes)
        case .secure: return .waiting
        case .awaitingTrust:
            channel.flush()
            return channel.checkForDisconnect().map { .failed($0) } ?? .waiting
        case .authenticating(.awaitingTrust):
            channel.flush()
            return .waiting
        case .authenticating(.requested):
            channel.sendDelayedRequest()
            guard channel.isAuthenticatingClient else { return channel.failure.map { .unanswered($0) } ?? .waiting }
            noteAnswer()
            return shakeHands(channel, reads, writes)
        }
    }

    private mutating func beginIfDrained(_ channel: ByteChannel, _ reads: ReadHalf, _ writes: WriteHalf) -> Step {
        var drained: DrainedQueues = []
        if case .startTLS = reads.front { drained.insert(.startingReadTLS) }
        if writes.packets.isAtStartTLS { drained.insert(.startingWriteTLS) }
        guard !drained.isEmpty, let request = note(drained) else {
            guard let seconds = taskTimeout, !writes.packets.isAtStartTLS else { return .waiting }
            return .waitsForWrites(seconds: seconds)
        }
        guard let dialogue = request.dialogue.map(UpgradeDialogue.init) else {
            return begin(request, channel, reads, rejectsEarlyBytes: request.settings.earlyPlaintext == .reject)
        }
        beginDialogue(request, dialogue)
        return .beganDialogue(dialogue)
    }

    private mutating func begin(
        _ request: TLSRequest, _ channel: ByteChannel, _ reads: ReadHalf, rejectsEarlyBytes: Bool
    ) -> Step {
        if rejectsEarlyBytes {
            // Read from the kernel regardless of the last event: injected bytes may have arrived without an
            // event, and an alert may be only partially received.
            var count: Int
            repeat {
                count = reads.preBuffer.count
                channel.expectBytes()
                _ = channel.fill(reads.preBuffer, limit: ReadHalf.readAheadLimit)
            } while count < reads.preBuffer.count && reads.preBuffer.count < AsyncSocketError.alertLength
            guard reads.preBuffer.isEmpty else { return .failed(.early(reads.preBuffer.readableBytes)) }
        }
        do throws(TLSError) {
            let engine = try TLSEngine(
                context: request.context, settings: request.settings, endpoint: request.endpoint, defersWork: true)
            let earlyByteCount = reads.preBuffer.count
            channel.beginTLS(engine, feeding: reads.preBuffer)
            begin()
            return .began(request.settings, earlyByteCount: earlyByteCount)
        } catch {
            return .failed(AsyncSocketError(error, operation: .startTLS))
        }
    }

    private mutating func shakeHands(_ channel: ByteChannel, _ reads: ReadHalf, _ writes: WriteHalf) -> Step {
        let isSecure = isSecure
        switch channel.handshake(operation) {
        case .complete(let session, let exporter):
            succeed()
            if isSecure, let session { return .authenticated(session) }
            reads.packets.removeStartTLS()
            writes.packets.removeStartTLS()
            return .secured(session, exporter)
        case .awaitingTrust(let trust):
            return .asks(trust, awaitTrust())
        case .awaitingSettings(let question): return .asksSettings(question)
        case .awaitingWork(let work): return .asksWork(work)
        case .failed(let error): return .failed(error)
        case .more: return .more
        case .incomplete: return .waiting
        }
    }
}

extension AsyncSocketError {
    /// The length of an alert as a plaintext record (RFC 8446, section 5.1).
    fileprivate static let alertLength = 7

    /// Creates the error for bytes received before the handshake. An alert is the server's TLS response; all
    /// other bytes are plaintext.
    fileprivate static func early(_ bytes: UnsafeRawBufferPointer) -> AsyncSocketError {
        if bytes.count >= alertLength, bytes.prefix(2).elementsEqual([21, 3]), bytes[3...5].elementsEqual([0, 2, 2]) {
            return AsyncSocketError(
                TLSError(TLSAlert(rawValue: bytes[6]), during: "the TLS handshake", operation: "startTLS"), operation: .startTLS)
        }
        return earlyPlaintext(bytes.count)
    }

    private static func earlyPlaintext(_ count: Int) -> AsyncSocketError {
        AsyncSocketError(
            .earlyPlaintext, fault: .peer, operation: .startTLS,
            message:
                "\(count) bytes of plaintext arrived before the handshake: an injection attack, or a message not read before startTLS"
        )
    }
}
