import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

/// The servers of a domain, and what the DNS says about them.
@Suite struct ServiceDomainTests {
    let record = TLSARecord(usage: .daneEE, selector: .publicKey, matchingType: .sha256, data: [UInt8](repeating: 7, count: 32))

    private func mx(_ preference: UInt8, _ host: String) throws -> [UInt8] { [0, preference] + (try TestZone.wire(host)) }

    private func srv(_ priority: UInt8, _ weight: UInt8, _ port: UInt8, _ host: String) throws -> [UInt8] {
        [0, priority, 0, weight, 0, port] + (try TestZone.wire(host))
    }

    private func servers(_ domain: ServiceDomain, _ zone: TestZone) async throws -> [ServerTarget] {
        try await domain.servers(zone.resolver).compactMap { if case .server(let target) = $0 { target } else { nil } }
    }

    @Test func mailServersAreSortedByPreference() async throws {
        var zone = TestZone()
        for (rank, host) in [(20, "b.example"), (5, "c.example"), (20, "a.example")] {
            zone.add(.mx, "example.org", try mx(UInt8(rank), host))
        }
        let found = try await servers(ServiceDomain(mail: "example.org", startTLS: nil), zone)
        #expect(found.map(\.description) == ["c.example:25 (smtp)", "a.example:25 (smtp)", "b.example:25 (smtp)"])
        #expect(found.first?.origin == ServerOrigin(try DNSName("example.org"), .mailExchanger(preference: 5), true))
        #expect(found.first?.expectedName == "c.example")
        zone.unsign(.mx, "example.org")
        #expect(
            try await servers(ServiceDomain(mail: "example.org", startTLS: nil), zone).allSatisfy { $0.origin?.isSigned == false }
        )
    }

    /// RFC 5321, section 5.1.
    @Test func aDomainWithoutMXRecordsReceivesItsMail() async throws {
        let found = try await servers(ServiceDomain(mail: "example.org", startTLS: nil), TestZone())
        #expect(found.map(\.description) == ["example.org:25 (smtp)"] && found.first?.origin?.report.record == "no MX record")
    }

    @Test func servicesHaveTheirProtocols() async throws {
        var zone = TestZone()
        for service in ["xmpp-server", "imaps", "submission"] {
            zone.add(.srv, "_\(service)._tcp.example.org", try srv(1, 0, 9, "a.example"))
            zone.add(.srv, "_\(service)._tcp.example.org", try srv(0, 1, 8, "b.example"))
            zone.add(.srv, "_\(service)._tcp.example.org", try srv(0, 2, 7, "c.example"))
        }
        for (service, startTLS) in [("xmpp-server", StartTLSName.xmppServer), ("_IMAPS", nil), ("submission", .smtp)] {
            let found = try await servers(ServiceDomain(service: service, domain: "example.org", startTLS: nil), zone)
            #expect(
                found.map(\.endpoint) == [.host("c.example", port: 7), .host("b.example", port: 8), .host("a.example", port: 9)])
            #expect(found.allSatisfy { $0.startTLS == startTLS && $0.expectedName == "example.org" })
            #expect(found.first?.origin?.report.record == "SRV 0 2")
        }
    }

    @Test func aDomainMayHaveNoServer() async throws {
        var zone = TestZone()
        zone.add(.mx, "example.org", try mx(0, ""))
        zone.add(.srv, "_imaps._tcp.example.org", try srv(0, 0, 0, ""))
        let services = [
            (try ServiceDomain(mail: "example.org", startTLS: nil), "\"example.org\" accepts no mail"),
            (try ServiceDomain(service: "imaps", domain: "example.org", startTLS: nil), "does not provide the service"),
            (try ServiceDomain(service: "imap", domain: "example.org", startTLS: nil), "there are no SRV records"),
        ]
        for (domain, message) in services {
            let error = await #expect(throws: Failure.self) { try await domain.servers(zone.resolver) }
            #expect(error?.message.contains(message) == true && error?.status == .connectFailed)
        }
    }

    /// The DNS may contain any name, and any number of servers.
    @Test func otherNamesAndTooManyServersAreErrors() async throws {
        var zone = TestZone()
        zone.add(.mx, "example.org", [0, 1, 3, 0x1B, 0x5B, 0x41, 0])
        let found = try await ServiceDomain(mail: "example.org", startTLS: nil).servers(zone.resolver)
        guard case .unresolved(_, let failure) = try #require(found.first) else { throw Failure("the name is a host's") }
        #expect(failure.message == "a record of \"example.org\" names \"\\027[a\", which is not a host name")
        for number in 0..<51 { zone.add(.mx, "many.example", try mx(1, "a\(number).example")) }
        await #expect(throws: Failure.self) {
            try await ServiceDomain(mail: "many.example", startTLS: nil).servers(zone.resolver)
        }
    }

    /// RFC 2782: only a single record with the target "." means that there is no service.
    @Test func aRecordWithoutServerHidesNoOther() async throws {
        var zone = TestZone()
        for (host, port) in [("", 1), ("a.example", 0), ("b.example", 9)] as [(String, UInt8)] {
            zone.add(.srv, "_imaps._tcp.example.org", try srv(0, 0, port, host))
        }
        zone.add(.srv, "_imap._tcp.example.org", try srv(0, 0, 0, "a.example"))
        let found = try await ServiceDomain(service: "imaps", domain: "example.org", startTLS: nil).servers(zone.resolver)
        let failures = found.compactMap { if case .unresolved(_, let failure) = $0 { failure.message } else { nil } }
        #expect(
            failures == [
                "a record of \"example.org\" names \".\", which is not a host name",
                "a record of \"example.org\" names \"a.example\" without a port",
            ])
        #expect(found.count == 3)
        guard case .server(let server) = found.last else { throw Failure("the server is hidden") }
        #expect(server.endpoint == .host("b.example", port: 9))
        let single = try await ServiceDomain(service: "imap", domain: "example.org", startTLS: nil).servers(zone.resolver)
        guard case .unresolved = single.first else { throw Failure("the record has no port") }
    }

    @Test func aFailedLookUpIsNoEmptyDomain() async throws {
        var zone = TestZone()
        zone.fail(.mx, "example.org")
        await #expect(throws: Failure.self) { try await ServiceDomain(mail: "example.org", startTLS: nil).servers(zone.resolver) }
    }

    // MARK: - TLSA records

    private func target(_ origin: ServerOrigin?, _ port: UInt16 = 25) -> ServerTarget {
        ServerTarget(endpoint: .host("mx.example", port: port), startTLS: .smtp, origin: origin)
    }

    private func zone(_ records: [TLSARecord]) -> TestZone {
        var zone = TestZone()
        zone.add(.a, "mx.example", [127, 0, 0, 1])
        for record in records { zone.add(.tlsa, "_25._tcp.mx.example", TestZone.tlsa(record)) }
        return zone
    }

    private func evidence(_ zone: TestZone, _ origin: ServerOrigin?, _ choice: DANEChoice = .none) async throws -> DANEEvidence {
        try await DANEEvidence.of(target(origin), choice, within: .seconds(60), resolver: zone.resolver)
    }

    /// RFC 7672, sections 3.1.3 and 3.2.2.
    @Test func aMailServerMayHaveTheNameOfTheDomain() async throws {
        let domain = try DNSName("example.org")
        let signed = try await evidence(zone([record]), ServerOrigin(domain, .mailExchanger(preference: 10), true))
        #expect(signed.records?.baseDomain == "mx.example" && signed.records?.additionalNames == ["example.org"])
        #expect(signed.records?.usesPKIXRecords == false && signed.problems == [])
        let unsigned = try await evidence(zone([record]), ServerOrigin(domain, .mailExchanger(preference: 10), false))
        #expect(unsigned.records?.records == [record] && unsigned.problems.map(\.code) == [.unsignedOrigin])
    }

    /// An attacker can replace the server, whether or not the server has TLSA records.
    @Test func everyUnsignedMailServerIsReported() async throws {
        var (unsigned, failing) = (zone([record]), zone([record]))
        unsigned.unsign(.a, "mx.example")
        failing.fail(.tlsa, "_25._tcp.mx.example")
        let cases: [(TestZone, DANEReport.Status, [Problem.Code])] = [
            (zone([]), .noRecords, [.unsignedOrigin]), (unsigned, .unsigned, [.unsignedOrigin]),
            (failing, .lookUpFailed, [.tlsaLookUpFailed, .unsignedOrigin]),
        ]
        for record in [.mailExchanger(preference: 10), .mailDomain] as [ServerOrigin.Record] {
            let origin = ServerOrigin(try DNSName("example.org"), record, false)
            for (zone, status, problems) in cases {
                let found = try await evidence(zone, origin)
                #expect(found.report?.status == status && found.problems.map(\.code) == problems)
                #expect(found.problems.last?.severity == .warning)
            }
            let required = try await evidence(zone([self.record]), origin, .lookUp)
            #expect(required.records == nil && required.report?.status == .unsigned && !required.permitsTrust)
            #expect(required.problems.map(\.code) == [.noTLSARecords])
        }
    }

    @Test func anAddressHasNoRecords() async throws {
        for endpoint in [Endpoint.host("192.0.2.1", port: 25), .unix("/socket")] {
            let target = ServerTarget(endpoint: endpoint)
            let found = try await DANEEvidence.of(target, .lookUp, within: .seconds(60), resolver: TestZone().resolver)
            #expect(found.report?.status == .noRecords && found.problems.map(\.code) == [.noTLSARecords])
        }
    }

    /// RFC 7673, section 3.1.
    @Test func recordsOfAnUnsignedServiceDoNotCount() async throws {
        let origin = ServerOrigin(try DNSName("example.org"), .service(priority: 0, weight: 0), false)
        let found = try await evidence(zone([record]), origin)
        #expect(found.records == nil && found.report?.status == .unsigned && found.problems == [])
        #expect(try await evidence(zone([record]), origin, .lookUp).problems.map(\.code) == [.noTLSARecords])
    }

    @Test func onlyTheUserRequiresRecords() async throws {
        let origin = ServerOrigin(try DNSName("example.org"), .mailExchanger(preference: 10), true)
        let optional = try await evidence(zone([]), origin)
        #expect(optional.report?.status == .noRecords && optional.problems == [])
        #expect(try await evidence(zone([]), origin, .lookUp).problems.map(\.code) == [.noTLSARecords])
        #expect(try await evidence(zone([record]), nil).report == nil, "the user named the host")
        #expect(try await evidence(zone([record]), nil, .lookUp).records?.records == [record])
    }

    @Test func aFailedLookUpIsAProblem() async throws {
        var zone = zone([record])
        zone.fail(.tlsa, "_25._tcp.mx.example")
        let found = try await evidence(zone, ServerOrigin(try DNSName("example.org"), .mailExchanger(preference: 10), true))
        #expect(found.records == nil && found.report?.status == .lookUpFailed)
        #expect(found.problems.map(\.code) == [.tlsaLookUpFailed] && Assessment.status(of: found.problems) == .untrusted)
    }

    @Test(arguments: [
        ("--srv xmpp-server", "--srv takes a service and a domain"), ("--mx 192.0.2.1", "is not a domain name"),
        ("--srv 'x y' example.org", "\"x y\" is not a service"),
        ("--mx example.org --tlsa '3 1 1 ab'", "apply to a single server"),
        ("--mx example.org --sni a.example", "apply to a single server"),
        ("--dane /dev/null", "\"/dev/null\" is a file"), ("--tlsa '3 1 1 ab' /dev/null", "\"/dev/null\" is a file"),
        ("--tlsa '3 1 1 ab' a.example:1 b.example:1", "applies to a single server"),
        ("--tlsa '3 1 1 ab' --hosts hosts", "applies to a single server"),
    ]) func mistakesAreExplained(options: String, message: String) async throws {
        let folder = try TestFolder()
        try folder.write("a.example:1\n", to: "hosts")
        let outcome = try await SockcatProcess.run("inspect \(options)", in: folder)
        #expect(outcome.status == ExitStatus.usage.rawValue && outcome.errors.contains(message), "\(outcome.errors)")
    }
}
