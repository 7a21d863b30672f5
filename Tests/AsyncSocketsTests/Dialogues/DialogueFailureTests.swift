import AsyncSocketsTesting
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Dialogues that fail. The connection closes and never continues in plaintext.
@Suite(.timeLimit(.patient)) struct DialogueFailureTests {
    @Test(arguments: Style.allCases) func aReplyInjectedAfterTheLastOneIsCounted(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        try attacker.send("* OK [CAPABILITY STARTTLS] ready\r\n")
        async let failing = StyledSocket.refusal { try await victim.startTLS(as: .imap, TestCertificates.client()) }
        _ = try await Task.detached { try attacker.receive(through: "a2 STARTTLS\r\n") }.value
        try attacker.send("a2 OK go\r\n* OK injected\r\n")
        let error = try #require(try await failing)
        #expect(error.code == .earlyPlaintext)
        #expect(error.startTLS?.code == .injected)
        #expect(error.startTLS?.injectedByteCount == 15)
        #expect(error.fault == .peer)
        #expect(await victim.isOver)
    }

    /// Commands, or a ClientHello, in the same segment as the command that starts TLS.
    @Test(arguments: Style.allCases, ["MAIL FROM:<a@example.org>\r\n", "\u{16}\u{3}\u{1}\u{0}\u{1}\u{0}"])
    func bytesInjectedIntoAServerAreCounted(_ style: Style, _ injected: String) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal {
            try await victim.acceptStartTLS(as: .smtp(greeting: "m"), TestCertificates.server())
        }
        _ = try await Task.detached { try attacker.receive(through: "220 m\r\n") }.value
        try attacker.send("STARTTLS\r\n" + injected)
        let error = try #require(try await failing)
        #expect(error.code == .earlyPlaintext)
        #expect(error.startTLS?.injectedByteCount == injected.utf8.count)
        #expect(await victim.isOver)
        // Not even the reply to the command.
        #expect(try await Task.detached { try attacker.receiveAll() }.value == "")
    }

    @Test(arguments: Style.allCases) func withoutAnOfferNothingIsSent(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal { try await victim.startTLS(as: .smtp(name: "c"), TestCertificates.client()) }
        try attacker.send("220 m\r\n")
        _ = try await Task.detached { try attacker.receive(through: "EHLO c\r\n") }.value
        try attacker.send("250-m\r\n250 AUTH PLAIN\r\n")
        let error = try #require(try await failing)
        #expect(error.code == .startTLSFailed)
        #expect(error.startTLS?.code == .notOffered)
        #expect(
            "\(error)"
                == "startTLS: SMTP: the server does not offer TLS, or an attacker removed the offer: \"250 AUTH PLAIN\" (startTLSFailed, fault: peer)"
        )
        #expect(await victim.isOver)
        #expect(try await Task.detached { try attacker.receiveAll() }.value == "")
    }

    /// The client receives the reply of its protocol before the connection closes.
    @Test(arguments: Style.allCases) func aClientThatQuitsReceivesAReply(_ style: Style) async throws {
        let (peer, server) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal {
            try await server.acceptStartTLS(as: .pop3(greeting: "ready"), TestCertificates.server())
        }
        try peer.send("QUIT\r\n")
        let error = try #require(try await failing)
        #expect(error.code == .startTLSFailed)
        #expect(error.startTLS?.code == .closed)
        #expect(try await Task.detached { try peer.receiveAll() }.value == "+OK ready\r\n+OK Bye\r\n")
    }

    @Test(arguments: Style.allCases) func aFloodOfCommandsIsLimited(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal {
            try await victim.acceptStartTLS(as: .smtp(greeting: "m"), TestCertificates.server())
        }
        let flood = Task.detached {
            for _ in 0..<20_000 { try attacker.send("MAIL FROM:<a@example.org>\r\n") }
        }
        // The attacker does not read the replies, so they fill the kernel's buffers.
        let error = try #require(try await failing)
        #expect(error.startTLS?.code == .tooLong)
        #expect(error.code == .startTLSFailed)
        _ = await flood.result
    }

    /// The rest of the client's data is unread. A reset must not overtake the reply.
    @Test(arguments: Style.allCases) func theReplyToAFloodArrives(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal {
            try await victim.acceptStartTLS(as: .imap(greeting: "ready"), TestCertificates.server())
        }
        try attacker.send(String(repeating: "x", count: 200_000))
        #expect(try await failing?.startTLS?.code == .tooLong)
        let received = try await Task.detached { try attacker.receive(through: "STARTTLS\r\n") }.value
        #expect(received.hasSuffix("* BYE Too much data before STARTTLS\r\n"))
    }

    /// The limit and the replies do not depend on how much the kernel accepts: the client receives exactly
    /// what it would receive if all its commands arrived in one piece. The replies to the short commands
    /// exceed the limit on replies, and the long commands exceed the limit on commands. A round that takes as
    /// long as the grace period is inconclusive.
    @Test(arguments: Style.allCases, ["<a@example.org>", "<a@example.org> BODY=8BITMIME SIZE=1000000"])
    func aClientThatDoesNotReadReceivesEveryReply(_ style: Style, _ parameters: String) async throws {
        let flood = String(repeating: "MAIL FROM:\(parameters)\r\n", count: 4_000)
        var dialogue = try StartTLSDialogue(server: .smtp(greeting: "m"))
        let expected = dialogue.everythingSent(after: Array(flood.utf8))
        try await eventually("a round is quick enough") {
            let (attacker, victim) = try StyledSocket.attacked(style)
            try victim.socket.setOption(.sendBufferSize, to: 1)
            async let failing = StyledSocket.refusal {
                try await victim.acceptStartTLS(as: .smtp(greeting: "m"), TestCertificates.server())
            }
            let flooding = Task.detached { try attacker.send(flood) }
            #expect(try await failing?.startTLS?.code == .tooLong)
            let start = ContinuousClock.now
            let received = try await Task.detached { try attacker.receiveAll() }.value
            _ = await flooding.result
            let isQuick = start.duration(to: .now) < .seconds(4)
            // Describing the difference between long texts would take `#expect` minutes.
            let isWhole = received == expected
            #expect(isWhole || !isQuick)
            return isQuick
        }
    }

    /// The kernel does not accept the reply that starts TLS. Bytes that the client sends before
    /// receiving this reply are an injection.
    @Test(arguments: Style.allCases) func bytesInjectedBeforeTheReplyIsSentAreCounted(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        try victim.socket.setOption(.sendBufferSize, to: 1)
        async let failing = StyledSocket.refusal {
            try await victim.acceptStartTLS(as: .smtp(greeting: "m"), TestCertificates.server())
        }
        try attacker.send(String(repeating: "NOOP\r\n", count: 2_000) + "STARTTLS\r\n")
        try await victim.socket.turn("every command has been received") { connection in
            guard let dialogue = connection.upgrade?.state.dialogue, connection.data.reads.preBuffer.isEmpty else { return false }
            // Some commands may have been received before the dialogue.
            return connection.data.carried.received + dialogue.transferred.received == 12_010
        }
        try attacker.send("MAIL FROM:<a@example.org>\r\n")
        let error = try #require(try await failing)
        #expect(error.code == .earlyPlaintext)
        #expect(error.startTLS?.injectedByteCount == 27)
        #expect(await victim.isOver)
        #expect(try await !Task.detached { try attacker.receiveAll() }.value.contains("220 2.0.0"))
    }

    /// Refusals after which a client sends nothing more.
    @Test(arguments: Style.allCases) func aRefusalClosesTheConnection(_ style: Style) async throws {
        let refusals: [(greeting: String, code: StartTLSError.Code)] = [
            ("* PREAUTH welcome\r\n", .alreadyAuthenticated), ("* BYE busy\r\n", .refused),
            ("* OK [CAPABILITY IMAP4rev1] ready\r\n", .notOffered),
        ]
        for (greeting, code) in refusals {
            let (attacker, victim) = try StyledSocket.attacked(style)
            try attacker.send(greeting)
            let error = try await StyledSocket.refusal { try await victim.startTLS(as: .imap, TestCertificates.client()) }
            #expect(error?.startTLS?.code == code)
            #expect(await victim.isOver)
            #expect(try await Task.detached { try attacker.receiveAll() }.value == "")
        }
    }

    @Test(arguments: Style.allCases) func aSilentPeerIsLimitedInTime(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        let error = try #require(
            try await StyledSocket.refusal {
                try await victim.startTLS(as: .ftp, TestCertificates.client(), dialogueTimeout: .milliseconds(50))
            })
        #expect(error.code == .handshakeTimeout)
        #expect(error.message == "FTP: the dialogue before TLS was not complete within 0.05 seconds (dialogueTimeout)")
        #expect(await victim.isOver)
        withExtendedLifetime(attacker) {}
    }

    /// The time limit applies to the whole dialogue, not to each command.
    @Test(arguments: Style.allCases) func aTalkativeClientIsLimitedInTime(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        let talk = Task.detached {
            while !Task.isCancelled {
                try attacker.send("NOOP\r\n")
                _ = try attacker.receive(through: "OK\r\n")
            }
        }
        let error = try await StyledSocket.refusal {
            try await victim.acceptStartTLS(
                as: .smtp(greeting: "m OK"), TestCertificates.server(), dialogueTimeout: .milliseconds(50))
        }
        #expect(error?.code == .handshakeTimeout || error?.startTLS?.code == .tooLong)
        talk.cancel()
        _ = await talk.result
    }

    @Test(arguments: Style.allCases) func aPeerThatClosesIsNamed(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        try attacker.send("220-half a")
        attacker.finish()
        let error = try #require(
            try await StyledSocket.refusal { try await victim.startTLS(as: .ftp, TestCertificates.client()) })
        #expect(error.code == .startTLSFailed)
        #expect(error.startTLS?.code == .closed)
        #expect(error.startTLS?.line == "220-half a")
        #expect(await victim.isOver)
    }

    @Test func aResetIsReported() async throws {
        let (client, peer) = try await connectedSocket([.expect("STARTTLS\r\n"), .reset])
        let error = try await StyledSocket.refusal {
            try await client.startTLS(as: .irc, settings: TestCertificates.client())
        }
        #expect(error?.code == .connectionReset)
        #expect(!client.isConnected)
        _ = try await peer.finish()
    }

    @Test func aCancelledDialogueClosesTheConnection() async throws {
        let (attacker, victim) = try StyledSocket.attacked(.task)
        let starting = Task { try await victim.startTLS(as: .irc, TestCertificates.client()) }
        _ = try await Task.detached { try attacker.receive(through: "STARTTLS\r\n") }.value
        starting.cancel()
        #expect(await starting.outcome == .cancelled)
        #expect(await victim.isOver)
        #expect(try await Task.detached { try attacker.receiveAll() }.value == "")
    }

    @Test func aDeadlineCoversTheDialogue() async throws {
        let (attacker, victim) = try StyledSocket.attacked(.task)
        let error = try await StyledSocket.refusal {
            try await withDeadline(.milliseconds(50)) { try await victim.startTLS(as: .imap, TestCertificates.client()) }
        }
        #expect(error?.code == .deadlineExceeded)
        #expect(await victim.isOver)
        withExtendedLifetime(attacker) {}
    }

    @Test(arguments: Style.allCases) func aBadParameterIsTheCallersFault(_ style: Style) async throws {
        for (name, timeout) in [("c\r\nMAIL FROM:<a>", Duration.seconds(1)), ("c", .zero), ("c", .seconds(-1))] {
            let (attacker, victim) = try StyledSocket.attacked(style)
            let error = try await StyledSocket.refusal {
                try await victim.startTLS(as: .smtp(name: name), TestCertificates.client(), dialogueTimeout: timeout)
            }
            #expect(error?.code == .badParameter)
            #expect(error?.fault == .caller)
            #expect((error?.startTLS?.code == .invalidParameter) == (name != "c"))
            if style == .delegate { await #expect(throws: AsyncSocketError.self) { try await victim.nextEvent() } }
            #expect(await victim.isOver)
            #expect(try await Task.detached { try attacker.receiveAll() }.value == "")
        }
    }

    /// Unusable settings close the connection before the first byte of the dialogue.
    @Test(arguments: Style.allCases) func unusableSettingsSendNothing(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        var settings = try TestCertificates.client()
        settings.applicationProtocols = [""]
        let broken = settings
        let error = try await StyledSocket.refusal { try await victim.startTLS(as: .irc, broken) }
        #expect(error?.code == .tls)
        if style == .delegate { await #expect(throws: AsyncSocketError.self) { try await victim.nextEvent() } }
        #expect(await victim.isOver)
        #expect(try await Task.detached { try attacker.receiveAll() }.value == "")
    }

    /// The handshake after the dialogue fails as usual.
    @Test(arguments: Style.allCases) func aStrangersCertificateIsRejected(_ style: Style) async throws {
        let (client, server) = try await StyledSocket.pair(style, through: .listening())
        async let accepting = StyledSocket.refusal {
            try await server.acceptStartTLS(as: .ldap, TestCertificates.server())
        }
        let error = try await StyledSocket.refusal {
            try await client.startTLS(as: .ldap, TestCertificates.client(for: "other.example"))
        }
        #expect(error?.code == .tls)
        #expect(try await accepting?.code == .tls)
        #expect(await client.isOver)
    }
}

extension StartTLSDialogue {
    /// Returns all the text that a dialogue sends until it fails.
    fileprivate mutating func everythingSent(after bytes: [UInt8]) -> String {
        guard case .send(var sent) = start() else { return "" }
        do throws(StartTLSError) {
            if case .send(let replies) = try receive(bytes) { sent += replies }
        } catch {
            sent += error.reply
        }
        return String(decoding: sent, as: UTF8.self)
    }
}
