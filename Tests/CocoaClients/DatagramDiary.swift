import CocoaAsyncSocket
import Foundation

/// A UDP delegate in the style of an app for Apple platforms. Records each callback.
package class DatagramDiary: NSObject, GCDAsyncUdpSocketDelegate, @unchecked Sendable {
    private let lock = NSLock()
    private var written: [String] = []
    private var lastError: Error?
    private var lastAddress: Data?

    package var lines: [String] { lock.withLock { written } }
    package var error: Error? { lock.withLock { lastError } }
    /// The sender of the last datagram.
    package var sender: Data? { lock.withLock { lastAddress } }

    package func has(_ line: String) -> Bool { lines.contains(line) }

    private func write(_ line: String, _ error: Error? = nil) {
        lock.withLock {
            written.append(line)
            if let error { lastError = error }
        }
    }

    // MARK: - GCDAsyncUdpSocketDelegate

    package func udpSocket(_ sock: GCDAsyncUdpSocket, didConnectToAddress address: Data) {
        write("connected to \(GCDAsyncUdpSocket.host(fromAddress: address) ?? "nothing")")
    }

    package func udpSocket(_ sock: GCDAsyncUdpSocket, didNotConnect error: Error?) {
        write("not connected", error)
    }

    package func udpSocket(_ sock: GCDAsyncUdpSocket, didSendDataWithTag tag: Int) {
        write("sent \(tag)")
    }

    package func udpSocket(_ sock: GCDAsyncUdpSocket, didNotSendDataWithTag tag: Int, dueToError error: Error?) {
        write("not sent \(tag)", error)
    }

    package func udpSocket(
        _ sock: GCDAsyncUdpSocket, didReceive data: Data, fromAddress address: Data, withFilterContext filterContext: Any?
    ) {
        lock.withLock { lastAddress = address }
        let note = (filterContext as? NSString).map { " with \($0)" } ?? ""
        write("received " + String(decoding: data, as: UTF8.self) + note)
    }

    package func udpSocketDidClose(_ sock: GCDAsyncUdpSocket, withError error: Error?) {
        write(error == nil ? "closed" : "closed with an error", error)
    }
}

/// A UDP delegate without any methods.
package final class SilentDatagramObserver: NSObject, GCDAsyncUdpSocketDelegate, @unchecked Sendable {}

/// Filters as spelled in OSC and SSDP libraries.
package enum DatagramFilterSpellings {
    package static func install(on socket: GCDAsyncUdpSocket, _ queue: DispatchQueue) {
        socket.setReceiveFilter(
            { (data: Data, address: Data, context: AutoreleasingUnsafeMutablePointer<AnyObject?>) -> Bool in
                guard data.first != UInt8(ascii: "-") else { return false }
                context.pointee = "mark" as NSString
                return true
            }, with: queue)
        socket.setSendFilter({ (data: Data, address: Data, tag: Int) -> Bool in tag != 13 }, with: queue, isAsynchronous: false)
    }

    package static func remove(from socket: GCDAsyncUdpSocket) {
        socket.setReceiveFilter(nil, with: nil)
        socket.setSendFilter(nil, with: nil)
    }
}
