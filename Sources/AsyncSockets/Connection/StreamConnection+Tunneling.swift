// Rules of a tunnel:
//  1. It is asked for before the connection is, and the connection is then made to the proxy, as it would be
//     to any other host.
//  2. While it is negotiated nothing is served: reads and writes wait in their queues, and so does an
//     upgrade.
//  3. Bytes flow through the functions that every connection uses. What follows the proxy's last reply stays
//     in `preBuffer`: it is what came first through the tunnel, and early bytes are judged at an upgrade as
//     on any other connection.
//  4. Until the tunnel is up, an end of the connection is a failure of the proxy. Afterwards it is the
//     peer's.
//  5. The connect timeout runs until the tunnel is up.

internal import SocketBuffers
internal import SocketCore

/// A way through a proxy, from the wish to have one to its being there.
struct Tunnel: Sendable {
    let proxy: Proxy
    /// The host that was asked for, as the caller wrote it.
    let host: String
    let port: UInt16
    var negotiation: ProxyNegotiation

    /// - Throws: `.badParameter` when the proxy or the target has something about it that cannot be sent.
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

/// Asking a proxy for the connection.
extension StreamConnection {
    /// The most bytes that are received at once while the proxy has the word.
    private static let receiveLimit = BufferPool.blockSize / 4

    /// The connection to the proxy stands: asks it for the one that was wanted.
    func negotiate(_ tunnel: Tunnel, over descriptor: SocketDescriptor) {
        phase = .negotiating(descriptor, tunnel)
        reads.mayHaveBytes = true
        writes.canAcceptBytes = true
        sendSmallWritesAtOnce(descriptor)
        needsPump = true
    }

    /// Exchanges messages with the proxy for as long as that gets ahead.
    func pumpNegotiation(_ tunnel: Tunnel, _ descriptor: SocketDescriptor) {
        var tunnel = tunnel
        for _ in 0..<Self.roundsPerTurn {
            sendOutput(of: &tunnel, to: descriptor)
            guard tunnel.negotiation.output.isEmpty else { return waitForProxy(tunnel, descriptor) }
            switch tunnel.negotiation.take(from: reads.preBuffer) {
            case .established: return beginUsing(tunnel, descriptor)
            case .failed(let failure): return close(AsyncSocketError(failure, of: tunnel.proxy))
            case .incomplete: break
            }
            guard tunnel.negotiation.output.isEmpty else { continue }
            guard receive(into: reads.preBuffer, limit: Self.receiveLimit, from: descriptor) else {
                return waitForProxy(tunnel, descriptor)
            }
        }
        phase = .negotiating(descriptor, tunnel)
        askForTurn()
    }

    private func waitForProxy(_ tunnel: Tunnel, _ descriptor: SocketDescriptor) {
        phase = .negotiating(descriptor, tunnel)
        if let error = reads.ending ?? writes.ending { close(error.before(tunnel)) }
    }

    private func sendOutput(of tunnel: inout Tunnel, to descriptor: SocketDescriptor) {
        while writes.canSend, !tunnel.negotiation.output.isEmpty {
            let answer = tunnel.negotiation.output.withUnsafeBytes { descriptor.send($0) }
            if let count = noteSent(answer) { tunnel.negotiation.didSend(count) }
        }
    }

    private func beginUsing(_ tunnel: Tunnel, _ descriptor: SocketDescriptor) {
        guard stand(descriptor) else { return }
        report(.didConnect(host: tunnel.host, port: tunnel.port))
        needsPump = true
    }
}

extension AsyncSocketError {
    /// What a proxy did wrong, or what cannot be asked of it.
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
            message: "\(tunnel.proxy): the connection ended before the tunnel stood (\(message))", errno: errno
        )
    }
}
