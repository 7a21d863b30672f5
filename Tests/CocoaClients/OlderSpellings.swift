import CocoaAsyncSocket
import Foundation

/// A delegate in the style of programs from before nullability annotations.
package final class OlderDiary: NSObject, GCDAsyncSocketDelegate, GCDAsyncUdpSocketDelegate, @unchecked Sendable {
    private let lock = NSLock()
    private var written: [String] = []

    package var lines: [String] {
        lock.lock()
        defer { lock.unlock() }
        return written
    }

    private func note(_ line: String) {
        lock.lock()
        written.append(line)
        lock.unlock()
    }

    package func socket(_ sock: GCDAsyncSocket!, didConnectToHost host: String!, port: UInt16) { note("connected \(host ?? "")") }

    package func socket(_ sock: GCDAsyncSocket!, didRead data: Data!, withTag tag: Int) {
        note("read \(String(decoding: data, as: UTF8.self)) \(tag)")
    }

    package func socket(_ sock: GCDAsyncSocket!, didWriteDataWithTag tag: Int) { note("wrote \(tag)") }

    package func socket(
        _ sock: GCDAsyncSocket!, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval {
        note("late \(elapsed)")
        // As in the original's echo server.
        return elapsed <= 0.01 ? 0.02 : 0
    }

    package func socketDidDisconnect(_ sock: GCDAsyncSocket!, withError err: Error!) { note("ended \((err as NSError).code)") }

    package func udpSocket(
        _ sock: GCDAsyncUdpSocket!, didReceive data: Data!, fromAddress address: Data!, withFilterContext filterContext: Any!
    ) { note("received \(String(decoding: data, as: UTF8.self))") }

    package func udpSocket(_ sock: GCDAsyncUdpSocket!, didSendDataWithTag tag: Int) { note("sent \(tag)") }
}
