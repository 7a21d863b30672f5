import CocoaAsyncSocket
import Foundation

final class ChatClient: NSObject, GCDAsyncSocketDelegate {
    private let name: String
    private var socket: GCDAsyncSocket?
    /// Lines typed before the server has accepted the name.
    private var waiting: [String] = []
    /// Set on the delegate queue. `isConnected` becomes true slightly earlier.
    private var hasSentName = false

    init(name: String) {
        self.name = name
        super.init()
    }

    func connect(host: String, port: UInt16) {
        let socket = GCDAsyncSocket()
        socket.delegate = self
        socket.delegateQueue = DispatchQueue.main
        self.socket = socket
        do {
            try socket.connect(toHost: host, onPort: port, withTimeout: 10)
        } catch let error as NSError {
            print("failed: \(error.localizedDescription) (\(error.domain), \(error.code))")
            exit(1)
        }
    }

    func send(_ line: String) {
        guard let socket = socket, hasSentName else {
            waiting.append(line)
            return
        }
        guard let data = (line + "\r\n").data(using: .utf8) else { return }
        socket.write(data, withTimeout: -1, tag: 0)
    }

    func leave() {
        send("/quit")
    }

    func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16) {
        print("connected to \(host):\(port)")
        hasSentName = true
        send(name)
        waiting.forEach(send)
        waiting.removeAll()
        sock.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 0)
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        let text = NSString(data: data, encoding: String.Encoding.utf8.rawValue) ?? "(not UTF-8)"
        print(text.trimmingCharacters(in: .newlines))
        sock.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 0)
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        socket = nil
        hasSentName = false
        if let error = err as? GCDAsyncSocketError, error.code == GCDAsyncSocketError.closedError {
            print("the server closed the connection")
            exit(0)
        }
        if let error = err as NSError? {
            let reason = error.domain == NSPOSIXErrorDomain ? "POSIX error" : error.domain
            print("failed: \(error.localizedDescription) (\(reason), \(error.code))")
            exit(1)
        }
        exit(0)
    }
}
