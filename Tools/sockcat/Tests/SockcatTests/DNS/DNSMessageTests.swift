import AsyncSockets
import Foundation
import Testing

@testable import SockcatCommands

@Suite struct DNSMessageTests {
    private let query: DNSQuery
    private let reply: [UInt8]

    init() throws {
        query = DNSQuery(identifier: 0x1234, name: try DNSName("example.org"), type: .mx)
        var zone = TestZone()
        try zone.alias(.mx, "example.org", to: "b.example")
        zone.add(.mx, "example.org", owner: "b.example", [0, 10] + (try TestZone.wire("mx.example.org")))
        reply = try zone.reply(to: query.bytes)
    }

    @Test func aReplyIsRead() throws {
        let read = try query.reply(reply)
        #expect(read.isAuthentic)
        #expect(
            read.records.map(\.data) == [
                .alias(try DNSName("b.example")), .mailExchanger(preference: 10, try DNSName("mx.example.org")),
            ])
    }

    /// A truncated reply, or a reply with wrong counts or lengths, is never read as a reply with fewer
    /// records.
    @Test func everyCutIsAnError() {
        for count in 0..<reply.count { #expect(throws: DNSFault.self) { try query.reply(Array(reply.prefix(count))) } }
    }

    /// No change of one byte makes the reader trap.
    @Test func everyChangedByteIsReadOrRejected() {
        var rejected = 0
        for position in reply.indices {
            for value in [0x00, 0x3F, 0x40, 0xC0, 0xFF] as [UInt8] {
                var changed = reply
                changed[position] = value
                do { _ = try query.reply(changed) } catch { rejected += 1 }
            }
        }
        #expect(rejected > reply.count)
    }

    @Test(arguments: [
        (0, 0x99 as UInt8), (2, 0x01), (2, 0x83), (3, 0xA2), (3, 0xA5), (5, 0x02), (13, 0x78), (26, 0x10),
    ]) func aReplyToAnotherQueryOrWithAFailureIsRejected(position: Int, value: UInt8) {
        var changed = reply
        changed[position] = value
        #expect(throws: DNSFault.self) { try query.reply(changed) }
    }

    /// The upper bits of the error code are in the OPT record (RFC 6891, section 6.1.3).
    @Test(arguments: [(0, nil), (1, "the name server reported the error 16"), (0xFF, "the name server reported the error 4080")])
    func theExtendedErrorIsRead(upper: UInt8, message: String?) throws {
        var extended = reply
        extended[9] = 1
        extended[11] = 2
        extended += try TestZone.wire("ns.example") + [0, 1, 0, 1, 9, 0, 0, 60, 0, 4, 127, 0, 0, 1]
        extended += try TestZone.wire("ns.example") + [0, 1, 0, 1, 9, 0, 0, 60, 0, 4, 127, 0, 0, 1]
        extended += [0, 0, 41, 4, 0xD0, upper, 0, 0, 0, 0, 0]
        do {
            #expect(try query.reply(extended).records.count == 2 && message == nil)
        } catch {
            #expect(error == message.map(DNSFault.init))
        }
        for count in reply.count..<extended.count {
            #expect(throws: DNSFault.self) { try query.reply(Array(extended.prefix(count))) }
        }
    }

    @Test func namesThatDoNotEndAreRejected() {
        for name in [[0xC0, 0x00], [0xC0, 0x02], [1, 97, 0xC0, 0x00], [0xC0, 0xFF], [0x80], [64]] as [[UInt8]] {
            var reader = DNSReader(name)
            #expect(throws: DNSFault.self) { try reader.name() }
        }
        var long = DNSReader((0..<8).flatMap { _ in [UInt8(32)] + [UInt8](repeating: 97, count: 32) } + [0])
        #expect(throws: DNSFault.self) { try long.name() }
    }

    @Test func namesAreComparedWithoutCase() throws {
        #expect(try DNSName("EXAMPLE.org.") == DNSName("example.ORG"))
        #expect(try DNSName("example.org").prefixed(by: "_25", "_tcp").description == "_25._tcp.example.org")
    }

    /// The DNS may contain any bytes.
    @Test func namesOfNoHostAreShownWithEscapes() {
        let name = DNSName(labels: [Array("a.b".utf8), [0x1B, 0x0A], Array("c\"".utf8)])
        #expect(name.description == "a\\.b.\\027\\010.c\\\"" && name.hostName == nil)
        for labels in [[], [[0x2A], Array("org".utf8)], [Array("192".utf8), Array("1".utf8)]] as [[[UInt8]]] {
            #expect(DNSName(labels: labels).hostName == nil)
        }
    }

    @Test(arguments: [
        "", ".", "*.example.org", "192.0.2.1", "::1", "a..b", "bücher.example", "a b", String(repeating: "a.", count: 127) + "a",
    ])
    func otherTextsAreNoDomains(text: String) {
        #expect(throws: Failure.self) { try DNSName(text) }
    }
}
