internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// Performs what `TLSUpgrade` decides, on the channel and on the markers in both queues.
extension TLSUpgrade {
    /// The outcome of a step.
    enum Step {
        /// Nothing, until something else happens.
        case waiting
        /// A task's `startTLS` waits for the writes before it, which may take so many seconds for a byte.
        case waitsForWrites(seconds: Double)
        /// Go on in another turn.
        case more
        /// So many of the bytes that were received belong to the handshake.
        case began(TLSSettingValues, earlyByteCount: Int)
        case asks(PeerTrust, TrustQuestionNumber)
        case asksSettings(TLSServerQuestion)
        case asksWork(HandshakeWork)
        case secured(TLSSession?, KeyExporter)
        /// The client has shown who it is.
        case authenticated(TLSSession)
        /// The client can answer no request any more.
        case unanswered(AsyncSocketError)
        case failed(AsyncSocketError)
    }

    /// Goes on as far as it can by itself.
    mutating func advance(over channel: ByteChannel, _ reads: ReadHalf, _ writes: WriteHalf) -> Step {
        switch self {
        case .queuedTLS: return beginIfDrained(channel, reads, writes)
        case .handshaking, .authenticating(.answered): return shakeHands(channel, reads, writes)
        case .secure: return .waiting
        case .awaitingTrust, .authenticating(.awaitingTrust):
            channel.flush()
            return .waiting
        case .authenticating(.requested):
            channel.sendDelayedRequest()
            guard channel.isAuthenticatingClient else { return channel.failure.map { .unanswered($0) } ?? .waiting }
            noteAnswer()
            return shakeHands(channel, reads, writes)
        }
    }

    /// Begins the handshake when both markers are at the front.
    private mutating func beginIfDrained(_ channel: ByteChannel, _ reads: ReadHalf, _ writes: WriteHalf) -> Step {
        var drained: DrainedQueues = []
        if case .startTLS = reads.front { drained.insert(.startingReadTLS) }
        if writes.packets.isAtStartTLS { drained.insert(.startingWriteTLS) }
        guard !drained.isEmpty, let request = note(drained) else {
            guard let seconds = taskTimeout, !writes.packets.isAtStartTLS else { return .waiting }
            return .waitsForWrites(seconds: seconds)
        }
        if request.settings.bytesBufferedAtUpgrade == .reject {
            // The kernel is asked, whatever the last event said: a late injection may be there without an
            // event. It may have more of an alert than it gave at first.
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
            return .failed(AsyncSocketError(error, operation: "startTLS"))
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
    /// Of an alert as a record in plaintext (RFC 8446, section 5.1).
    fileprivate static let alertLength = 7

    /// An alert is the server's answer, in TLS already; anything else is plaintext.
    fileprivate static func early(_ bytes: UnsafeRawBufferPointer) -> AsyncSocketError {
        if bytes.count >= alertLength, bytes.prefix(2).elementsEqual([21, 3]), bytes[3...5].elementsEqual([0, 2, 2]) {
            return AsyncSocketError(
                TLSError(TLSAlert(rawValue: bytes[6]), during: "the TLS handshake", operation: "startTLS"), operation: "startTLS")
        }
        return bytesBufferedAtUpgrade(bytes.count)
    }

    private static func bytesBufferedAtUpgrade(_ count: Int) -> AsyncSocketError {
        AsyncSocketError(
            .bytesBufferedAtUpgrade, blame: .peer, operation: "startTLS",
            message:
                "\(count) bytes of plaintext came before the handshake: an injection, or a greeting or reply that was not read before startTLS"
        )
    }
}
