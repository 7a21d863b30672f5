import SocketBuffers
import SocketCore

/// The result of a negotiation that received certain bytes.
struct ProxyTranscript: Equatable {
    var sent: [UInt8] = []
    var answer = ProxyNegotiation.Answer.incomplete
    /// The bytes left in the buffer.
    var leftover: [UInt8] = []

    /// Passes consecutive `pieces` until the negotiation is over. Later ones stay in the buffer.
    init(of negotiation: ProxyNegotiation, given pieces: [[UInt8]]) {
        var negotiation = negotiation
        let buffer = PreBuffer()
        for piece in [[]] + pieces {
            piece.withUnsafeBytes { buffer.append($0) }
            var hasAsked = true
            while hasAsked, answer == .incomplete {
                answer = negotiation.take(from: buffer)
                hasAsked = !negotiation.output.isEmpty
                sent += negotiation.output
                negotiation.didSend(negotiation.output.count)
            }
        }
        leftover = Array(buffer.readableBytes)
    }

    /// Passes the same bytes in all relevant ways: at once, split in two at each position, and byte by byte.
    /// Returns one transcript, or several if they differ.
    static func all(of negotiation: ProxyNegotiation, given bytes: [UInt8]) -> [ProxyTranscript] {
        let ways = [[bytes], bytes.map { [$0] }] + bytes.indices.map { [Array(bytes[..<$0]), Array(bytes[$0...])] }
        return ways.map { ProxyTranscript(of: negotiation, given: $0) }
            .reduce(into: []) { different, next in if !different.contains(next) { different.append(next) } }
    }

    var failure: ProxyFailure? {
        if case .failed(let failure) = answer { failure } else { nil }
    }
}

extension SocketProxy {
    static let testCredentials = Credentials(username: "user", password: "secret")

    /// Returns a negotiation with a proxy of this kind for `host`.
    static func negotiation(
        _ kind: Kind, _ host: String = "host.example", port: UInt16 = 443, credentials: Credentials? = nil
    ) throws -> ProxyNegotiation {
        let proxy: SocketProxy =
            switch kind {
            case .socks5: .socks5(host: "proxy", port: 1, credentials: credentials)
            case .http: .http(host: "proxy", port: 1, credentials: credentials)
            }
        return try ProxyNegotiation(through: proxy, to: ProxyTarget(host: host, port: port))
    }
}

extension Array where Element == UInt8 {
    init(_ text: String) {
        self.init(text.utf8)
    }
}
