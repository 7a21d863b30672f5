import CocoaAsyncSocket
import Foundation

/// Replies to each query with the name and port of a service.
final class Announcer: NSObject, GCDAsyncUdpSocketDelegate {
    static let question = Data("WHO IS THERE?".utf8)

    private let name: String
    private let servicePort: Int
    private var socket: GCDAsyncUdpSocket?
    private var answers = 0

    init(name: String, servicePort: Int) {
        self.name = name
        self.servicePort = servicePort
        super.init()
    }

    func start(group: String, port: UInt16, interface: String) throws {
        let socket = GCDAsyncUdpSocket(delegate: self, delegateQueue: DispatchQueue.main)
        socket.setIPv6Enabled(false)
        try socket.enableReusePort(true)  // several programs on this machine may listen to the same group
        try socket.bind(toPort: port)
        try socket.joinMulticastGroup(group, onInterface: interface)
        try socket.beginReceiving()
        self.socket = socket
        print("announcing \(name) on port \(socket.localPort())")
    }

    func udpSocket(
        _ sock: GCDAsyncUdpSocket, didReceive data: Data, fromAddress address: Data, withFilterContext filterContext: Any?
    ) {
        guard data == Announcer.question else { return }
        let answer: [String: Any] = ["service": name, "port": servicePort]
        guard let json = try? JSONSerialization.data(withJSONObject: answer) else { return }
        answers += 1
        sock.send(json, toAddress: address, withTimeout: 5, tag: answers)
        var host: NSString?
        var port: UInt16 = 0
        GCDAsyncUdpSocket.getHost(&host, port: &port, fromAddress: address)
        print("asked by \(host ?? "?"):\(port)")
    }

    func udpSocket(_ sock: GCDAsyncUdpSocket, didSendDataWithTag tag: Int) {
        print("answer \(tag) sent")
    }

    func udpSocket(_ sock: GCDAsyncUdpSocket, didNotSendDataWithTag tag: Int, dueToError error: Error?) {
        print("answer \(tag) not sent: \(error?.localizedDescription ?? "")")
    }

    func udpSocketDidClose(_ sock: GCDAsyncUdpSocket, withError error: Error?) {
        print("closed: \(error?.localizedDescription ?? "")")
        exit(1)
    }
}
