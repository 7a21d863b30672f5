// Rules of early data (RFC 8446, 2.3 and 4.2.10):
//  1. A client sends it with the ClientHello only if its session allows so many bytes, was made with the
//     application protocol that they are for, and has a positive verdict. Such a connection takes no older
//     version than TLS 1.3 (RFC 8446, appendix D.3).
//  2. Data that was not accepted follows right after the handshake, once, ahead of all other data; but never
//     in another application protocol.
//  3. A server keeps what it accepts until the handshake is complete, and delivers it ahead of all other
//     data. So nothing that was replayed is ever delivered: a replayer cannot complete the handshake.
//  4. Only a responder sees it earlier. The bytes that it has answered are not delivered again.
//  5. OpenSSL ends the connection when a client sends more than its ticket allows.

internal import COpenSSL
internal import SocketBuffers

extension TLSEngine {
    /// Decides whether early data goes with the ClientHello, or whether a server accepts some.
    func prepareEarlyData(_ settings: TLSSettingValues, _ serverName: ServerName?) throws(TLSError) {
        guard let data = settings.earlyData, let serverName else { return acceptEarlyData() }
        let applicationProtocol = data.applicationProtocol ?? settings.applicationProtocols.first
        guard let session = judge.resumption?.offered,
            session.allowsEarlyData(data.bytes.count, in: applicationProtocol, serverName)
        else { return early = .client(ClientEarlyData(data.bytes, for: applicationProtocol, .later)) }
        try OpenSSLCall.requireSuccess("SSL_set_min_proto_version") { COpenSSL_setMinimumVersion(ssl, TLS1_3_VERSION) }
        early = .client(ClientEarlyData(data.bytes, for: applicationProtocol, .first))
    }

    /// Has a server accept early data, if its context says so.
    func acceptEarlyData() {
        early = context.acceptsEarlyData ? .server(ServerEarlyData(context.earlyDataResponder)) : nil
    }

    /// One step of OpenSSL's handshake, and of the early data that comes before it.
    func stepWithEarlyData() -> OpenSSLCall.Outcome {
        var outcome = OpenSSLCall.Outcome.success
        switch early {
        case .client(let data): if case .first = data.stage { outcome = offer(data) }
        case .server(let data): if !data.isComplete { outcome = receive(data) }
        case nil: break
        }
        guard case .success = outcome else { return outcome }
        return OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) }
    }

    private func offer(_ data: ClientEarlyData) -> OpenSSLCall.Outcome {
        var count = 0
        let outcome = OpenSSLCall.perform(on: ssl) { SSL_write_early_data(ssl, data.bytes, data.bytes.count, &count) }
        if case .success = outcome { data.stage = .offered }
        return outcome
    }

    private func receive(_ data: ServerEarlyData) -> OpenSSLCall.Outcome {
        while true {
            let room = data.bytes.writableBytes(minimum: 4096)
            var (count, answer) = (0, SSL_READ_EARLY_DATA_ERROR)
            let outcome = OpenSSLCall.perform(on: ssl) {
                answer = SSL_read_early_data(ssl, room.baseAddress, room.count, &count)
                return answer
            }
            data.bytes.commit(count)
            guard case .success = outcome else { return outcome }
            guard answer == SSL_READ_EARLY_DATA_SUCCESS else {
                data.isComplete = true
                // The end of early data is a success even when the handshake has failed behind it.
                let entries = OpenSSLError.drainQueue()
                return entries.isEmpty ? .success : .failure(entries)
            }
        }
    }

    // MARK: - The responder

    /// The answer to `.awaitingSettings`; call `handshake()` after it. Without an open question, nothing
    /// happens.
    package func choose(_ choice: TLSServerChoice) {
        switch choice {
        case .settings(let settings): choose(settings)
        case .early(let answer): answerEarly(answer)
        }
    }

    /// The responder of a server is at work.
    var isAwaitingEarlyAnswer: Bool {
        if case .server(let data) = early { data.isAsking } else { false }
    }

    /// The question about new early bytes.
    var earlyQuestion: HandshakeAnswer? {
        guard case .server(let data) = early, let responder = data.takeQuestion() else { return nil }
        let request = TLSEarlyRequest(
            bytes: Array(data.bytes.readableBytes), serverName: TLSSession.serverName(of: ssl),
            applicationProtocol: TLSSession.applicationProtocol(of: ssl))
        return .awaitingSettings(.early(responder, request))
    }

    /// The answer of the responder; without a question, nothing happens.
    func answerEarly(_ answer: TLSEarlyAnswer) {
        guard case .server(let data) = early, data.isAsking, phase.isInHandshake else { return }
        data.isAsking = false
        switch answer {
        case .awaitMore: break
        case .afterHandshake: data.responder = nil
        case .send(let bytes):
            data.responder = nil
            data.hasAnswered = true
            data.bytes.reset()
            sendEarly(bytes)
        }
    }

    /// Encrypts data of a server for a client that has not proved anything yet.
    private func sendEarly(_ bytes: [UInt8]) {
        bytes.withUnsafeBytes { bytes in
            var sent = 0
            while sent < bytes.count {
                var count = 0
                let outcome = OpenSSLCall.perform(on: ssl) {
                    SSL_write_early_data(
                        ssl, bytes.baseAddress.map { $0 + sent }, min(bytes.count - sent, Self.writeLimit), &count)
                }
                guard case .success = outcome, count > 0 else {
                    var entries: [OpenSSLError] = []
                    if case .failure(let all) = outcome { entries = all }
                    _ = fail("SSL_write_early_data", entries)
                    return
                }
                sent += count
            }
        }
    }

    // MARK: - After the handshake

    /// The result of a handshake that is complete.
    var settled: HandshakeAnswer { early == nil ? .complete : settleEarlyData() }

    /// Sends what was not accepted, on a client; has a server deliver what was.
    private func settleEarlyData() -> HandshakeAnswer {
        switch early {
        case nil: break
        case .server(let data):
            earlyFacts.byteCount = data.bytes.count
            // No other data may follow, with which the tickets would leave.
            if data.hasAnswered { sendTickets() }
            if data.bytes.isEmpty { early = nil }
        case .client(let data):
            early = nil
            if SSL_get_early_data_status(ssl) == SSL_EARLY_DATA_ACCEPTED { break }
            earlyFacts.isWithheld = TLSSession.applicationProtocol(of: ssl) != data.applicationProtocol
            guard !earlyFacts.isWithheld else { break }
            bio.limitsOutput = false
            switch data.bytes.withUnsafeBytes({ write($0) }) {
            case .accepted(data.bytes.count): break
            case .accepted, .incomplete: return .failed(fail("SSL_write_ex", []))
            case .failed(let error): return .failed(error)
            }
        }
        return .complete
    }

    /// Delivers early bytes ahead of all others.
    func takeEarlyData(_ data: ServerEarlyData, into buffer: PreBuffer, limit: Int) -> ReadAnswer {
        let count = min(limit, data.bytes.count)
        guard count > 0 else { return .incomplete }
        buffer.append(UnsafeRawBufferPointer(rebasing: data.bytes.readableBytes.prefix(count)))
        data.bytes.consume(count)
        if data.bytes.isEmpty { early = nil }
        return .bytes(count)
    }
}

extension TLSResumableSession {
    /// The most bytes of early data that the server takes with it, by its own word; 0 for none.
    public var maximumEarlyDataBytes: Int { Int(SSL_SESSION_get_max_early_data(handle.session)) }

    /// Whether so many bytes of a protocol may go with the ClientHello.
    ///
    /// OpenSSL would end the connection where it finds the protocol or the name to be another one.
    fileprivate func allowsEarlyData(_ count: Int, in applicationProtocol: String?, _ serverName: ServerName) -> Bool {
        guard protocolVersion >= .tls13, verdict == .trusted, count <= maximumEarlyDataBytes else { return false }
        var (name, length): (UnsafePointer<UInt8>?, Int) = (nil, 0)
        SSL_SESSION_get0_alpn_selected(handle.session, &name, &length)
        let bytes = UnsafeBufferPointer(start: name, count: length)
        guard bytes.elementsEqual((applicationProtocol ?? "").utf8) else { return false }
        guard let host = SSL_SESSION_get0_hostname(handle.session) else { return true }
        if case .hostName(let sent) = serverName { return String(cString: host) == sent }
        return false
    }
}
