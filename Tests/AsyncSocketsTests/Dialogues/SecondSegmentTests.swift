import AsyncSocketsTesting
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import StartTLSProtocols
import Testing

@testable import AsyncSockets

/// Plaintext that an attacker injects around the last message of a dialogue, for each protocol and role: with
/// the message, in a separate segment, while the kernel is full, and after the handshake has started.
///
/// A recv does not return bytes after a segment that carries a descriptor. So the victim reads the message
/// without the injected bytes, although both are in the kernel.
@Suite(.timeLimit(.patient)) struct SecondSegmentTests {
    typealias Sides = DialogueTests.Sides

    /// Protocols in which a client sends a message before its ClientHello.
    private static let sides = Sides.all.filter { $0.testDescription != "PostgreSQL with direct TLS" }

    enum Segments: CaseIterable, Sendable { case one, two }

    private static let injected = Array("220 injected\r\n".utf8)

    /// Sends the last message and the injected bytes when the victim's dialogue has started, and before the
    /// victim receives either.
    private func inject(
        _ last: [UInt8], into victim: AsyncSocket, from attacker: RawSocket, _ segments: Segments
    ) async throws {
        try await victim.held("the dialogue has begun") { connection in
            guard connection.upgrade?.state.dialogue != nil else { return nil as Void? }
            switch segments {
            case .one: try attacker.send(last + Self.injected)
            case .two:
                sendWithDescriptor(last, to: attacker.descriptor)
                try attacker.send(Self.injected)
            }
            return ()
        }
    }

    private func expectInjection(_ error: AsyncSocketError?, into victim: StyledSocket) async throws {
        let error = try #require(error)
        #expect(error.code == .earlyPlaintext && error.fault == .peer)
        #expect(error.startTLS?.code == .injected)
        // With short reads, the rest may not have been received yet.
        #expect((1...Self.injected.count).contains(error.startTLS?.injectedByteCount ?? 0))
        try await expectEnd(of: victim)
    }

    private func expectNotTLS(_ error: AsyncSocketError?, from victim: StyledSocket) async throws {
        let error = try #require(error)
        #expect(error.code == .tls && error.tls?.code == .notTLS && error.fault == .peer, "\(error)")
        try await expectEnd(of: victim)
    }

    private func expectEnd(of victim: StyledSocket) async throws {
        #expect(!victim.socket.isSecure)
        #expect(await victim.isOver)
    }

    // MARK: - Clients

    @Test(arguments: sides, pairs(Segments.allCases, Style.allCases))
    func bytesAfterTheServersLastReplyAreAnInjection(_ sides: Sides, _ way: (Segments, Style)) async throws {
        let ((segments, style), rehearsal) = (way, try Rehearsal(sides))
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal { try await victim.startTLS(as: sides.client, TestCertificates.client()) }
        try await rehearsal.lead(attacker, asClient: false)
        try await inject(rehearsal.last(ofClient: false), into: victim.socket, from: attacker, segments)
        try await expectInjection(try await failing, into: victim)
        // Neither a request for TLS nor a ClientHello.
        #expect(try await attacker.everything() == [])
    }

    /// The reply has been read, and the kernel does not accept the ClientHello. A MySQL client sends its
    /// request for TLS after the greeting, so its dialogue is not complete yet.
    @Test(arguments: sides, Style.allCases)
    func bytesThatArriveBeforeTheClientHelloIsSentAreNotTLS(_ sides: Sides, _ style: Style) async throws {
        let rehearsal = try Rehearsal(sides)
        let (kernel, victim) = try FullKernel.make(style)
        async let failing = StyledSocket.refusal { try await victim.startTLS(as: sides.client, TestCertificates.client()) }
        try await rehearsal.lead(kernel.peer, asClient: false)
        let count = kernel.fill()
        let isMySQL = sides.testDescription == "MySQL"
        try kernel.peer.send(rehearsal.last(ofClient: false))
        try await victim.socket.turn("the next message is pending") { connection in
            guard let upgrade = connection.upgrade, let channel = connection.data.channel, !channel.maySend else { return false }
            if isMySQL { return upgrade.state.dialogue != nil && connection.data.reads.preBuffer.isEmpty }
            return channel.hasUnsentBytes
        }
        try kernel.peer.send(Self.injected)
        if isMySQL {
            try await expectInjection(try await failing, into: victim)
        } else {
            try await expectNotTLS(try await failing, from: victim)
        }
        try await kernel.drain(count)
    }

    @Test(arguments: sides, Style.allCases)
    func bytesThatFollowTheClientHelloAreNotTLS(_ sides: Sides, _ style: Style) async throws {
        let rehearsal = try Rehearsal(sides)
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal { try await victim.startTLS(as: sides.client, TestCertificates.client()) }
        try await rehearsal.lead(attacker, asClient: false)
        try attacker.send(rehearsal.last(ofClient: false))
        let answer = try rehearsal.answer(toClient: false)
        let received = try await attacker.received(exactly: answer.count + 3)
        // A handshake record (RFC 8446, section 5.1).
        #expect(received == answer + [22, 3, 1])
        try attacker.send(Self.injected)
        try await expectNotTLS(try await failing, from: victim)
    }

    /// A client that starts with TLS has no dialogue in which bytes could be expected.
    @Test(arguments: Style.allCases) func bytesBeforeDirectTLSAreAnInjection(_ style: Style) async throws {
        let (attacker, victim) = try StyledSocket.attacked(style)
        try attacker.send(Self.injected)
        let error = try await StyledSocket.refusal {
            try await victim.startTLS(as: .postgresDirect, TestCertificates.client())
        }
        try await expectInjection(error, into: victim)
        #expect(try await attacker.everything() == [])
    }

    // MARK: - Servers

    /// A MySQL client may send its ClientHello without waiting for a reply, so bytes in a second segment
    /// belong to TLS. The handshake fails.
    @Test(arguments: sides, pairs(Segments.allCases, Style.allCases))
    func bytesAfterTheClientsRequestForTLSAreAnInjection(_ sides: Sides, _ way: (Segments, Style)) async throws {
        let ((segments, style), rehearsal) = (way, try Rehearsal(sides))
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal {
            try await victim.acceptStartTLS(as: sides.server, TestCertificates.server())
        }
        try await rehearsal.lead(attacker, asClient: true)
        try await inject(rehearsal.last(ofClient: true), into: victim.socket, from: attacker, segments)
        let error = try await failing
        if sides.testDescription == "MySQL", error?.code == .tls {
            try await expectNotTLS(error, from: victim)
        } else {
            // In one segment, unless a short read has divided it.
            #expect(sides.testDescription != "MySQL" || segments == .one)
            try await expectInjection(error, into: victim)
            // Not even the reply to the request.
            #expect(try await attacker.everything() == [])
        }
    }

    /// The kernel does not accept the reply, so the client cannot have received it.
    @Test(arguments: sides, Style.allCases)
    func bytesThatArriveBeforeTheLastReplyIsSentAreAnInjection(_ sides: Sides, _ style: Style) async throws {
        let rehearsal = try Rehearsal(sides)
        let (kernel, victim) = try FullKernel.make(style)
        async let failing = StyledSocket.refusal {
            try await victim.acceptStartTLS(as: sides.server, TestCertificates.server())
        }
        try await rehearsal.lead(kernel.peer, asClient: true)
        try await victim.socket.turn("the dialogue has begun") { $0.upgrade?.state.dialogue != nil }
        let count = kernel.fill()
        try kernel.peer.send(rehearsal.last(ofClient: true))
        let isMySQL = sides.testDescription == "MySQL"
        try await victim.socket.turn("the reply is pending, or the handshake has begun") { connection in
            isMySQL ? connection.upgrade?.state.dialogue == nil : connection.data.channel?.maySend == false
        }
        try kernel.peer.send(Self.injected)
        guard !isMySQL else { return try await expectNotTLS(try await failing, from: victim) }
        try await expectInjection(try await failing, into: victim)
        try await kernel.drain(count)
        #expect(!kernel.peer.hasInput)
    }

    @Test(arguments: sides, Style.allCases)
    func bytesThatFollowTheLastReplyAreNotTLS(_ sides: Sides, _ style: Style) async throws {
        let rehearsal = try Rehearsal(sides)
        let (attacker, victim) = try StyledSocket.attacked(style)
        async let failing = StyledSocket.refusal {
            try await victim.acceptStartTLS(as: sides.server, TestCertificates.server())
        }
        try await rehearsal.lead(attacker, asClient: true)
        try attacker.send(rehearsal.last(ofClient: true))
        let answer = try rehearsal.answer(toClient: true)
        #expect(try await attacker.received(exactly: answer.count) == answer)
        // Not every protocol has a reply.
        try await victim.socket.turn("the dialogue is over") { $0.upgrade.map { $0.state.dialogue == nil } ?? false }
        try attacker.send(Self.injected)
        try await expectNotTLS(try await failing, from: victim)
    }
}
