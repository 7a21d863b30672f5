internal import AsyncSockets

/// The types of records that this program looks up.
enum DNSType: UInt16, Sendable, CustomStringConvertible {
    case a = 1
    case ns = 2
    case cname = 5
    case mx = 15
    case aaaa = 28
    case srv = 33
    case tlsa = 52

    var description: String {
        switch self {
        case .a: "A"
        case .ns: "NS"
        case .cname: "CNAME"
        case .mx: "MX"
        case .aaaa: "AAAA"
        case .srv: "SRV"
        case .tlsa: "TLSA"
        }
    }
}

/// A query with one question (RFC 1035, section 4).
struct DNSQuery: Sendable, Equatable {
    let identifier: UInt16
    let name: DNSName
    let type: DNSType

    private static let internet: UInt16 = 1
    /// Recursion desired, and authentic data understood (RFC 6840, section 5.7).
    private static let flags: UInt16 = 0x0120
    /// An OPT record that allows replies of up to 1,232 bytes over UDP (RFC 6891).
    private static let options: [UInt8] = [0, 0, 41, 0x04, 0xD0, 0, 0, 0, 0, 0, 0]

    var bytes: [UInt8] {
        let header = [identifier, Self.flags, 1, 0, 0, 1].flatMap(Self.bytes)
        return header + name.wire + Self.bytes(type.rawValue) + Self.bytes(Self.internet) + Self.options
    }

    private static func bytes(_ number: UInt16) -> [UInt8] { [UInt8(number >> 8), UInt8(truncatingIfNeeded: number)] }

    /// The records in the answer section of a reply to this query.
    ///
    /// Throws if the reply is malformed, belongs to another query, is incomplete, or reports a failure. A
    /// name that does not exist is no failure.
    func reply(_ bytes: [UInt8]) throws(DNSFault) -> DNSReply {
        var reader = DNSReader(bytes)
        let (id, flags) = (try reader.number(), try reader.number())
        let (questions, answers) = (try reader.number(), try reader.number())
        let others = (authority: try reader.number(), additional: try reader.number())
        guard id == identifier, flags & 0xF800 == 0x8000, questions == 1, try reader.name() == name,
            try reader.number() == type.rawValue, try reader.number() == Self.internet
        else {
            throw DNSFault("the reply belongs to another query")
        }
        let (isTruncated, code) = (flags & 0x0200 != 0, flags & 0xF)
        guard !isTruncated else { throw DNSFault("the reply is incomplete") }
        guard code == 0 || code == 3 else { throw DNSFault("the name server reported \(Self.text(ofCode: code))") }
        guard answers <= DNSReply.recordLimit else {
            throw DNSFault("the reply has \(answers) records, but at most \(DNSReply.recordLimit) are accepted")
        }
        var records: [DNSRecord] = []
        for _ in 0..<answers { records.append(try reader.record()) }
        for _ in 0..<others.authority { _ = try reader.extendedCode() }
        for _ in 0..<others.additional {
            let upper = try reader.extendedCode()
            guard upper == 0 else { throw DNSFault("the name server reported the error \(upper << 4 | code)") }
        }
        return DNSReply(isAuthentic: flags & 0x0020 != 0, records: records)
    }

    private static func text(ofCode code: UInt16) -> String {
        switch code {
        case 1: "FORMERR"
        case 2: "SERVFAIL: the query or its DNSSEC validation failed"
        case 4: "NOTIMP"
        case 5: "REFUSED"
        default: "the error \(code)"
        }
    }
}

/// The answer section of a reply.
struct DNSReply: Sendable, Equatable {
    /// Whether the name server has validated the records, or that they do not exist (the flag AD).
    let isAuthentic: Bool
    let records: [DNSRecord]

    static let recordLimit = 100
}

struct DNSRecord: Sendable, Equatable {
    let owner: DNSName
    let data: DNSData
}

/// The data of a record.
enum DNSData: Sendable, Equatable {
    case address
    case alias(DNSName)
    case mailExchanger(preference: UInt16, DNSName)
    case service(priority: UInt16, weight: UInt16, port: UInt16, DNSName)
    case tlsa(TLSARecord)
    /// Data that is not read, such as that of a signature.
    case other
}

/// Why a reply cannot be used.
struct DNSFault: Error, Equatable {
    let message: String

    init(_ message: String) { self.message = message }

    static let malformed = DNSFault("the reply is malformed")
}

/// Reads a message. All reads are within its bounds.
struct DNSReader {
    private let bytes: [UInt8]
    private var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    mutating func number() throws(DNSFault) -> UInt16 {
        let pair = try take(2)
        return UInt16(pair[pair.startIndex]) << 8 | UInt16(pair[pair.startIndex + 1])
    }

    private mutating func take(_ count: Int) throws(DNSFault) -> ArraySlice<UInt8> {
        guard count <= bytes.count - position else { throw .malformed }
        defer { position += count }
        return bytes[position..<position + count]
    }

    /// Reads a name, which may continue at an earlier position (RFC 1035, section 4.1.4). Each position is
    /// before the previous one, so that names end.
    mutating func name() throws(DNSFault) -> DNSName {
        var labels: [[UInt8]] = []
        var (length, limit) = (1, position)
        var end: Int?
        while true {
            let first = Int(try take(1).first ?? 0)
            switch first {
            case 0:
                if let end { position = end }
                return DNSName(labels: labels)
            case 1...63:
                length += first + 1
                guard length <= DNSName.longestName else { throw .malformed }
                labels.append(Array(try take(first)))
            case 0xC0...:
                let target = (first & 0x3F) << 8 | Int(try take(1).first ?? 0)
                guard target < limit else { throw .malformed }
                end = end ?? position
                (position, limit) = (target, target)
            default: throw .malformed
            }
        }
    }

    mutating func record() throws(DNSFault) -> DNSRecord {
        let owner = try name()
        let (type, kind) = (try number(), try number())
        _ = try take(4)
        let count = Int(try number())
        let end = position + count
        guard end <= bytes.count else { throw .malformed }
        let data: DNSData = kind == 1 ? try self.data(DNSType(rawValue: type), count) : .other
        if case .other = data { position = end }
        guard position == end else { throw .malformed }
        return DNSRecord(owner: owner, data: data)
    }

    /// Skips a record of the authority or additional section. Returns the upper eight bits of the error code
    /// if it is an OPT record (RFC 6891, section 6.1.3), otherwise 0.
    mutating func extendedCode() throws(DNSFault) -> UInt16 {
        _ = try name()
        let (type, _, upper) = (try number(), try number(), try number() >> 8)
        _ = try number()
        _ = try take(Int(try number()))
        return type == Self.options ? upper : 0
    }

    private static let options: UInt16 = 41

    private mutating func data(_ type: DNSType?, _ count: Int) throws(DNSFault) -> DNSData {
        switch type {
        case .a, .aaaa:
            guard count == (type == .a ? 4 : 16) else { throw .malformed }
            _ = try take(count)
            return .address
        case .cname: return .alias(try name())
        case .mx: return .mailExchanger(preference: try number(), try name())
        case .srv: return .service(priority: try number(), weight: try number(), port: try number(), try name())
        case .tlsa:
            guard count >= 3 else { throw .malformed }
            let fields = Array(try take(count))
            return .tlsa(
                TLSARecord(
                    usage: .init(rawValue: fields[0]), selector: .init(rawValue: fields[1]),
                    matchingType: .init(rawValue: fields[2]), data: Array(fields.dropFirst(3))))
        case .ns, nil: return .other
        }
    }
}
