import Foundation
import Testing

@testable import SocketTLS

/// The ways to prove who one is, as a program writes them, and what the code below the settings gets.
@Suite struct ProofTests {
    private let rules = TLSCertificateRules(
        pins: [[UInt8](repeating: 1, count: 32)], onlyReportsPins: true, revocationLists: [.file(path: "a")],
        revocationScope: .leaf, acceptsPartialChains: true, isStrict: true, verificationTime: Date(timeIntervalSince1970: 1))
    private let key: TLSPreSharedKey
    private let rawKeys: TLSRawPublicKeys
    private let source: Source
    private let responder = TLSEarlyDataResponder { _ in .afterHandshake }

    private final class Source: TLSTicketKeySource {
        let keys: TLSTicketKeys

        init() throws { keys = TLSTicketKeys(current: try TLSTicketKey(bytes: [UInt8](repeating: 1, count: 80))) }
    }

    init() throws {
        key = try PreSharedKeyFixture.key()
        rawKeys = try TLSRawPublicKeys(expectedSHA256: [[UInt8](repeating: 2, count: 32)], showsOwnKey: true)
        source = try Source()
    }

    // MARK: - Clients of a server

    /// A way, and what it leaves: the request, the rules, the number of tickets, and whether it takes early
    /// data.
    private typealias Row = (TLSClients, TLSCertificateRequest, TLSCertificateRules, Int, Bool)

    private var none: TLSCertificateRules { TLSCertificateRules() }

    private var clients: [Row] {
        let (keys, tickets) = (TLSPreSharedKeys(key), TLSSessionTickets.issued(2, keys: source))
        return [
            (.anyone, .none, none, 0, false),
            (.anyone(tickets: tickets), .none, none, 2, false),
            (.anyoneWithEarlyData(upTo: 7, tickets: 3, responder: responder), .none, none, 3, true),
            (.certificates(.required), .required, none, 0, false),
            (.certificates(.optional, rules), .optional, rules, 0, false),
            (.certificates(.required, rules, tickets: tickets), .required, rules, 2, false),
            (.certificatesOnRequest(), .onRequest, none, 0, false),
            (.certificatesOnRequest(rules, tickets: .issued(1)), .onRequest, rules, 1, false),
            (.anyoneWithOwnRawPublicKey, .none, none, 0, false),
            (.certificatesWithOwnRawPublicKey(.optional, rules), .optional, rules, 0, false),
            (.rawPublicKeys(rawKeys), .required, none, 0, false),
            (.rawPublicKeys(rawKeys, .optional), .optional, none, 0, false),
            (.rawPublicKeysOrCertificates(rawKeys, .optional, rules), .optional, rules, 0, false),
            (.preSharedKeys(keys), .none, none, 0, false),
            (.preSharedKeysOrAnyone(keys, tickets: tickets), .none, none, 2, false),
            (.preSharedKeysOrCertificates(keys, .required, rules, tickets: tickets), .required, rules, 2, false),
        ]
    }

    private func server(_ ways: TLSClients...) throws -> TLSServerSettings {
        var settings = TLSSettings.server(identity: try .selfSigned(.ed25519))
        for way in ways { settings.clients = way }
        return settings
    }

    @Test func eachWayOfClientsHasItsParts() throws {
        for (way, request, rules, count, isEarly) in clients {
            let settings = try server(way)
            #expect(settings.clients == way)
            let values = settings.values
            #expect(values.clientCertificates == request && values.rules == rules, "\(way)")
            #expect(values.tickets.count == count && (values.earlyDataAcceptance != nil) == isEarly, "\(way)")
        }
        #expect(try server().clients == .anyone)
    }

    /// So rules, tickets and early data go with the way that they were written for.
    @Test func nothingIsLeftOverFromTheWayBefore() throws {
        var fresh = try server()
        for (before, _, _, _, _) in clients {
            for (way, _, _, _, _) in clients {
                var settings = fresh
                (settings.clients, settings.clients) = (before, way)
                fresh.clients = way
                #expect(settings == fresh, "\(before), then \(way)")
                #expect((before == way) == (settings.clients == before))
            }
        }
    }

    // MARK: - The server of a client

    private var servers: [(TLSServerProof, TLSCertificateRules, TLSOCSPStapling)] {
        [
            (.certificates, none, .none),
            (.certificates(rules), rules, .none),
            (.certificates(rules, ocspStapling: .required), rules, .required),
            (.certificatesWithOwnRawPublicKey(), none, .none),
            (.certificatesWithOwnRawPublicKey(rules, ocspStapling: .requested), rules, .requested),
            (.rawPublicKeys(rawKeys), none, .none),
            (.rawPublicKeysOrCertificates(rawKeys, rules, ocspStapling: .required), rules, .required),
            (.preSharedKey(key), none, .none),
            (.preSharedKeyOrCertificates(key, rules, ocspStapling: .required), rules, .required),
        ]
    }

    @Test func eachProofOfAServerHasItsParts() {
        for (proof, rules, stapling) in servers {
            var settings = TLSSettings.client(serverName: "a")
            settings.proof = proof
            #expect(settings.proof == proof)
            #expect(settings.values.rules == rules && settings.values.ocspStapling == stapling, "\(proof)")
        }
        #expect(TLSSettings.client.proof == .certificates)
    }

    @Test func nothingIsLeftOverFromTheProofBefore() {
        for (before, _, _) in servers {
            for (proof, _, _) in servers {
                var (settings, fresh) = (TLSSettings.client, TLSSettings.client)
                (settings.proof, settings.proof) = (before, proof)
                fresh.proof = proof
                #expect(settings == fresh, "\(before), then \(proof)")
                #expect((before == proof) == (settings.proof == before))
            }
        }
    }
}
