// Article: delegate
import AsyncSockets
import Dispatch
import Foundation

/// Echoes each client's lines with line numbers. Everything runs on one queue, so no lock is needed.
final class LineNumberer: AsyncSocketDelegate {
    private let listener = AsyncSocket()
    private let tls: TLSServerSettings
    private var clients: [ObjectIdentifier: (socket: AsyncSocket, number: Int)] = [:]

    init(tls: TLSServerSettings) { self.tls = tls }

    func start(onPort port: UInt16) throws {
        listener.setDelegate(self, delegateQueue: DispatchQueue(label: "line-numberer"))
        try listener.accept(onPort: port)
    }

    func socket(_ listener: AsyncSocket, didAcceptNewSocket client: AsyncSocket) {
        clients[ObjectIdentifier(client)] = (client, 0)  // a socket closes when the last reference to it is released
        do {
            try client.beginTLS(settings: tls)
            client.readData(to: AsyncSocket.crlf, maxLength: 65536)
        } catch {
            client.disconnect()
        }
    }

    func socket(_ client: AsyncSocket, didRead line: Data, withTag tag: Int) {
        let number = (clients[ObjectIdentifier(client)]?.number ?? 0) + 1
        clients[ObjectIdentifier(client)]?.number = number
        client.write(Data("\(number): ".utf8) + line, withTimeout: 30)
    }

    func socket(_ client: AsyncSocket, didWriteDataWithTag tag: Int) {
        client.readData(to: AsyncSocket.crlf, maxLength: 65536)
    }

    func socketDidDisconnect(_ client: AsyncSocket, withError error: AsyncSocketError?) {
        clients[ObjectIdentifier(client)] = nil
    }
}
// Article: end
