// Rules of a negotiation:
//  1. It holds no socket. Its owner sends `output`, and calls `take(from:)` with the received bytes until the
//     answer is another one than `incomplete`.
//  2. It takes the proxy's replies out of the buffer and not one byte more: the tunnel begins after the last
//     reply. It reads no reply before the request has been sent: otherwise the tunnel could be established
//     before it was asked for.
//  3. It fails with the first byte that cannot be right, and does not wait for more from a peer that is not a
//     proxy.
//  4. The bytes that it takes before it decides are bounded: by the protocol in SOCKS, and by
//     `HTTPConnectNegotiation.headLimit` in HTTP.

package import SocketBuffers

/// The conversation with a proxy, from the first byte to the tunnel.
package enum ProxyNegotiation: Sendable {
    case socks5(SOCKS5Negotiation)
    case http(HTTPConnectNegotiation)

    /// The meaning of the bytes so far.
    package enum Answer: Sendable, Hashable {
        /// The proxy has more to say, maybe only after `output` is sent.
        case incomplete
        /// The tunnel is established; the next byte comes from its other end.
        case established
        case failed(ProxyFailure)
    }

    /// A conversation that has `proxy` make a connection to `target`.
    ///
    /// - Throws: `.invalid` for anything that the protocol cannot carry. All text in a request is checked.
    package init(through proxy: Proxy, to target: ProxyTarget) throws(ProxyFailure) {
        _ = try HostText(ofProxy: proxy.host, port: proxy.port)
        guard proxy.port > 0 else { throw ProxyFailure(.invalid, "the port of the proxy must be from 1 to 65535, and is 0") }
        switch proxy.kind {
        case .socks5: self = .socks5(try SOCKS5Negotiation(target: target, credentials: proxy.credentials))
        case .http: self = .http(try HTTPConnectNegotiation(target: target, credentials: proxy.credentials))
        }
    }

    /// The bytes to send.
    package var output: ArraySlice<UInt8> {
        switch self {
        case .socks5(let negotiation): negotiation.output
        case .http(let negotiation): negotiation.output
        }
    }

    /// The first `count` bytes of `output` have been sent.
    package mutating func didSend(_ count: Int) {
        switch self {
        case .socks5(var negotiation):
            negotiation.output.removeFirst(count)
            self = .socks5(negotiation)
        case .http(var negotiation):
            negotiation.output.removeFirst(count)
            self = .http(negotiation)
        }
    }

    /// Takes the proxy's replies out of `buffer`.
    package mutating func take(from buffer: PreBuffer) -> Answer {
        do throws(ProxyFailure) {
            return try isEstablished(by: buffer) ? .established : .incomplete
        } catch {
            return .failed(error)
        }
    }

    private mutating func isEstablished(by buffer: PreBuffer) throws(ProxyFailure) -> Bool {
        switch self {
        case .socks5(var negotiation):
            defer { self = .socks5(negotiation) }
            return try negotiation.isEstablished(by: buffer)
        case .http(var negotiation):
            defer { self = .http(negotiation) }
            return try negotiation.isEstablished(by: buffer)
        }
    }
}
