import AsyncSockets
import Dispatch
import Foundation

/// The listener and its pairs of connections. Everything runs on one queue.
final class TLSProxy: AsyncSocketDelegate {
    private let listener = AsyncSocket()
    private let queue = DispatchQueue(label: "tls-proxy")
    private let targetHost: String
    private let targetPort: UInt16
    private var settings: TLSServerSettings?
    private var pairs: [ObjectIdentifier: Pair] = [:]

    init(targetHost: String, targetPort: UInt16) {
        self.targetHost = targetHost
        self.targetPort = targetPort
    }

    func start(onPort port: UInt16) throws {
        settings = TLSSettings.server(
            identity: try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key"))
        // Accepted sockets inherit these.
        listener.autoDisconnectOnClosedReadStream = false
        listener.maximumConnections = 1_000
        listener.setDelegate(self, delegateQueue: queue)
        try listener.accept(onPort: port)
        log("listening on port \(listener.localPort)")
    }

    func socket(_ listener: AsyncSocket, didAcceptNewSocket client: AsyncSocket) {
        guard let settings else { return }
        let pair = Pair(client, targetHost: targetHost, targetPort: targetPort) { [weak self] pair in
            self?.pairs[ObjectIdentifier(pair)] = nil
        }
        pairs[ObjectIdentifier(pair)] = pair
        pair.start(settings, on: queue)
    }

    func socketDidDisconnect(_ listener: AsyncSocket, withError error: AsyncSocketError?) {
        log("the listener has ended: \(error?.localizedDescription ?? "")")
    }
}
