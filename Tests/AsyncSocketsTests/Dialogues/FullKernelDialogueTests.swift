import AsyncSocketsTesting
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import StartTLSProtocols
import Testing

@testable import AsyncSockets

/// Messages of dialogues that do not fit into the kernel's buffer. Each message is sent once, in order, when
/// the kernel has room.
@Suite(.timeLimit(.patient)) struct FullKernelDialogueTests {
    typealias Sides = DialogueTests.Sides

    // MARK: - Success

    /// The real client takes over when the reply has arrived.
    @Test(arguments: Sides.all, pairs(Shortage.allCases, Style.allCases))
    func aReplyThatWaitsIsSentBeforeTheHandshake(_ sides: Sides, _ way: (Shortage, Style)) async throws {
        let (shortage, style) = way
        guard let (rehearsal, last, reply) = try server(sides) else { return }
        let (kernel, server) = try FullKernel.make(style)
        async let accepting: Void = server.acceptStartTLS(as: sides.server, TestCertificates.server())
        try await rehearsal.lead(kernel.peer, asClient: true)
        try await server.socket.turn("the dialogue has begun") { $0.upgrade?.state.dialogue != nil }
        let count = try await kernel.exhaust(server.socket, shortage)
        try kernel.peer.send(last)
        if shortage == .noRoom, !reply.isEmpty {
            try await server.socket.turn("the reply is pending") { $0.data.channel?.maySend == false }
        }
        try await kernel.drain(count)
        let received = try await kernel.peer.received(exactly: reply.count)
        #expect(received == reply)
        let client = try StyledSocket(.task, adopting: kernel.peer)
        try await client.startTLS(TestCertificates.client())
        try await accepting
        try await exchange(client, server)
    }

    /// The kernel accepts neither the client's last message nor its ClientHello at first.
    @Test(arguments: Sides.all, pairs(Shortage.allCases, Style.allCases))
    func aClientHelloThatWaitsIsSentAfterTheRequest(_ sides: Sides, _ way: (Shortage, Style)) async throws {
        let (shortage, style) = way
        let rehearsal = try Rehearsal(sides)
        let (kernel, client) = try FullKernel.make(style)
        let isDirect = sides.testDescription == "PostgreSQL with direct TLS"
        var count = isDirect ? try await kernel.exhaust(client.socket, shortage) : 0
        async let starting: Void = client.startTLS(as: sides.client, TestCertificates.client())
        if !isDirect {
            try await rehearsal.lead(kernel.peer, asClient: false)
            try await client.socket.turn("the dialogue has begun") { $0.upgrade?.state.dialogue != nil }
            count = try await kernel.exhaust(client.socket, shortage)
            try kernel.peer.send(rehearsal.last(ofClient: false))
        }
        if shortage == .noRoom { try await client.socket.turn("a message is pending") { $0.data.channel?.maySend == false } }
        try await kernel.drain(count)
        let answer = isDirect ? [] : try rehearsal.answer(toClient: false)
        let received = try await kernel.peer.received(exactly: answer.count)
        #expect(received == answer)
        let server = try StyledSocket(.task, adopting: kernel.peer)
        try await server.startTLS(TestCertificates.server())
        try await starting
        try await exchange(client, server)
    }

    private func server(_ sides: Sides) throws -> (rehearsal: Rehearsal, last: [UInt8], reply: [UInt8])? {
        guard sides.testDescription != "PostgreSQL with direct TLS" else { return nil }
        let rehearsal = try Rehearsal(sides)
        return (rehearsal, try rehearsal.last(ofClient: true), try rehearsal.answer(toClient: true))
    }

    private func exchange(_ client: StyledSocket, _ server: StyledSocket) async throws {
        #expect(client.socket.isSecure && server.socket.isSecure)
        try await client.write("ping\n")
        #expect(try await server.readLine() == "ping")
        try await server.write("pong\n")
        #expect(try await client.readLine() == "pong")
    }

    // MARK: - The last reply of a failed dialogue

    struct Farewell: Sendable, CustomTestStringConvertible {
        let server: StartTLSServer
        let command: String
        let testDescription: String

        init(_ server: StartTLSServer, _ command: String) {
            (self.server, self.command) = (server, command)
            testDescription = command.debugDescription
        }

        /// The server's greeting, and its reply to the command.
        func sent() throws -> (greeting: [UInt8], reply: [UInt8]) {
            var dialogue = try StartTLSDialogue(server: server)
            guard case .send(let greeting) = dialogue.start() else { throw Unexpected(description: "no greeting") }
            do throws(StartTLSError) {
                _ = try dialogue.receive(command.utf8)
            } catch {
                return (greeting, error.reply)
            }
            throw Unexpected(description: "the dialogue continues")
        }
    }

    private static let farewells = [
        Farewell(.smtp(greeting: "m"), "QUIT\r\n"), Farewell(.lmtp(greeting: "m"), "NOOP\r\nQUIT\r\n"),
        Farewell(.imap(greeting: "m"), "a LOGOUT\r\n"), Farewell(.pop3(greeting: "m"), "QUIT\r\n"),
        Farewell(.manageSieve(greeting: "m"), "LOGOUT\r\n"), Farewell(.ftp(greeting: "m"), "QUIT\r\n"),
        Farewell(.nntp(greeting: "m"), "QUIT\r\n"), Farewell(.irc(serverName: "m"), "QUIT :bye\r\n"),
    ]

    /// The connection closes with the reply. A round that takes as long as the grace period is inconclusive.
    @Test(arguments: farewells, pairs(Shortage.allCases, Style.allCases))
    func theLastReplyToARefusedClientArrives(_ farewell: Farewell, _ way: (Shortage, Style)) async throws {
        let (shortage, style) = way
        let (greeting, reply) = try farewell.sent()
        #expect(!reply.isEmpty)
        try await eventually("a round is quick enough") {
            let (kernel, victim) = try FullKernel.make(style)
            async let failing = StyledSocket.refusal {
                try await victim.acceptStartTLS(as: farewell.server, TestCertificates.server())
            }
            _ = try await kernel.peer.received(exactly: greeting.count)
            try await victim.socket.turn("the dialogue has begun") { $0.upgrade?.state.dialogue != nil }
            let count = try await kernel.exhaust(victim.socket, shortage)
            try kernel.peer.send(farewell.command)
            let start = ContinuousClock.now
            #expect(try await failing?.code == .startTLSFailed)
            #expect(await victim.isOver)
            kernel.peer.finish()
            try await kernel.drain(count)
            let received = try await kernel.peer.received(exactly: reply.count)
            kernel.release()
            let rest = try await kernel.peer.everything()
            let isQuick = start.duration(to: .now) < .seconds(4)
            #expect(received == reply && rest == [] || !isQuick)
            return isQuick
        }
    }

    // MARK: - Interruptions

    enum Interruption: CaseIterable, Sendable {
        case cancellation, deadline, dialogueTimeout, disconnect, close

        /// The possible results of the call.
        var outcomes: [Outcome] {
            switch self {
            case .cancellation: [.cancelled]
            case .deadline: [.failed(.deadlineExceeded)]
            case .dialogueTimeout: [.failed(.handshakeTimeout)]
            case .disconnect: [.failed(.closed)]
            case .close: [.failed(.closed), .failed(.writeTimeout)]
            }
        }
    }

    /// The kernel does not accept the reply that starts TLS, and the call is interrupted. The connection
    /// closes, and the reply is never sent, because no handshake can follow it. On a busy machine, a short
    /// limit may expire before the reply is queued. Then try again.
    @Test(arguments: Interruption.allCases) func anInterruptedDialogueSendsNothingMore(_ interruption: Interruption) async throws
    {
        for limit in [0.2, 2, 20] {
            let (kernel, victim) = try FullKernel.make(.task)
            let accepting = accept(victim, interruption, within: .seconds(limit))
            let greeting = try await kernel.peer.received(exactly: 7)
            let count = kernel.fill()
            if greeting.count == 7 { try kernel.peer.send("STARTTLS\r\n") }
            let waits = try await victim.socket.held("the reply is pending, or the call has ended") { connection in
                guard let channel = connection.data.channel else { return false }
                return channel.maySend ? nil : true
            }
            let closing = interrupt(accepting, victim.socket, interruption)
            let outcome = await accepting.outcome
            #expect(interruption.outcomes.contains(outcome))
            _ = await closing?.result
            #expect(await victim.isOver && !victim.socket.isSecure)
            guard waits else { continue }
            try await kernel.drain(count)
            kernel.release()
            return #expect(try await kernel.peer.everything() == [])
        }
        Issue.record("the reply never waited")
    }

    private func accept(
        _ victim: StyledSocket, _ interruption: Interruption, within limit: Duration
    ) -> Task<Void, any Error> {
        Task {
            try await withDeadline(interruption == .deadline ? limit : .patient * 10) {
                try await victim.acceptStartTLS(
                    as: .smtp(greeting: "m"), TestCertificates.server(),
                    dialogueTimeout: interruption == .dialogueTimeout ? limit : .patient)
            }
        }
    }

    /// Returns the task that closes the socket, if any.
    private func interrupt(
        _ accepting: Task<Void, any Error>, _ socket: AsyncSocket, _ interruption: Interruption
    ) -> Task<Void, any Error>? {
        switch interruption {
        case .cancellation: accepting.cancel()
        case .disconnect: socket.disconnect()
        case .close: return Task.immediate { try await socket.close(timeout: .milliseconds(10)) }
        case .deadline, .dialogueTimeout: break
        }
        return nil
    }
}
