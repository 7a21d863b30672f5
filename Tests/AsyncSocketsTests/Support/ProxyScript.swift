import AsyncSockets
import AsyncSocketsTesting
import SocketTestSupport

/// Scripts of correct proxies of each kind. The client always requests the host `peer.example:4242`.
enum ProxyScript: CaseIterable, Sendable {
    case socks5
    case http

    static let host = "peer.example"
    static let port: UInt16 = 4242

    func proxy(on port: UInt16, credentials: SocketProxy.Credentials? = nil) -> SocketProxy {
        switch self {
        case .socks5: .socks5(host: "127.0.0.1", port: port, credentials: credentials)
        case .http: .http(host: "127.0.0.1", port: port, credentials: credentials)
        }
    }

    /// Expects our first bytes.
    var firstBytes: ScriptedPeer.Step {
        switch self {
        case .socks5: .expect([5])
        case .http: .expect("CONNECT ")
        }
    }

    /// Everything up to and including the request, without a reply to it.
    var untilRequest: [ScriptedPeer.Step] {
        switch self {
        case .socks5:
            let request: [UInt8] = [5, 1, 0, 3, 12] + Self.host.utf8 + [0x10, 0x92]
            return [.expect([5, 1, 0]), .send([5, 0]), .expect(request)]
        case .http:
            return [.expect("CONNECT peer.example:4242 HTTP/1.1\r\nHost: peer.example:4242\r\n\r\n")]
        }
    }

    /// The reply that establishes the tunnel.
    var success: [UInt8] {
        switch self {
        case .socks5: [5, 0, 0, 1, 192, 0, 2, 1, 0x10, 0x92]
        case .http: Array("HTTP/1.1 200 Connection established\r\nVia: nobody\r\n\r\n".utf8)
        }
    }

    /// An established tunnel, with `bytes` in the same segment as the reply.
    func tunnel(andAtOnce bytes: String = "", inPiecesOf pieces: Int? = nil) -> [ScriptedPeer.Step] {
        untilRequest + [.send(success + Array(bytes.utf8), inPiecesOf: pieces)]
    }
}

extension AsyncSocket {
    /// Connects to the host of `ProxyScript` through a scripted proxy.
    func connect(through peer: ScriptedPeer, _ kind: ProxyScript, timeout: Double = .patient) throws {
        proxy = kind.proxy(on: peer.port)
        try connect(toHost: ProxyScript.host, onPort: ProxyScript.port, withTimeout: timeout)
    }
}
