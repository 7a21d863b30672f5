import StartTLSProtocols

extension FuzzTarget {
    /// The STARTTLS dialogues of all protocols, as client and as server.
    static let dialogues = FuzzTarget(name: "dialogues", maximumLength: 70_000) { input in
        var input = input
        let choice = Int(input.byte())
        var cuts = FuzzInput(input.take(16))
        let bytes = input.all()
        let whole = try outcome(choice, [bytes])
        let split = try outcome(choice, cuts.pieces(of: bytes))
        // Injected data may be detected only if it arrives in one piece.
        guard let first = whole.startsTLS else { return }
        try require(first.isEmpty || Self.startImmediately.contains(choice % Self.count), "bytes before TLS are not an injection")
        try require(split.startsTLS == first, "the whole starts TLS, but the pieces end with \(split.error ?? "other bytes")")
        // Some messages have random parts of various lengths.
        try require(abs(whole.sent.count - split.sent.count) < 32, "other bytes are sent if the input arrives in pieces")
    }

    private struct Outcome {
        var sent: [UInt8] = []
        /// The received bytes of TLS.
        var startsTLS: [UInt8]?
        var error: String?
    }

    private static func outcome(_ choice: Int, _ pieces: [[UInt8]]) throws -> Outcome {
        var dialogue = try makeDialogue(choice)
        var outcome = Outcome()
        note(dialogue.start(), &outcome)
        for (index, piece) in pieces.enumerated() {
            do throws(StartTLSError) {
                note(try dialogue.receive(piece), &outcome)
            } catch {
                outcome.error = error.message
                try require((try? dialogue.receive([])) == nil, "the dialogue continues after an error")
                try require(error.reply.count <= 2 * StartTLSDialogue.maximumLength, "the reply has \(error.reply.count) bytes")
                break
            }
            try require(outcome.sent.count <= 2 * StartTLSDialogue.maximumLength, "\(outcome.sent.count) bytes are sent")
            if outcome.startsTLS != nil {
                outcome.startsTLS? += pieces[(index + 1)...].joined()
                try require((try? dialogue.receive([])) == nil, "the dialogue continues after TLS has started")
                break
            }
        }
        _ = dialogue.endOfInputError
        return outcome
    }

    private static func note(_ step: StartTLSStep, _ outcome: inout Outcome) {
        switch step {
        case .send(let bytes): outcome.sent += bytes
        case .startTLS(let last, let received):
            outcome.sent += last
            outcome.startsTLS = received
        }
    }

    private static let clients: [StartTLSClient] = [
        .smtp(name: "client.example"), .lmtp(name: "client.example"), .imap, .pop3, .manageSieve, .ftp, .nntp, .irc,
        .xmpp(domain: "example.org"), .xmppServerToServer(domain: "example.org", origin: "example.net"), .ldap, .postgres, .mysql,
        .script([.skip(to: "ready"), .send("STARTTLS"), .expect("OK")]),
    ]

    private static let greeting = MySQLGreeting(
        serverVersion: "8.0", connectionID: 1, nonce: [UInt8](repeating: 0x41, count: 20),
        authenticationMethod: "mysql_native_password")

    private static let servers: [StartTLSServer] = [
        .smtp(greeting: "m"), .lmtp(greeting: "m"), .imap(greeting: "m"), .pop3(greeting: "m"), .manageSieve(greeting: "m"),
        .ftp(greeting: "m"), .nntp(greeting: "m"), .irc(serverName: "m"), .xmpp(domain: "example.org"),
        .xmppServerToServer(domain: "example.org"), .ldap, .mysql(makeGreeting: { greeting }), .postgres(acceptsDirectTLS: false),
        .postgres(acceptsDirectTLS: true),
        .script([.skip(to: "STARTTLS"), .send("OK")]),
    ]

    private static let count = clients.count + servers.count
    /// The servers of MySQL, and of PostgreSQL with direct TLS. Their clients start TLS without a reply.
    private static let startImmediately = [11, 13].map { clients.count + $0 }

    private static func makeDialogue(_ choice: Int) throws -> StartTLSDialogue {
        let index = choice % count
        return try index < clients.count
            ? StartTLSDialogue(client: clients[index]) : StartTLSDialogue(server: servers[index - clients.count])
    }
}
