// Rules of a tunnel:
//  1. It is requested before the connection, which is then made to the proxy as to any other host.
//  2. During the negotiation nothing is served: reads and writes wait in their queues, and so does an
//     upgrade.
//  3. Bytes flow through the channel that every connection uses. Bytes after the proxy's last reply stay in
//     `preBuffer`: they came first through the tunnel, and early bytes are judged at an upgrade as on any
//     other connection.
//  4. Until the tunnel is established, an end of the connection is a failure of the proxy. Afterwards it is
//     the peer's.
//  5. The connect timeout runs until the tunnel is established.

internal import SocketBuffers
internal import SocketCore

/// A tunnel through a proxy, from the request until it is established.
struct Tunnel: Sendable {
    let proxy: Proxy
    /// The target host, as the caller wrote it.
    let host: String
    let port: UInt16
    var negotiation: ProxyNegotiation

    /// - Throws: `.badParameter` when the proxy or the target contains something that cannot be sent.
    init(through proxy: Proxy, toHost host: String, port: UInt16) throws(AsyncSocketError) {
        self.proxy = proxy
        self.host = host
        self.port = port
        do throws(ProxyFailure) {
            negotiation = try ProxyNegotiation(through: proxy, to: ProxyTarget(host: host, port: port))
        } catch {
            throw AsyncSocketError(error, of: proxy)
        }
    }
}

/// Asks a proxy for the connection.
extension Tunnel {
    enum Answer {
        case established
        /// Nothing until the next event.
        case incomplete
        /// Go on in another turn.
        case more
        case failed(AsyncSocketError)
    }

    /// The most bytes that are received at once during the negotiation.
    private static let receiveLimit = BufferPool.blockSize / 4

    /// Exchanges messages with the proxy as far as possible now.
    mutating func negotiate(over channel: ByteChannel, _ preBuffer: PreBuffer) -> Answer {
        for _ in 0..<ByteChannel.roundsPerTurn {
            sendOutput(over: channel)
            guard negotiation.output.isEmpty else { return wait(for: channel) }
            switch negotiation.take(from: preBuffer) {
            case .established: return .established
            case .failed(let failure): return .failed(AsyncSocketError(failure, of: proxy))
            case .incomplete: break
            }
            guard negotiation.output.isEmpty else { continue }
            guard case .bytes = channel.fill(preBuffer, limit: Self.receiveLimit) else { return wait(for: channel) }
        }
        return .more
    }

    private func wait(for channel: ByteChannel) -> Answer {
        channel.failure.map { .failed($0.before(self)) } ?? .incomplete
    }

    private mutating func sendOutput(over channel: ByteChannel) {
        while !negotiation.output.isEmpty {
            let count = negotiation.output.withUnsafeBytes { channel.send($0) }
            guard count > 0 else { return }
            negotiation.didSend(count)
        }
    }
}

extension AsyncSocketError {
    /// The failure of a proxy, or a request that cannot be made of it.
    fileprivate init(_ failure: ProxyFailure, of proxy: Proxy) {
        let (code, blame): (Code, Blame) =
            switch failure.kind {
            case .invalid: (.badParameter, .caller)
            case .authenticationRequired: (.proxyAuthenticationRequired, .caller)
            case .refused: (.proxyRefused, .peer)
            case .misbehaved: (.proxyFailed, .peer)
            }
        self.init(code, blame: blame, operation: "connect", message: "\(proxy): \(failure.message)")
    }

    /// The end of the connection to a proxy before there was a tunnel.
    fileprivate func before(_ tunnel: Tunnel) -> AsyncSocketError {
        AsyncSocketError(
            .proxyFailed, blame: blame, operation: "connect",
            message: "\(tunnel.proxy): the connection ended before the tunnel was established (\(message))", errno: errno
        )
    }
}
