// Rules of a negotiation:
//  1. It does no I/O. Its owner sends `output` and passes received bytes to `take(from:)` until the result
//     is no longer `incomplete`.
//  2. It consumes exactly the proxy's replies from the buffer: the tunnel starts right after the last reply.
//     It does not read a reply before the request has been sent. Otherwise, a tunnel could be considered
//     established before it was requested.
//  3. It fails at the first invalid byte instead of expecting more bytes from a peer that is not a proxy.
//  4. The number of bytes consumed before a decision is bounded: by the protocol for SOCKS, and by
//     `HTTPConnectNegotiation.headLimit` for HTTP.

package import SocketBuffers

/// The negotiation with a proxy, from the first byte until the tunnel is established.
package enum ProxyNegotiation: Sendable {
    case socks5(SOCKS5Negotiation)
    case http(HTTPConnectNegotiation)

    /// The state of the negotiation after the bytes received so far.
    package enum Answer: Sendable, Hashable {
        /// Further replies are needed. `output` may have to be sent first.
        case incomplete
        /// The tunnel is established. All further bytes are from the target.
        case established
        case failed(ProxyFailure)
    }

    /// Creates a negotiation that has `proxy` connect to `target`.
    ///
    /// - Throws: `.invalid` if a value cannot be represented in the protocol. All text in a request is
    ///   checked.
    package init(through proxy: SocketProxy, to target: ProxyTarget) throws(ProxyFailure) {
        _ = try HostText(ofProxy: proxy.host, port: proxy.port)
        guard proxy.port > 0 else { throw ProxyFailure(.invalid, "the proxy port must be from 1 to 65535, but is 0") }
        switch proxy.kind {
        case .socks5: self = .socks5(try SOCKS5Negotiation(target: target, credentials: proxy.credentials))
        case .http: self = .http(try HTTPConnectNegotiation(target: target, credentials: proxy.credentials))
        }
    }

    package var output: ArraySlice<UInt8> {
        switch self {
        case .socks5(let negotiation): negotiation.output
        case .http(let negotiation): negotiation.output
        }
    }

    /// Removes the first `count` bytes of `output` after they have been sent.
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

    /// Consumes the proxy's replies from `buffer`.
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
