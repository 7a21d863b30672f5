import CocoaAsyncSocket
import Foundation

/// The chat room. Everything runs on the main queue.
final class ChatServer: NSObject {
    private enum Tag: Int {
        case name
        case line
        case notice
    }

    private let idleTime: TimeInterval
    private lazy var listener = GCDAsyncSocket(delegate: self, delegateQueue: DispatchQueue.main)
    /// The connected clients. A socket closes when it is removed from the array.
    private var clients: [GCDAsyncSocket] = []
    private var isStopping = false

    init(idleTime: TimeInterval) {
        self.idleTime = idleTime
        super.init()
    }

    func start(port: UInt16) throws {
        try listener.accept(onPort: port)
        print("listening on port \(listener.localPort)")
    }

    func stop() {
        isStopping = true
        listener.disconnect()
        for client in clients {
            send("*** the server is shutting down", to: client)
            client.disconnectAfterWriting()
        }
        endIfEmpty()
    }

    private func endIfEmpty() {
        guard isStopping, clients.isEmpty else { return }
        print("done")
        exit(0)
    }

    private func send(_ line: String, to client: GCDAsyncSocket) {
        var data = Data(line.utf8)
        data.append(GCDAsyncSocket.crlfData())
        client.write(data, withTimeout: 10, tag: Tag.notice.rawValue)
    }

    private func broadcast(_ line: String, except sender: GCDAsyncSocket) {
        for client in clients where client !== sender && name(of: client) != nil {
            send(line, to: client)
        }
    }

    private func name(of client: GCDAsyncSocket) -> String? {
        client.userData as? String
    }

    private func readLine(from client: GCDAsyncSocket, _ tag: Tag) {
        client.readData(to: GCDAsyncSocket.crlfData(), withTimeout: idleTime, maxLength: 512, tag: tag.rawValue)
    }

    private func enter(_ client: GCDAsyncSocket, as name: String) {
        guard !name.isEmpty, !clients.contains(where: { self.name(of: $0) == name }) else {
            send("*** not this name; another?", to: client)
            readLine(from: client, .name)
            return
        }
        client.userData = name
        send("*** welcome, \(name)", to: client)
        broadcast("*** \(name) joined", except: client)
        readLine(from: client, .line)
    }

    private func handle(_ line: String, from client: GCDAsyncSocket) {
        switch line {
        case "/who":
            send("*** " + clients.compactMap { name(of: $0) }.sorted().joined(separator: ", "), to: client)
        case "/quit":
            send("*** goodbye", to: client)
            client.disconnectAfterWriting()
            return
        default:
            broadcast("\(name(of: client) ?? "?"): \(line)", except: client)
        }
        readLine(from: client, .line)
    }
}

extension ChatServer: GCDAsyncSocketDelegate {
    func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket) {
        print("accepted \(newSocket.connectedHost ?? "?"):\(newSocket.connectedPort)")
        clients.append(newSocket)
        send("*** your name?", to: newSocket)
        readLine(from: newSocket, .name)
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        guard let line = String(data: data.subdata(in: 0..<data.count - 2), encoding: .utf8) else {
            send("*** UTF-8, please", to: sock)
            sock.disconnectAfterWriting()
            return
        }
        switch Tag(rawValue: tag) {
        case .name?: enter(sock, as: line)
        case .line?: handle(line, from: sock)
        default: break
        }
    }

    /// Asks an idle client once whether it is still there, and extends the timeout.
    func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval {
        guard elapsed <= idleTime else { return 0 }
        send("*** are you still there?", to: sock)
        return idleTime
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        guard let index = clients.firstIndex(of: sock) else { return }
        clients.remove(at: index)
        let name = self.name(of: sock) ?? "a stranger"
        switch (err as NSError?)?.code {
        case nil, GCDAsyncSocketError.closedError.rawValue?: print("\(name) left")
        case GCDAsyncSocketError.readTimeoutError.rawValue?: print("\(name) fell asleep")
        case GCDAsyncSocketError.readMaxedOutError.rawValue?: print("\(name) sent a line that is too long")
        case let code?: print("\(name) left: error \(code), \(err?.localizedDescription ?? "")")
        }
        if self.name(of: sock) != nil { broadcast("*** \(name) left", except: sock) }
        endIfEmpty()
    }
}
