import CocoaAsyncSocket
import Foundation

/// A user's connection, which reconnects when it is lost. Messages without a receipt are sent again.
final class Messenger: NSObject {
    private enum Tag: Int {
        case header = 1
        case body
        case frame
    }

    private let host: String
    private let port: UInt16
    private let user: String
    private let heartbeatInterval: TimeInterval

    private let queue = DispatchQueue(label: "messenger")
    private lazy var socket = GCDAsyncSocket(delegate: self, delegateQueue: queue)
    private var heartbeat: DispatchSourceTimer?
    private var missedHeartbeats = 0
    private var reconnectDelay: TimeInterval = 0.25
    private var isLoggedIn = false
    private var isStopping = false

    private var unsent: [Frame] = []
    private var lastID = 0
    private var currentHeader: [String: Any]?

    init(host: String, port: UInt16, user: String, heartbeatInterval: TimeInterval) {
        self.host = host
        self.port = port
        self.user = user
        self.heartbeatInterval = heartbeatInterval
        super.init()
    }

    func start() {
        queue.async { self.connect() }
    }

    func send(_ body: Data, type: String, to recipient: String) {
        queue.async {
            self.lastID += 1
            let frame = Frame(type: type, id: self.lastID, from: self.user, to: recipient, body: body)
            self.unsent.append(frame)
            if self.isLoggedIn { self.write(frame) } else { print("message \(frame.id) waits") }
        }
    }

    /// Exits the program once all messages have receipts.
    func stop() {
        queue.async {
            self.isStopping = true
            self.endIfDone()
        }
    }

    private func endIfDone() {
        guard isStopping, unsent.isEmpty else { return }
        if socket.isDisconnected { exit(0) }
        write(Frame(type: "bye", from: user))
        socket.disconnectAfterWriting()
    }

    private func connect() {
        guard socket.isDisconnected else { return }
        do {
            try socket.connect(toHost: host, onPort: port, withTimeout: 5)
        } catch {
            print("cannot connect: \(error.localizedDescription)")
            exit(1)
        }
    }

    private func connectLater() {
        let delay = reconnectDelay
        reconnectDelay = min(reconnectDelay * 2, 2)
        queue.asyncAfter(deadline: .now() + delay) { [weak self] in self?.connect() }
    }

    private func write(_ frame: Frame) {
        guard let packet = frame.packet else { return }
        socket.write(packet, withTimeout: 30, tag: Tag.frame.rawValue)
    }

    private func readHeader() {
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, maxLength: 4096, tag: Tag.header.rawValue)
    }

    private func startHeartbeat() {
        missedHeartbeats = 0
        let timer = DispatchSource.makeTimerSource(queue: queue)
        timer.schedule(deadline: .now() + heartbeatInterval, repeating: heartbeatInterval)
        timer.setEventHandler { [weak self] in self?.beat() }
        timer.resume()
        heartbeat = timer
    }

    private func beat() {
        guard missedHeartbeats < 3 else {
            print("the server does not answer")
            socket.disconnect()
            return
        }
        missedHeartbeats += 1
        write(Frame(type: "heartbeat", from: user))
    }
}

extension Messenger {
    private func receivedHeader(_ line: Data) {
        guard let (fields, size) = Frame.header(in: line) else {
            print("the server sent a bad header")
            socket.disconnect()
            return
        }
        if size == 0 {
            received(Frame(header: fields, body: Data()))
            readHeader()
        } else {
            currentHeader = fields
            socket.readData(toLength: UInt(size), withTimeout: 60, tag: Tag.body.rawValue)
        }
    }

    private func received(_ frame: Frame) {
        let sender = frame.header["from"] as? String ?? "?"
        switch frame.type {
        case "welcome":
            isLoggedIn = true
            reconnectDelay = 0.25
            print("logged in")
            startHeartbeat()
            unsent.forEach(write)
            endIfDone()
        case "heartbeat":
            missedHeartbeats = 0
        case "receipt":
            unsent.removeAll { $0.id == frame.id }
            print("message \(frame.id) arrived")
            endIfDone()
        case "text":
            print("\(sender): \(String(data: frame.body, encoding: .utf8) ?? "?")")
        case "file":
            print("\(sender) sent a file of \(frame.body.count) bytes")
        default:
            print("unknown type: \(frame.type)")
        }
    }
}

extension Messenger: GCDAsyncSocketDelegate {
    func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16) {
        print("connected to \(host), port \(port)")
        write(Frame(type: "login", from: user))
        readHeader()
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        if tag == Tag.header.rawValue {
            receivedHeader(data)
        } else if let header = currentHeader {
            currentHeader = nil
            received(Frame(header: header, body: data))
            readHeader()
        }
    }

    func socket(_ sock: GCDAsyncSocket, didReadPartialDataOfLength partialLength: UInt, tag: Int) {
        guard tag == Tag.body.rawValue else { return }
        var done: UInt = 0
        var total: UInt = 0
        let progress = sock.progress(ofReadReturningTag: nil, bytesDone: &done, total: &total)
        // The read may have completed meanwhile. Then there is no current read and no number.
        if !progress.isNaN { print("received \(done) of \(total) bytes") }
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        heartbeat?.cancel()
        heartbeat = nil
        isLoggedIn = false
        currentHeader = nil
        if isStopping, unsent.isEmpty { exit(0) }
        if let error = err as NSError? {
            print("disconnected: \(error.localizedDescription) (\(error.domain) \(error.code))")
        } else {
            print("disconnected")
        }
        connectLater()
    }
}
