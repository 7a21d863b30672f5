// Rules of a negotiation:
//  1. It holds no socket: `output` is to be sent, `take(from:)` is to be called with what was received, until
//     it answers something other than `incomplete`.
//  2. It takes the proxy's replies out of the buffer and not one byte more: what comes behind the last reply
//     is the tunnel's. A reply that is there before the request has left is not looked at: otherwise the
//     tunnel would stand before it was asked for.
//  3. It decides with the first byte that decides. A proxy that is no proxy is not waited for.
//  4. What it takes in before it decides is bounded: by the protocol in SOCKS, by
//     `HTTPConnectNegotiation.headLimit` in HTTP.

package import SocketBuffers

/// The conversation with a proxy, from the first byte to the tunnel.
package enum ProxyNegotiation: Sendable {
    case socks5(SOCKS5Negotiation)
    case http(HTTPConnectNegotiation)

    /// What came of the bytes received so far.
    package enum Answer: Sendable, Hashable {
        /// The proxy has more to say, maybe only after what is in `output`.
        case incomplete
        /// The tunnel is up; the next byte comes from its other end.
        case established
        case failed(ProxyFailure)
    }

    /// A conversation that has `proxy` make a connection to `target`.
    ///
    /// - Throws: `.invalid` for anything that the protocol has no room for. Nothing that is sent is made of
    ///   unchecked text.
    package init(through proxy: Proxy, to target: ProxyTarget) throws(ProxyFailure) {
        _ = try HostText(ofProxy: proxy.host, port: proxy.port)
        guard proxy.port > 0 else { throw ProxyFailure(.invalid, "no proxy listens on port 0") }
        switch proxy.kind {
        case .socks5: self = .socks5(try SOCKS5Negotiation(target: target, credentials: proxy.credentials))
        case .http: self = .http(try HTTPConnectNegotiation(target: target, credentials: proxy.credentials))
        }
    }

    /// What is to be sent.
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

    /// Takes what is the proxy's out of `buffer`.
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
