// Rules for early data (RFC 8446, 2.3 and 4.2.10):
//  1. A client sends early data with the ClientHello only if its session allows that many bytes, was
//     established with the application protocol of the data, and has a positive verdict. Such a
//     connection accepts no version older than TLS 1.3 (RFC 8446, appendix D.3).
//  2. Data that was not accepted is sent immediately after the handshake, once, ahead of all other data,
//     but never in another application protocol.
//  3. A server keeps accepted data until the handshake is complete, and delivers it ahead of all other
//     data. Replayed data is therefore never delivered, because an attacker who replays it cannot
//     complete the handshake.
//  4. Only a responder receives the data earlier. The bytes that it has responded to are not delivered again.
//  5. OpenSSL fails the connection if a client sends more than its ticket allows.

internal import COpenSSL
internal import Glibc
internal import SocketBuffers

extension TLSEngine {
    /// Decides whether a client sends early data with the ClientHello, or whether a server accepts early
    /// data.
    func prepareEarlyData(_ settings: TLSSettingValues, _ serverName: ServerName?) throws(TLSError) {
        guard let data = settings.earlyData, let serverName else { return acceptEarlyData() }
        let applicationProtocol = data.applicationProtocol ?? settings.applicationProtocols.first
        guard let session = judge.resumption?.offered,
            session.allowsEarlyData(data.bytes.count, in: applicationProtocol, serverName)
        else { return early = .client(ClientEarlyData(data.bytes, for: applicationProtocol, .later)) }
        try OpenSSLCall.requireSuccess("SSL_set_min_proto_version") { COpenSSL_setMinimumVersion(ssl, TLS1_3_VERSION) }
        early = .client(ClientEarlyData(data.bytes, for: applicationProtocol, .first))
    }

    /// Lets a server accept early data if its context allows it.
    func acceptEarlyData() {
        early = context.acceptsEarlyData ? .server(ServerEarlyData(context.earlyDataResponder)) : nil
    }

    func stepWithEarlyData() -> OpenSSLCall.Answer {
        var outcome = OpenSSLCall.Answer.success
        switch early {
        case .client(let data): if case .first = data.stage { outcome = offer(data) }
        case .server(let data): if !data.isComplete { outcome = receive(data) }
        case nil: break
        }
        guard case .success = outcome else { return outcome }
        return OpenSSLCall.perform(on: ssl) { SSL_do_handshake(ssl) }
    }

    private func offer(_ data: ClientEarlyData) -> OpenSSLCall.Answer {
        var count = 0
        let outcome = OpenSSLCall.perform(on: ssl) { SSL_write_early_data(ssl, data.bytes, data.bytes.count, &count) }
        if case .success = outcome { data.stage = .offered }
        return outcome
    }

    private func receive(_ data: ServerEarlyData) -> OpenSSLCall.Answer {
        while true {
            let room = data.bytes.writableBytes(minimum: 4096)
            var (count, answer) = (0, SSL_READ_EARLY_DATA_ERROR)
            let outcome = OpenSSLCall.perform(on: ssl, mayLeaveErrors: true) {
                answer = SSL_read_early_data(ssl, room.baseAddress, room.count, &count)
                return answer
            }
            data.bytes.commit(count)
            guard case .success = outcome else { return outcome }
            guard answer == SSL_READ_EARLY_DATA_SUCCESS else {
                data.isComplete = true
                // OpenSSL reports the end of early data as success even if it then failed on the next
                // message.
                let entries = OpenSSLError.drainQueue()
                return entries.isEmpty ? .success : .failure(entries)
            }
        }
    }

    // MARK: - The responder

    var isAwaitingEarlyAnswer: Bool {
        if case .server(let data) = early { data.isAsking } else { false }
    }

    /// The question for the responder about new early bytes; `nil` if the responder should not be called now.
    var earlyQuestion: HandshakeAnswer? {
        guard case .server(let data) = early, let responder = data.takeQuestion() else { return nil }
        let request = TLSEarlyDataRequest(
            bytes: Array(data.bytes.readableBytes), serverName: TLSSession.serverName(of: ssl),
            applicationProtocol: TLSSession.applicationProtocol(of: ssl))
        return .awaitingSettings(.early(responder, request))
    }

    /// Applies the responder's decision. Does nothing if the responder is not running.
    func answerEarly(_ answer: TLSEarlyDataResponse) {
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

    /// Encrypts a server's response for a client before that client has been authenticated.
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

    /// On a client, sends the data that was not accepted. On a server, starts delivering accepted data.
    func settleEarlyData() -> HandshakeAnswer {
        switch early {
        case nil: break
        case .server(let data):
            earlyFacts = EarlyDataFacts(byteCount: data.bytes.count)
            // Tickets are normally sent with the next data, but after a response to early data there may
            // be no more data.
            if data.hasAnswered { sendTickets() }
            if data.bytes.isEmpty { early = nil }
        case .client(let data):
            early = nil
            if SSL_get_early_data_status(ssl) == SSL_EARLY_DATA_ACCEPTED { break }
            guard TLSSession.applicationProtocol(of: ssl) == data.applicationProtocol else {
                earlyFacts = EarlyDataFacts(isWithheld: true)
                break
            }
            bio.limitsOutput = false
            switch data.bytes.withUnsafeBytes({ write($0) }) {
            case .accepted(data.bytes.count): break
            case .accepted, .incomplete: return .failed(fail("SSL_write_ex", []))
            case .failed(let error): return .failed(error)
            }
        }
        return .complete
    }

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
    /// The maximum number of early data bytes that the server announced for this session; 0 if it accepts
    /// no early data.
    public var maximumEarlyDataBytes: Int { Int(SSL_SESSION_get_max_early_data(handle.session)) }

    /// Whether `count` bytes of a protocol may be sent with the ClientHello.
    ///
    /// OpenSSL would fail the connection if the protocol or the server name differed from the session's.
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

/// A server's EncryptedExtensions message (RFC 8446, 4.3.1), before OpenSSL decodes it.
package struct EncryptedExtensions {
    /// RFC 8446, 4.2.
    private static let earlyData = 42

    private let message: UnsafeRawBufferPointer

    /// - Parameter message: The message, including its 4-byte header.
    package init(_ message: UnsafeRawBufferPointer) {
        self.message = message
    }

    /// The offset of the extension type early_data; `nil` if the message does not contain the extension.
    package var placeOfEarlyData: Int? {
        // Skips the header and the length of the list.
        var reader = FieldReader(message.dropFirst(6))
        while true {
            let place = reader.offset
            guard let type = reader.number(of: 2), let length = reader.number(of: 2) else { return nil }
            if type == Self.earlyData { return place }
            guard reader.bytes(length) != nil else { return nil }
        }
    }
}

extension Facts {
    /// Rejects a server that claims to have accepted early data after a HelloRetryRequest, which RFC 8446,
    /// 4.2.10, rules out. OpenSSL's client would accept the claim. The extension type is overwritten with a
    /// type that is not allowed in this message, so OpenSSL rejects it.
    func refuseLateEarlyData(in message: UnsafeRawBufferPointer) {
        guard !isServer, let place = EncryptedExtensions(message).placeOfEarlyData else {
            return
        }
        UnsafeMutableRawBufferPointer(mutating: message)[place + 1] = UInt8(TLSEXT_TYPE_key_share)
    }
}

extension SessionTickets {
    /// The maximum difference between a ticket's age by the system clock and its age by our own clock, in
    /// seconds.
    private static let tolerance = 2

    /// Allows each ticket to be used for up to `limit` bytes of early data, once.
    func allowEarlyData(_ limit: Int, on context: OpaquePointer) throws(TLSError) {
        // Without this option, OpenSSL would use only stateful tickets.
        SSL_CTX_set_options(context, COpenSSL_noAntiReplayOption())
        SSL_CTX_set_allow_early_data_cb(
            context,
            { ssl, _ in
                guard let ssl, let tickets = SessionTickets.of(ssl) else { return 0 }
                return tickets.admitEarlyData(of: ssl) ? 1 : 0
            }, nil)
        try OpenSSLCall.requireSuccess("SSL_CTX_set_max_early_data") {
            SSL_CTX_set_max_early_data(context, UInt32(clamping: limit))
        }
        // Rejected data is skipped as ciphertext, so this limit includes the overhead of the records.
        try OpenSSLCall.requireSuccess("SSL_CTX_set_recv_max_early_data") {
            SSL_CTX_set_recv_max_early_data(context, UInt32(clamping: max(2 * limit, Int(SSL3_RT_MAX_PLAIN_LENGTH))))
        }
    }

    /// Called by OpenSSL once its own checks have passed.
    private func admitEarlyData(of ssl: OpaquePointer) -> Bool {
        guard let earlyData, let session = SSL_get_session(ssl), let issued = Stamp(of: session)?.issued, issued >= 0 else {
            return false
        }
        let now = clock()
        let age = Int(time(nil)) - Int(COpenSSL_sessionTime(session))
        guard abs(age - (now - issued)) <= Self.tolerance, let ticket = Self.ticket(of: session) else { return false }
        return earlyData.withLock { $0.admit(ticket, at: now) }
    }

    private static func ticket(of session: OpaquePointer) -> EarlyDataRecord.Ticket? {
        var secret = [UInt8](repeating: 0, count: Int(SSL_MAX_MASTER_KEY_LENGTH))
        defer { OPENSSL_cleanse(&secret, secret.count) }
        let count = SSL_SESSION_get_master_key(session, &secret, secret.count)
        guard count > 0 else { return nil }
        var digest = [UInt8](repeating: 0, count: Int(SHA256_DIGEST_LENGTH))
        guard SHA256(secret, count, &digest) != nil else { return nil }
        return digest.withUnsafeBytes {
            EarlyDataRecord.Ticket(
                high: $0.loadUnaligned(as: UInt64.self), low: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
    }
}
