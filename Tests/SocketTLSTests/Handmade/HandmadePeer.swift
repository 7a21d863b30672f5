import AsyncSocketsTesting
import SocketTLS

/// One side of a TLS 1.3 connection on a raw socket that follows a plan.
struct HandmadePeer: Sendable {
    let plan: HandmadePlan
    let identity: HandmadeIdentity
    let stranger: HandmadeIdentity

    /// What the other side has sent.
    struct Heard: Sendable {
        var text = ""
        var hasFinished = false
        var alerts: [TLSAlert] = []
        /// The key of the session in a server's ticket.
        var sessionKey: [UInt8] = []
    }

    /// Follows the plan, and then reads until the other side closes.
    func speak(on socket: RawSocket) -> Heard {
        var connection = HandmadeConnection(peer: self, socket: socket)
        // Each throws when the other side has closed the connection.
        do { try plan.isServer ? connection.serve() : connection.connect() } catch {}
        do { while try connection.hearRecord() {} } catch {}
        return connection.heard
    }
}

private struct HandmadeConnection {
    private struct Ended: Error {}

    let peer: HandmadePeer
    let socket: RawSocket
    var heard = HandmadePeer.Heard()
    private var reader = RecordReader()
    private var keys: HandmadeKeys
    private let share = HandmadeShare()
    private var hello: HandmadeHello?
    /// The current keys and the application keys.
    private var writing: HandmadeRecords?
    private var reading: HandmadeRecords?
    private var next: (client: HandmadeRecords, server: HandmadeRecords)?
    private var finishedOfOther: [UInt8] = []
    private var output: [UInt8] = []
    private var lastRecord: [UInt8] = []
    private var received: [UInt8] = []

    private var plan: HandmadePlan { peer.plan }

    init(peer: HandmadePeer, socket: RawSocket) {
        (self.peer, self.socket) = (peer, socket)
        keys = HandmadeKeys(sessionKey: peer.plan.sessionKey)
    }

    // MARK: - Roles

    mutating func serve() throws {
        try hearHello()
        for extensions in plan.retries {
            guard let hello else { throw Ended() }
            let message = Wire.message(2, plan.helloRetryRequest(to: hello, extensions))
            keys.replaceFirstHello()
            keys.add(message)
            try socket.send(Wire.record(22, message))
            try hearHello()
        }
        for step in plan.steps { try perform(step) }
        try socket.send(output)
    }

    mutating func connect() throws {
        let hello = plan.clientHello(share: share.publicBytes)
        let message = Wire.message(1, plan.bodies[.hello].map { $0(hello) } ?? hello)
        keys.add(message)
        seal(22, message + (plan.tails[.hello] ?? []))
        try socket.send(output)
        output = []
        try hearHello()
        try beginHandshakeKeys()
        while finishedOfOther.isEmpty { guard try hearRecord() else { throw Ended() } }
        next = keys.begin(.application)
        reading = next?.server
        for step in plan.steps { try perform(step) }
        try socket.send(output)
    }

    private mutating func beginHandshakeKeys() throws {
        guard let other = hello?.share else { throw Ended() }
        let records = keys.begin(.handshake, shared: share.secret(with: other))
        (writing, reading) = plan.isServer ? (records.server, records.client) : (records.client, records.server)
    }

    // MARK: - Sending

    private mutating func perform(_ step: HandmadePlan.Step) throws {
        switch step {
        case .hello:
            guard let hello else { throw Ended() }
            say(step, 2, plan.serverHello(to: hello, share: share.publicBytes))
            try beginHandshakeKeys()
        case .changeCipherSpec: write(Wire.record(20, [1]))
        case .encryptedExtensions:
            say(step, 8, Wire.extensions([(16, plan.protocolList)] + plan.encryptedExtensions))
        case .certificateRequest:
            say(step, 13, Wire.vector(plan.certificateContext, 1) + Wire.extensions([(13, Wire.list([0x0403], 2))]))
        case .certificate: say(step, 11, plan.certificate(peer.identity.der))
        case .certificateVerify:
            let signer = plan.isSignedByStranger ? peer.stranger : peer.identity
            let signature = signer.sign(keys.signedText(plan.signatureContext))
            say(step, 15, Wire.number(plan.signatureAlgorithm, bytes: 2) + Wire.vector(signature, 2))
        case .finished:
            say(step, 20, keys.finished(ofServer: plan.isServer))
            if plan.isServer { next = keys.begin(.application) }
            writing = plan.isServer ? next?.server : next?.client
        case .data(let text): seal(23, Array(text.utf8))
        case .message(let type, let body): say(step, type, body)
        case .sealed(let type, let content): seal(type, content)
        case .inner(let content): if let record = writing?.seal(inner: content) { write(record) }
        case .plain(let type, let content): write(Wire.record(type, content))
        case .repetition: write(lastRecord)
        case .damage: write(Array(lastRecord.dropLast()) + [(lastRecord.last ?? 0) ^ 1])
        }
    }

    private mutating func say(_ step: HandmadePlan.Step, _ type: UInt8, _ body: [UInt8]) {
        let message = Wire.message(type, plan.bodies[step].map { $0(body) } ?? body)
        // The other side's Finished covers only the messages before it.
        if !plan.isServer || next == nil { keys.add(message) }
        seal(22, message + (plan.tails[step] ?? []))
    }

    /// Sends in plaintext while there are no keys.
    private mutating func seal(_ type: UInt8, _ content: [UInt8]) {
        if type == 22, content.count > 16_384 {
            seal(type, Array(content.prefix(16_384)))
            return seal(type, Array(content.dropFirst(16_384)))
        }
        write(writing?.seal(type, content) ?? Wire.record(type, content))
    }

    private mutating func write(_ record: [UInt8]) {
        lastRecord = record
        output += record
    }

    // MARK: - Receiving

    /// Receives the other side's hello in plaintext.
    private mutating func hearHello() throws {
        received = []
        while !hasWholeMessage {
            guard let record = try reader.next(socket.receive) else { throw Ended() }
            if record[0] == 21 { heard.alerts.append(TLSAlert(rawValue: record[6])) }
            if record[0] == 22 { received += record.dropFirst(5) }
        }
        keys.add(received)
        hello = HandmadeHello(received)
        received = []
    }

    private var hasWholeMessage: Bool {
        received.count >= 4 && received.count >= 4 + received[1..<4].reduce(0) { $0 << 8 | Int($1) }
    }

    /// Returns false at the end.
    mutating func hearRecord() throws -> Bool {
        guard let record = try reader.next(socket.receive) else { return false }
        if record[0] == 21 { heard.alerts.append(TLSAlert(rawValue: record[6])) }
        guard let (type, content) = reading?.open(record) else { return true }
        switch type {
        case 21: heard.alerts.append(TLSAlert(rawValue: content[1]))
        case 22: hear(content)
        case 23: heard.text += String(decoding: content, as: UTF8.self)
        default: break
        }
        return true
    }

    /// Handles messages, of which the Finished is the last with these keys.
    private mutating func hear(_ content: [UInt8]) {
        received += content
        while hasWholeMessage {
            let message = Array(received.prefix(4 + received[1..<4].reduce(0) { $0 << 8 | Int($1) }))
            received.removeFirst(message.count)
            guard finishedOfOther.isEmpty else { continue }
            if message[0] == 20 {
                finishedOfOther = message
                heard.hasFinished = Array(message.dropFirst(4)) == keys.finished(ofServer: !plan.isServer)
                if plan.isServer {
                    reading = next?.client
                    heard.sessionKey = keys.nextSessionKey(after: message)
                }
            }
            if !plan.isServer || message[0] != 20 { keys.add(message) }
        }
    }
}
