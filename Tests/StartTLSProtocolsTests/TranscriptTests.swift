import StartTLSProtocols
import Testing

@Suite struct TranscriptTests {
    @Test(arguments: Transcript.all) func theDialogueLeadsToTLS(_ transcript: Transcript) throws {
        let (sent, surplus) = try transcript.run { [$0] }
        #expect(sent == transcript.expected)
        #expect(surplus == transcript.surplus)
    }

    @Test(arguments: Transcript.all) func segmentsOfOneByteMakeNoDifference(_ transcript: Transcript) throws {
        let (sent, surplus) = try transcript.run(bytewise)
        #expect(sent == transcript.expected)
        // TLS starts with the last byte of the last message, or with the first byte of TLS.
        let isLate = surplus?.count ?? 0 <= min(transcript.surplus.count, 1)
        #expect(surplus != nil && isLate)
    }

    @Test(arguments: Transcript.all) func segmentsMayEndAnywhere(_ transcript: Transcript) throws {
        let longest = transcript.peerTurns.map(\.count).max() ?? 0
        for end in 1..<max(longest, 2) {
            let (sent, surplus) = try transcript.run { [Array($0.prefix(end)), Array($0.dropFirst(end))] }
            #expect(sent == transcript.expected, "split after \(end) bytes")
            #expect(surplus != nil)
        }
    }

    /// Clients may send commands without waiting for replies, up to the one that starts TLS.
    @Test(arguments: Transcript.all.filter { !$0.isClient && !$0.name.contains("PostgreSQL") })
    func aServerAcceptsPipelinedCommands(_ transcript: Transcript) throws {
        var dialogue = try transcript.dialogue()
        guard case .send(let greeting) = dialogue.start() else { return #expect(transcript.turns.isEmpty) }
        let step = try dialogue.receive(transcript.peerTurns.flatMap { $0 })
        #expect(
            step
                == .startTLS(
                    sending: Array(transcript.expected.flatMap { $0 }.dropFirst(greeting.count)),
                    receivedTLSBytes: transcript.surplus))
    }

    @Test func directTLSHasNoDialogue() throws {
        var dialogue = try StartTLSDialogue(client: .postgresDirect)
        #expect(dialogue.start() == .startTLS(sending: [], receivedTLSBytes: []))
        #expect(StartTLSClient.postgresDirect.applicationProtocol == "postgresql")
    }

    /// A program needs the greeting to log in.
    @Test func theGreetingOfMySQLIsReported() async throws {
        let greeting = try await confirmation { confirm in
            let (greetings, continuation) = AsyncStream.makeStream(of: MySQLGreeting.self)
            var dialogue = try StartTLSDialogue(
                client:
                    .mysql(capabilities: 8) { greeting in
                        confirm()
                        continuation.yield(greeting)
                    })
            _ = dialogue.start()
            let step = try dialogue.receive(Transcript.mariaDBGreeting)
            // CLIENT_CONNECT_WITH_DB, which a server reads from this request.
            #expect(step == .startTLS(sending: Transcript.sslRequest(flags: 0x08), receivedTLSBytes: []))
            return await greetings.first { _ in true }
        }
        #expect(greeting?.serverVersion == "5.5.5-10.11.6-MariaDB-0+deb12u1")
        #expect(greeting?.connectionID == 31)
        #expect(greeting?.nonce == Array("abcdefghijklmnopqrst".utf8))
        #expect(greeting?.authenticationMethod == "mysql_native_password")
        #expect(greeting?.capabilities == 0x81FF_FFFE)
        #expect(greeting?.characterSet == 45)
    }
}
