import CocoaAsyncSocket
import Foundation

final class IdentityServer: NSObject, GCDAsyncSocketDelegate {
    private let identity: Identity
    private let socketQueue = DispatchQueue(label: "server.sockets")
    private let delegateQueue = DispatchQueue(label: "server.delegate")
    private var listener: GCDAsyncSocket?
    private var connections = Set<GCDAsyncSocket>()

    init(identity: Identity) {
        self.identity = identity
        super.init()
    }

    func start(port: UInt16) throws {
        let listener = GCDAsyncSocket(delegate: self, delegateQueue: delegateQueue, socketQueue: socketQueue)
        try listener.accept(onInterface: "127.0.0.1", port: port)
        self.listener = listener
        print("\(identity.name) listens on port \(listener.localPort)")
    }

    func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket) {
        connections.insert(newSocket)
        newSocket.startTLS([
            kCFStreamSSLIsServer as String: NSNumber(value: true),
            kCFStreamSSLCertificates as String: identity.certificates,
            GCDAsyncSocketSSLProtocolVersionMin as String: NSNumber(value: SSLProtocol.tlsProtocol12.rawValue),
        ])
        newSocket.readData(to: GCDAsyncSocket.lfData(), withTimeout: 60, maxLength: 4096, tag: 0)
    }

    func socketDidSecure(_ sock: GCDAsyncSocket) {
        print("secure: \(sock.connectedHost ?? "?")")
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        let line = String(decoding: data, as: UTF8.self)
        sock.write(Data(line.uppercased().utf8), withTimeout: 10, tag: tag + 1)
        sock.readData(to: GCDAsyncSocket.lfData(), withTimeout: 60, maxLength: 4096, tag: tag + 1)
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        connections.remove(sock)
        guard let error = err as NSError?, error.code != GCDAsyncSocketError.closedError.rawValue else {
            print("closed")
            return
        }
        print("a connection failed: \(error.domain) \(error.code), secure: \(sock.isSecure)")
    }
}
