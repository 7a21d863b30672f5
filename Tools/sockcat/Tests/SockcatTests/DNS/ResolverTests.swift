import AsyncSockets
import Foundation
import Synchronization
import Testing

@testable import SockcatCommands

/// The resolver, and the rules for the owners of TLSA records.
@Suite(.timeLimit(.minutes(2))) struct ResolverTests {
    let record = TLSARecord(usage: .daneEE, selector: .publicKey, matchingType: .sha256, data: [UInt8](repeating: 7, count: 32))

    /// A zone with hosts that have signed addresses.
    private func zone(_ hosts: String...) -> TestZone {
        var zone = TestZone()
        for host in hosts { zone.add(.a, host, [127, 0, 0, 1]) }
        return zone
    }

    private func lookUp(_ zone: TestZone, _ host: String = "mx.example") async throws -> TLSALookUp {
        try await zone.resolver.tlsaRecords(of: DNSName(host), port: 25, isDatagram: false)
    }

    @Test func signedRecordsAreFound() async throws {
        var zone = zone("mx.example")
        zone.add(.tlsa, "_25._tcp.mx.example", TestZone.tlsa(record))
        #expect(try await lookUp(zone, "MX.example.") == .found(ServerRecords(baseDomain: "mx.example", records: [record])))
    }

    @Test func missingRecordsAreNotUnsignedRecords() async throws {
        var zone = zone("mx.example")
        #expect(try await lookUp(zone) == .none(baseDomain: "mx.example"))
        zone.add(.tlsa, "_25._tcp.mx.example", TestZone.tlsa(record))
        zone.unsign(.tlsa, "_25._tcp.mx.example")
        #expect(try await lookUp(zone) == .unsigned)
    }

    /// The records of a host without signed addresses are not looked up: the name server would not reply.
    @Test func unsignedAddressesHaveNoRecords() async throws {
        for type in [DNSType.a, .aaaa] {
            var zone = zone("mx.example")
            zone.unsign(type, "mx.example")
            zone.fail(.tlsa, "_25._tcp.mx.example")
            #expect(try await lookUp(zone) == .unsigned)
        }
    }

    /// An attacker can prevent each reply.
    @Test(arguments: [
        ("A mx.example", 2), ("AAAA mx.example", 5), ("TLSA _25._tcp.mx.example", 2), ("TLSA _25._tcp.mx.example", 1),
    ])
    func aFailureIsNeverAMissingRecord(question: String, code: UInt8) async throws {
        var zone = zone("mx.example")
        let parts = question.split(separator: " ").map(String.init)
        zone.fail(parts[0] == "A" ? .a : parts[0] == "AAAA" ? .aaaa : .tlsa, parts[1], code: code)
        let error = await #expect(throws: Failure.self) { try await lookUp(zone) }
        #expect(error?.message.hasPrefix("the look-up of \(parts[0]) records for \"\(parts[1])\" failed: ") == true)
    }

    /// RFC 7671, section 7.
    @Test func theTargetOfASignedAliasOwnsTheRecords() async throws {
        var zone = TestZone()
        for type in [DNSType.a, .aaaa] { try zone.alias(type, "mx.example", to: "real.example") }
        zone.add(.a, "mx.example", owner: "real.example", [127, 0, 0, 1])
        zone.add(.tlsa, "_25._tcp.mx.example", TestZone.tlsa(record))
        let own = ServerRecords(baseDomain: "mx.example", records: [record])
        #expect(try await lookUp(zone) == .found(own), "the alias itself, if its target has no records")
        zone.add(.tlsa, "_25._tcp.real.example", TestZone.tlsa(record))
        let target = ServerRecords(baseDomain: "real.example", records: [record], additionalNames: ["mx.example"])
        #expect(try await lookUp(zone) == .found(target))
        for type in [DNSType.a, .aaaa] { zone.unsign(type, "mx.example") }
        zone.add(.cname, "mx.example", try TestZone.wire("real.example"))
        #expect(try await lookUp(zone) == .found(own), "the alias is signed, but its target is not")
        zone.unsign(.cname, "mx.example")
        #expect(try await lookUp(zone) == .unsigned)
    }

    /// The records may be an alias of records elsewhere.
    @Test func recordsMayBeAnAlias() async throws {
        var zone = zone("mx.example")
        try zone.alias(.tlsa, "_25._tcp.mx.example", to: "_dane.example")
        zone.add(.tlsa, "_25._tcp.mx.example", owner: "_dane.example", TestZone.tlsa(record))
        #expect(try await lookUp(zone) == .found(ServerRecords(baseDomain: "mx.example", records: [record])))
    }

    @Test func aliasesEnd() async throws {
        var circle = TestZone()
        try circle.alias(.a, "mx.example", to: "b.example")
        try circle.alias(.a, "mx.example", owner: "b.example", to: "mx.example")
        await #expect(throws: Failure.self) { try await lookUp(circle) }
        var fork = TestZone()
        try fork.alias(.a, "mx.example", to: "b.example")
        try fork.alias(.a, "mx.example", to: "c.example")
        await #expect(throws: Failure.self) { try await lookUp(fork) }
    }

    /// Records of other names in the reply do not count.
    @Test func otherNamesInAReplyDoNotCount() async throws {
        var zone = zone("mx.example")
        zone.add(.tlsa, "_25._tcp.mx.example", owner: "_25._tcp.other.example", TestZone.tlsa(record))
        #expect(try await lookUp(zone) == .none(baseDomain: "mx.example"))
    }

    /// Without validation, every zone appears unsigned. The root zone is signed.
    @Test func aNameServerThatDoesNotValidateIsAnError() async throws {
        var zone = zone("mx.example")
        for type in [DNSType.a, .aaaa] { zone.unsign(type, "mx.example") }
        #expect(try await lookUp(zone) == .unsigned)
        zone.unsign(.ns, ".")
        let error = await #expect(throws: Failure.self) { try await lookUp(zone) }
        #expect(
            error?.message == "the look-up of A records for \"mx.example\" failed: "
                + "the name server in /etc/resolv.conf does not validate DNSSEC")
        #expect(error?.status == .connectFailed && error?.advice?.contains("dig +adflag . SOA") == true)
        zone.fail(.ns, ".")
        await #expect(throws: Failure.self) { try await lookUp(zone) }
    }

    @Test func aNameServerIsTestedOnce() async throws {
        var zone = zone("mx.example")
        for type in [DNSType.a, .aaaa, .tlsa] { zone.unsign(type, "mx.example") }
        let queries = Mutex(0)
        let resolver = Resolver { [zone] query in
            queries.withLock { $0 += 1 }
            return try zone.reply(to: query)
        }
        for type in [DNSType.a, .aaaa, .tlsa] { _ = try await resolver.answer(DNSName("mx.example"), type) }
        #expect(queries.withLock { $0 } == 4)
    }

    @Test func theChoiceRequiresRecords() async throws {
        let (zone, endpoint) = (zone("mx.example"), Endpoint.host("mx.example", port: 25))
        let error = await #expect(throws: Failure.self) {
            try await DANEChoice.lookUp.records(of: endpoint, serverName: nil, isDatagram: false, resolver: zone.resolver)
        }
        #expect(error?.status == .untrusted && error?.message == "there are no TLSA records for port 25 of \"mx.example\"")
    }

    // MARK: - The resolver of the C library

    private func withNameServer<Result: Sendable>(
        _ zone: TestZone, _ body: (Resolver) async throws -> Result
    ) async throws -> Result {
        let listener = try DatagramListener(port: 0, interface: "127.0.0.1")
        let running = Task {
            try await listener.run(onError: { _, _ in }) { client in
                for try await query in client.datagrams { try await client.send(Data(zone.reply(to: Array(query.data)))) }
            }
        }
        defer { running.cancel() }
        return try await body(.ofCLibrary(port: listener.localPort, seconds: 30))
    }

    @Test func theCLibraryKeepsTheFlagOfAServerOnThisMachine() async throws {
        var zone = zone("mx.example")
        zone.unsign(.aaaa, "mx.example")
        try await withNameServer(zone) { resolver in
            let (first, second) = (
                try await resolver.answer(DNSName("mx.example"), .a), try await resolver.answer(DNSName("mx.example"), .aaaa)
            )
            #expect(first.isAuthentic && first.records == [.address])
            #expect(!second.isAuthentic && second.records == [])
        }
    }

    /// The C library cannot be interrupted.
    @Test func nobodyWaitsForASilentNameServerAfterTheDeadline() async throws {
        let silent = try DatagramListener(port: 0, interface: "127.0.0.1")
        let resolver = Resolver.ofCLibrary(port: silent.localPort, seconds: 60)
        let start = ContinuousClock.now
        let error = await #expect(throws: Failure.self) {
            try await Resolver.within(.milliseconds(200)) { try await resolver.answer(DNSName("mx.example"), .a) }
        }
        #expect(error?.status == .timedOut && ContinuousClock.now - start < .seconds(30))
    }

    @Test func theCLibraryReportsFailures() async throws {
        var zone = TestZone()
        zone.fail(.tlsa, "_25._tcp.mx.example")
        try await withNameServer(zone) { resolver in
            let error = await #expect(throws: Failure.self) { try await resolver.answer(DNSName("_25._tcp.mx.example"), .tlsa) }
            #expect(error?.message.contains("gave a valid reply") == true, "\(error?.message ?? "")")
            #expect(error?.status == .connectFailed && error?.advice?.contains("DNSSEC signatures") == true)
        }
    }
}
