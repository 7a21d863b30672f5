import CocoaAsyncSocket
import Foundation

/// A socket that counts the bytes to write, and limits the length of lines that it reads.
class MeteredSocket: GCDAsyncSocket {
    static var longestLine: UInt = 100
    static var instances = 0

    private let lock = NSLock()
    private var queued = 0
    private var lines = 0

    /// The designated initializer, which is also called for accepted sockets.
    override init(delegate aDelegate: GCDAsyncSocketDelegate?, delegateQueue dq: DispatchQueue?, socketQueue sq: DispatchQueue?) {
        super.init(delegate: aDelegate, delegateQueue: dq, socketQueue: sq)
        lock.lock()
        MeteredSocket.instances += 1
        lock.unlock()
    }

    var summary: String {
        lock.lock()
        defer { lock.unlock() }
        return "\(lines) reads, \(queued) bytes to write"
    }

    override func write(_ data: Data?, withTimeout timeout: TimeInterval, tag: Int) {
        lock.lock()
        queued += data?.count ?? 0
        lock.unlock()
        super.write(data, withTimeout: timeout, tag: tag)
    }

    /// All shorter variants of reading to a terminator call this method.
    override func readData(
        to data: Data, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt,
        maxLength length: UInt, tag: Int
    ) {
        lock.lock()
        lines += 1
        lock.unlock()
        let limit = length == 0 ? MeteredSocket.longestLine : min(length, MeteredSocket.longestLine)
        super.readData(
            to: data, withTimeout: timeout, buffer: buffer, bufferOffset: offset, maxLength: limit, tag: tag)
    }

    override func disconnectAfterWriting() {
        print("leaving after \(summary)")
        super.disconnectAfterWriting()
    }

    override var userData: Any? {
        get { return super.userData ?? "no name" }
        set { super.userData = newValue }
    }
}
