import CocoaAsyncSocket
import Foundation

/// A reply. The filter passes it to the delegate as its context.
final class Service: NSObject {
    let name: String
    let port: Int

    init?(json data: Data) {
        guard let fields = (try? JSONSerialization.jsonObject(with: data)) as? [String: Any],
            let name = fields["service"] as? String, let port = fields["port"] as? Int
        else { return nil }
        self.name = name
        self.port = port
    }
}

/// Queries the group and prints each service once.
final class Browser: NSObject {
    private let duration: TimeInterval
    private let filterQueue = DispatchQueue(label: "browser.filter")
    private var socket: GCDAsyncUdpSocket?
    private var found = Set<String>()

    init(duration: TimeInterval) {
        self.duration = duration
        super.init()
    }

    func start(group: String, port: UInt16, interface: String) throws {
        let socket = GCDAsyncUdpSocket(delegate: self, delegateQueue: DispatchQueue.main)
        self.socket = socket
        socket.setPreferIPv4()
        socket.setMaxReceiveIPv4BufferSize(2048)
        // Parses on another queue, and drops all other datagrams.
        socket.setReceiveFilter(
            { data, _, context in
                guard let service = Service(json: data) else { return false }
                context.pointee = service
                return true
            }, with: filterQueue)
        try socket.bind(toPort: 0, interface: interface)
        try socket.sendIPv4Multicast(onInterface: interface)
        try socket.beginReceiving()
        ask(group, port)
        DispatchQueue.main.asyncAfter(deadline: .now() + duration) {
            socket.closeAfterSending()
        }
    }

    /// Sends the query three times, because datagrams can be lost.
    private func ask(_ group: String, _ port: UInt16) {
        for attempt in 0..<3 {
            DispatchQueue.main.asyncAfter(deadline: .now() + duration / 4 * Double(attempt)) { [weak self] in
                self?.socket?.send(Announcer.question, toHost: group, port: port, withTimeout: -1, tag: attempt)
            }
        }
    }
}

extension Browser: GCDAsyncUdpSocketDelegate {
    func udpSocket(_ sock: GCDAsyncUdpSocket, didNotSendDataWithTag tag: Int, dueToError error: Error?) {
        print("question \(tag) not sent: \(error?.localizedDescription ?? "")")
    }

    func udpSocket(
        _ sock: GCDAsyncUdpSocket, didReceive data: Data, fromAddress address: Data, withFilterContext filterContext: Any?
    ) {
        guard let service = filterContext as? Service, found.insert(service.name).inserted else { return }
        print("\(service.name): \(GCDAsyncUdpSocket.host(fromAddress: address) ?? "?"), port \(service.port)")
    }

    func udpSocketDidClose(_ sock: GCDAsyncUdpSocket, withError error: Error?) {
        if let error = error { print("closed: \(error.localizedDescription)") }
        print(found.isEmpty ? "nothing found" : "found \(found.count)")
        exit(found.isEmpty ? 1 : 0)
    }
}
