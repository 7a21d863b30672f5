// Rules of a tunnel:
//  1. A tunnel must be requested before connecting. The connection to the proxy is then made like a
//     connection to any other host.
//  2. No operation is served during the negotiation. Reads, writes and a TLS upgrade stay queued.
//  3. Bytes pass through the same channel as on every connection. Bytes after the proxy's last reply stay in
//     `preBuffer`, because they are the first bytes from the tunnel. A TLS upgrade treats them like early
//     bytes on any other connection.
//  4. If the connection closes before the tunnel is established, this is reported as a failure of the proxy.
//     After that, it is reported as closed by the peer.
//  5. The connect timeout includes the time for establishing the tunnel.

internal import SocketBuffers
internal import SocketCore

/// A tunnel through a proxy, from the request until it is established.
struct Tunnel: Sendable {
    let proxy: SocketProxy
    /// The target host, exactly as specified by the caller.
    let host: String
    let port: UInt16
    var negotiation: ProxyNegotiation

    /// - Throws: `.badParameter` if the proxy or the target contains characters that cannot be sent.
    init(through proxy: SocketProxy, toHost host: String, port: UInt16) throws(AsyncSocketError) {
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

extension Tunnel {
    enum Answer {
        case established
        /// No progress is possible until the next event.
        case incomplete
        /// Continue in another turn.
        case more
        case failed(AsyncSocketError)
    }

    /// The maximum number of bytes per receive call during the negotiation.
    private static let receiveLimit = BufferPool.blockSize / 4

    /// Exchanges messages with the proxy as far as possible.
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
    /// Converts the error of a proxy that failed, or of a request that cannot be sent to the proxy.
    fileprivate init(_ failure: ProxyFailure, of proxy: SocketProxy) {
        let (code, fault): (Code, TLSError.Fault) =
            switch failure.kind {
            case .invalid: (.badParameter, .caller)
            case .authenticationRequired: (.proxyAuthenticationRequired, .caller)
            case .refused: (.proxyRefused, .peer)
            case .misbehaved: (.proxyFailed, .peer)
            }
        self.init(code, fault: fault, operation: .connect, message: "\(proxy): \(failure.message)")
    }

    /// Converts the error of a connection that closed before the tunnel was established.
    fileprivate func before(_ tunnel: Tunnel) -> AsyncSocketError {
        AsyncSocketError(
            .proxyFailed, fault: fault, operation: .connect,
            message: "\(tunnel.proxy): the connection closed before the tunnel was established (\(message))", errno: errno
        )
    }
}
