import Glibc
import SocketBuffers

@testable import SocketCore

extension FuzzTarget {
    /// PROXY headers, compared with a reader that follows HAProxy's rules.
    static let proxyHeader = FuzzTarget(name: "proxy-header", maximumLength: 4200) { input in
        let bytes = Array(input.rest)
        let whole = parse(bytes)
        if case .complete(let header, let count) = whole {
            try require(count <= bytes.count, "more bytes are consumed than there are")
            try check(header, bytes, count)
            try requireIncompletePrefixes(of: count) { count in
                if case .incomplete(let minimum) = parse(Array(bytes.prefix(count))) { minimum } else { nil }
            }
        } else if case .incomplete(let minimum) = whole {
            try require(minimum > bytes.count, "\(minimum) bytes are needed, but there are \(bytes.count)")
        }
        // A header that is invalid at some byte stays invalid.
        if case .failed = parse(Array(bytes.prefix(bytes.count / 2))) {
            guard case .failed = whole else {
                throw FuzzFailure(description: "the first half is invalid, but the whole is not")
            }
        }
    }

    private static func parse(_ bytes: [UInt8]) -> ProxyHeader.ParsingAnswer {
        bytes.withUnsafeBytes { ProxyHeader.parse($0) }
    }

    private static func check(_ header: ProxyHeader, _ bytes: [UInt8], _ count: Int) throws {
        guard let other = ReferenceProxyHeader(bytes) else {
            throw FuzzFailure(description: "HAProxy's rules reject this header: \(header)")
        }
        try require(other.count == count, "the other reader consumes \(other.count) bytes instead of \(count)")
        if let addresses = other.addresses {
            try require(withoutZone(header.source) == addresses.source.host, "the source differs: \(addresses) \(header)")
            try require(withoutZone(header.destination) == addresses.destination.host, "the destination differs: \(addresses)")
            try require(header.source?.port == addresses.source.port, "the source port differs: \(addresses) \(header)")
            try require(header.destination?.port == addresses.destination.port, "the port differs: \(addresses) \(header)")
        } else if !other.isUnix {
            try require(header.source == nil && header.destination == nil, "HAProxy's rules ignore these addresses: \(header)")
        }
        for version in [ProxyHeader.Version.version1, .version2] {
            guard let encoded = try? header.encoded(as: version), encoded.count <= ProxyHeader.defaultMaximumCount
            else { continue }
            guard case .complete(let again, encoded.count) = parse(encoded) else {
                throw FuzzFailure(description: "the encoded header cannot be parsed: \(encoded)")
            }
            try require(again.source == header.source || header.source?.port == nil, "the source changes: \(header)")
            if version == .version2 { try require(again == header, "the header changes: \(header) \(again)") }
        }
    }

    private static func withoutZone(_ address: SocketEndpoint?) -> String? {
        address?.host.map { String($0.prefix { $0 != "%" }) }
    }

    /// Replies of SOCKS and HTTP proxies: arbitrary pieces have the same result as the whole.
    static let proxyNegotiation = FuzzTarget(name: "proxy-negotiation", maximumLength: 20_000) { input in
        var input = input
        let flags = input.byte()
        var negotiation: ProxyNegotiation {
            get throws {
                let credentials = flags & 2 == 0 ? nil : SocketProxy.Credentials(username: "user", password: "password")
                let proxy =
                    flags & 1 == 0
                    ? SocketProxy.socks5(host: "127.0.0.1", port: 1080, credentials: credentials)
                    : .http(host: "127.0.0.1", port: 80, credentials: credentials)
                return try ProxyNegotiation(through: proxy, to: ProxyTarget(host: "host.example", port: 443))
            }
        }
        var cuts = FuzzInput(input.take(16))
        let bytes = input.all()
        let whole = try outcome(of: negotiation, [bytes])
        let split = try outcome(of: negotiation, cuts.pieces(of: bytes))
        // Error messages may differ: they quote the bytes received so far.
        if case .failed(let first) = whole.answer, case .failed(let second) = split.answer {
            return try require(first.kind == second.kind && whole.sent == split.sent, "\(first), in pieces: \(second)")
        }
        try require(whole == split, "the whole results in \(whole), but the pieces in \(split)")
    }

    private struct Outcome: Equatable {
        var answer: ProxyNegotiation.Answer
        var rest: [UInt8]
        var sent: [UInt8]
    }

    private static func outcome(of start: ProxyNegotiation, _ pieces: [[UInt8]]) throws -> Outcome {
        var negotiation = start
        let buffer = PreBuffer()
        var outcome = Outcome(answer: .incomplete, rest: [], sent: [])
        for piece in [[]] + pieces {
            piece.withUnsafeBytes { buffer.append($0) }
            // Each call to `take` may produce output, after which more of the input is read.
            var before = (-1, -1)
            while outcome.answer == .incomplete, before != (buffer.count, outcome.sent.count) {
                before = (buffer.count, outcome.sent.count)
                outcome.sent += negotiation.output
                negotiation.didSend(negotiation.output.count)
                outcome.answer = negotiation.take(from: buffer)
            }
        }
        // What is left after a failure is not defined.
        if case .failed = outcome.answer { return outcome }
        outcome.rest = Array(buffer.readableBytes)
        return outcome
    }
}

/// A second reader of PROXY headers, written from sections 2.1 and 2.2 of the specification and from what
/// HAProxy accepts.
private struct ReferenceProxyHeader {
    struct Address {
        let host: String
        let port: UInt16
    }

    let count: Int
    /// `nil` if the header contains no addresses, or those of a Unix-domain socket.
    var addresses: (source: Address, destination: Address)?
    var isUnix = false

    init?(_ bytes: [UInt8]) {
        if bytes.starts(with: [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]) {
            self.init(block: bytes)
        } else {
            self.init(line: bytes)
        }
    }

    private init?(line bytes: [UInt8]) {
        guard let end = bytes.prefix(107).firstIndex(of: 0x0A), end > 0, bytes[end - 1] == 0x0D else { return nil }
        count = end + 1
        // Split by bytes: in a `String`, a space and a combining mark after it are one `Character`.
        let words = bytes[..<(end - 1)].split(separator: 0x20, omittingEmptySubsequences: false)
            .map { Substring(String(decoding: $0, as: UTF8.self)) }
        guard words.count >= 2, words[0] == "PROXY" else { return nil }
        if words[1] == "UNKNOWN" { return }
        let family = words[1] == "TCP4" ? AF_INET : AF_INET6
        guard words.count == 6, ["TCP4", "TCP6"].contains(words[1]),
            let source = Self.host(String(words[2]), family), let destination = Self.host(String(words[3]), family),
            let ports = Self.ports(words[4], words[5])
        else { return nil }
        addresses = (Address(host: source, port: ports.0), Address(host: destination, port: ports.1))
    }

    private static func ports(_ first: Substring, _ second: Substring) -> (UInt16, UInt16)? {
        guard let first = port(first), let second = port(second) else { return nil }
        return (first, second)
    }

    /// Decimal digits without leading zeros.
    private static func port(_ text: Substring) -> UInt16? {
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), text == "0" || text.first != "0" else { return nil }
        return UInt16(text)
    }

    private static func host(_ text: String, _ family: CInt) -> String? {
        var bytes = [UInt8](repeating: 0, count: 16)
        return inet_pton(family, text, &bytes) == 1 ? host(bytes[...], family) : nil
    }

    private static func host(_ bytes: ArraySlice<UInt8>, _ family: CInt) -> String? {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        guard inet_ntop(family, Array(bytes), &text, socklen_t(text.count)) != nil else { return nil }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    private init?(block bytes: [UInt8]) {
        guard bytes.count >= 16, bytes[12] >> 4 == 2 else { return nil }
        count = 16 + Int(bytes[14]) << 8 + Int(bytes[15])
        guard bytes.count >= count else { return nil }
        if bytes[12] & 15 == 0 { return }
        guard bytes[12] & 15 == 1 else { return nil }
        let (family, size): (CInt, Int)
        guard bytes[13] & 15 <= 2 else { return nil }
        switch bytes[13] >> 4 {
        case 1: (family, size) = (AF_INET, 4)
        case 2: (family, size) = (AF_INET6, 16)
        case 0, 3:
            isUnix = bytes[13] >> 4 == 3
            return
        default: return nil
        }
        if bytes[13] & 15 == 0 { return }
        guard count >= 16 + 2 * size + 4 else { return nil }
        let ports = 16 + 2 * size
        guard let source = Self.host(bytes[16..<16 + size], family),
            let destination = Self.host(bytes[16 + size..<ports], family)
        else { return nil }
        addresses = (
            Address(host: source, port: UInt16(bytes[ports]) << 8 | UInt16(bytes[ports + 1])),
            Address(host: destination, port: UInt16(bytes[ports + 2]) << 8 | UInt16(bytes[ports + 3]))
        )
    }
}
