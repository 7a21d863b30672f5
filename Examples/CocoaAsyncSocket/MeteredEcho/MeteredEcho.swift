import CocoaAsyncSocket
import Foundation

final class MeteredEcho: NSObject, GCDAsyncSocketDelegate {
    private let listener = MeteredSocket()
    private var connections: [MeteredSocket] = []

    func start(port: UInt16) throws {
        listener.setDelegate(self, delegateQueue: DispatchQueue.main)
        try listener.accept(onPort: port)
        print("listening on port \(listener.localPort)")
    }

    func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket) {
        // A listener creates accepted sockets with its own class.
        guard let metered = newSocket as? MeteredSocket else {
            print("failed: the new socket is a \(type(of: newSocket))")
            exit(1)
        }
        connections.append(metered)
        print("\(metered.userData ?? "nil"), \(MeteredSocket.instances) sockets")
        metered.userData = "client \(connections.count)"
        metered.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: 0)
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        sock.write(data, withTimeout: -1, tag: tag)
        if data.starts(with: "bye".utf8) {
            sock.disconnectAfterWriting()
        } else {
            sock.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: tag + 1)
        }
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        guard let metered = sock as? MeteredSocket else { return }
        connections.removeAll { $0 === metered }
        let reason = err == nil ? "nil" : "\((err as NSError?)?.code ?? 0)"
        print("\(metered.userData ?? "nil") left: \(metered.summary), error \(reason)")
    }
}
