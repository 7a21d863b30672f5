import Testing

@testable import StartTLSProtocols

/// What a missing offer of TLS means to clients with different policies.
@Suite struct PolicyTests {
    struct Stripped: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let client: StartTLSClient
        /// The messages of a server, without the offer that an attacker has removed.
        let messages: [String]

        static let all = [
            Stripped(
                testDescription: "SMTP", client: .smtp(name: "c"), messages: ["220 m\r\n", "250-m\r\n250 AUTH PLAIN\r\n"]),
            Stripped(testDescription: "IMAP", client: .imap, messages: ["* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN] m\r\n"]),
            Stripped(
                testDescription: "XMPP between servers",
                client: .xmppServerToServer(domain: "b.example", origin: "a.example"),
                messages: [
                    "<stream:stream xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
                        + "<stream:features><dialback xmlns='urn:xmpp:features:dialback'/></stream:features>"
                ]),
            Stripped(testDescription: "PostgreSQL", client: .postgres, messages: ["N"]),
        ]

        func error(_ policy: StartTLSPolicy) throws -> StartTLSError? {
            var dialogue = try StartTLSDialogue(client: client, policy: policy)
            _ = dialogue.start()
            do throws(StartTLSError) {
                for message in messages { _ = try dialogue.receive(Array(message.utf8)) }
            } catch {
                return error
            }
            return nil
        }
    }

    @Test(arguments: Stripped.all) func aPromisedOfferThatIsMissingWasRemoved(_ stripped: Stripped) throws {
        let error = try #require(try stripped.error(.promised))
        #expect(error.code == .offerRemoved && !error.allowsPlaintext)
        #expect("\(error)".contains("has TLSA records, so it supports TLS, but the server does not offer TLS"))
    }

    @Test(arguments: Stripped.all) func onlyAnOpportunisticPolicyAllowsPlaintext(_ stripped: Stripped) throws {
        let optional = try #require(try stripped.error(.opportunistic))
        #expect(optional.code == .notOffered && optional.allowsPlaintext)
        let required = try #require(try stripped.error(.required))
        #expect(required.code == .notOffered && !required.allowsPlaintext)
        #expect(try StartTLSDialogue(client: stripped.client).policy == .required)
    }

    @Test func aRefusalIsNoMissingOffer() throws {
        let stripped = Stripped(
            testDescription: "", client: .smtp(name: "c"),
            messages: ["220 m\r\n", "250-m\r\n250 STARTTLS\r\n", "454 not now\r\n"])
        #expect(try stripped.error(.promised)?.code == .refused)
        #expect(try stripped.error(.opportunistic)?.allowsPlaintext == true)
    }

    /// The server serves no client at present, with or without TLS.
    @Test func aRefusedConnectionDoesNotAllowPlaintext() throws {
        let busy = Stripped(testDescription: "", client: .smtp(name: "c"), messages: ["554 no service\r\n"])
        let error = try #require(try busy.error(.opportunistic))
        #expect(error.code == .refused && !error.allowsPlaintext)
    }

    /// The message of the protocol is not lost.
    @Test func aPromisedOfferKeepsTheReason() throws {
        let old = Stripped(
            testDescription: "", client: .irc,
            messages: [":s 421 x STARTTLS :Unknown command\r\n"])
        #expect(try old.error(.promised)?.message.contains("connect with TLS from the start") == true)
    }

    @Test(arguments: [StartTLSPolicy.required, .opportunistic, .promised])
    func anInjectionNeverAllowsPlaintext(_ policy: StartTLSPolicy) throws {
        let injected = Stripped(
            testDescription: "", client: .smtp(name: "c"),
            messages: ["220 m\r\n", "250-m\r\n250 STARTTLS\r\n", "220 go\r\n250 injected\r\n"])
        let error = try #require(try injected.error(policy))
        #expect(error.code == .injected && !error.allowsPlaintext)
    }
}
