import Foundation
import Testing

@testable import SocketTLS

/// The ways to authenticate in the public API, and the resulting internal values.
@Suite struct ProofTests {
    private let rules = TLSCertificateRules(
        pins: [[UInt8](repeating: 1, count: 32)], onlyReportsPins: true, revocationLists: [.file(path: "a")],
        revocationScope: .leaf, acceptsPartialChains: true, isStrict: true, verificationTime: Date(timeIntervalSince1970: 1))
    private let key: TLSPreSharedKey
    private let rawKeys: TLSRawPublicKeys
    private let source: Source
    private let responder = TLSEarlyDataResponder { _ in .afterHandshake }

    final class Source: TLSTicketKeySource {
        let keys: TLSTicketKeys

        init() throws { keys = TLSTicketKeys(current: try TLSTicketKey(bytes: [UInt8](repeating: 1, count: 80))) }
    }

    init() throws {
        key = try PreSharedKeyFixture.key()
        rawKeys = try TLSRawPublicKeys(expectedSHA256: [[UInt8](repeating: 2, count: 32)])
        source = try Source()
    }

    // MARK: - Clients of a server

    /// A case, the resulting certificate request, and the rules.
    private typealias Row = (TLSClients, TLSCertificateRequest, TLSCertificateRules)

    private var none: TLSCertificateRules { TLSCertificateRules() }

    private var clients: [Row] {
        let keys = TLSPreSharedKeys(key)
        return [
            (.anyone, .none, none),
            (.certificates(.required), .required, none),
            (.certificates(.optional, rules), .optional, rules),
            (.certificatesOnRequest(), .onRequest, none),
            (.certificatesOnRequest(rules), .onRequest, rules),
            (.rawPublicKeys(rawKeys), .required, none),
            (.rawPublicKeys(rawKeys, .optional), .optional, none),
            (.rawPublicKeysOrCertificates(rawKeys, .optional, rules), .optional, rules),
            (.preSharedKeys(keys), .none, none),
            (.preSharedKeysOrAnyone(keys), .none, none),
            (.preSharedKeysOrCertificates(keys, .required, rules), .required, rules),
        ]
    }

    private func server(_ ways: TLSClients...) throws -> TLSServerSettings {
        var settings = TLSSettings.server(identity: try .selfSigned(.ed25519))
        for way in ways { settings.clients = way }
        return settings
    }

    @Test func eachWayOfClientsHasItsParts() throws {
        for (way, request, rules) in clients {
            let settings = try server(way)
            #expect(settings.clients == way)
            #expect(settings.values.clientCertificates == request && settings.values.rules == rules, "\(way)")
        }
        #expect(try server().clients == .anyone)
    }

    /// Rules therefore apply only to their own case.
    @Test func nothingIsLeftOverFromTheWayBefore() throws {
        var fresh = try server()
        for (before, _, _) in clients {
            for (way, _, _) in clients {
                var settings = fresh
                (settings.clients, settings.clients) = (before, way)
                fresh.clients = way
                #expect(settings == fresh, "\(before), then \(way)")
                #expect((before == way) == (settings.clients == before))
            }
        }
    }

    /// Tickets, early data and the form of the server's key are separate settings.
    @Test func otherChoicesAreKept() throws {
        var settings = try server()
        settings.sessionTickets = .issued(2, keys: source)
        settings.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 7, responder: responder)
        settings.presentsRawPublicKey = true
        for (way, _, _) in clients {
            settings.clients = way
            #expect(settings.sessionTickets == .issued(2, keys: source) && settings.presentsRawPublicKey, "\(way)")
            #expect(settings.acceptedEarlyData?.maximumBytes == 7 && settings.acceptedEarlyData?.responder == responder)
        }
    }

    // MARK: - The server of a client

    private var servers: [(TLSServerProof, TLSCertificateRules, TLSOCSPStapling)] {
        [
            (.certificates, none, .none),
            (.certificates(rules), rules, .none),
            (.certificates(rules, ocspStapling: .required), rules, .required),
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
