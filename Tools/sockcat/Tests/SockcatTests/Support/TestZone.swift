import AsyncSockets
import Foundation

@testable import SockcatCommands

/// The contents of a name server for tests.
struct TestZone: Sendable {
    /// The records for each question, as "TYPE NAME", with the owner of each record.
    private var answers: [String: [(owner: String, type: DNSType, data: [UInt8])]] = [:]
    /// The questions with unsigned replies.
    private var unsigned: Set<String> = []
    /// The questions to which the server replies with an error.
    private var failing: [String: UInt8] = [:]

    mutating func add(_ type: DNSType, _ name: String, owner: String? = nil, _ data: [UInt8]) {
        answers["\(type) \(name)", default: []].append((owner ?? name, type, data))
    }

    /// Adds an alias to the reply for a type.
    mutating func alias(_ type: DNSType, _ name: String, owner: String? = nil, to target: String) throws {
        answers["\(type) \(name)", default: []].append((owner ?? name, .cname, try Self.wire(target)))
    }

    mutating func unsign(_ type: DNSType, _ name: String) { unsigned.insert("\(type) \(name)") }

    mutating func fail(_ type: DNSType, _ name: String, code: UInt8 = 2) { failing["\(type) \(name)"] = code }

    static func wire(_ name: String) throws -> [UInt8] {
        name.split(separator: ".").flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) } + [0]
    }

    static func tlsa(_ record: TLSARecord) -> [UInt8] {
        [record.usage.rawValue, record.selector.rawValue, record.matchingType.rawValue] + record.data
    }

    var resolver: Resolver { Resolver { try reply(to: $0) } }

    func reply(to query: [UInt8]) throws -> [UInt8] {
        var reader = DNSReader(query)
        let identifier = try reader.number()
        for _ in 0..<5 { _ = try reader.number() }
        let (name, number) = (try reader.name(), try reader.number())
        guard let type = DNSType(rawValue: number) else { throw DNSFault("unknown type") }
        let question = "\(type) \(name)"
        let code = failing[question] ?? (answers[question] == nil ? 3 : 0)
        let flags: [UInt8] = [0x81, (unsigned.contains(question) ? 0x80 : 0xA0) | code]
        let records = failing[question] == nil ? answers[question] ?? [] : []
        var bytes = Self.bytes(identifier) + flags + Self.bytes(1) + Self.bytes(UInt16(records.count)) + [0, 0, 0, 0]
        bytes += name.wire + Self.bytes(number) + Self.bytes(1)
        for record in records {
            bytes += try Self.wire(record.owner) + Self.bytes(record.type.rawValue) + Self.bytes(1) + [0, 0, 0, 60]
            bytes += Self.bytes(UInt16(record.data.count)) + record.data
        }
        return bytes
    }

    static func bytes(_ number: UInt16) -> [UInt8] { [UInt8(number >> 8), UInt8(truncatingIfNeeded: number)] }
}
