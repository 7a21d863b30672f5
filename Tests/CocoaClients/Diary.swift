import CocoaAsyncSocket
import Foundation

/// A delegate in the style of an app for Apple platforms. Records each callback.
package class Diary: NSObject, GCDAsyncSocketDelegate, @unchecked Sendable {
    private let lock = NSLock()
    private var written: [String] = []
    private var sockets: [GCDAsyncSocket] = []
    private var lastError: Error?
    private var received = Data()

    private var plan = Plan()

    /// What a test can configure.
    private struct Plan {
        var extraTimes: [TimeInterval] = []
        var nextSocketQueue: dispatch_queue_t?
        var keepsSockets = true
        var reaction: ((String, GCDAsyncSocket) -> Void)?
        var verdict: (SecTrust) -> Bool = { _ in false }
    }

    /// The return values for timeouts, in order, then 0.
    package var extraTimes: [TimeInterval] {
        get { locked { plan.extraTimes } }
        set { locked { plan.extraTimes = newValue } }
    }
    /// The queue for the next accepted socket.
    package var nextSocketQueue: dispatch_queue_t? {
        get { locked { plan.nextSocketQueue } }
        set { locked { plan.nextSocketQueue = newValue } }
    }
    /// Whether accepted sockets are retained.
    package var keepsSockets: Bool {
        get { locked { plan.keepsSockets } }
        set { locked { plan.keepsSockets = newValue } }
    }
    /// Called in each callback with its line.
    package var reaction: ((String, GCDAsyncSocket) -> Void)? {
        get { locked { plan.reaction } }
        set { locked { plan.reaction = newValue } }
    }
    /// Decides whether to trust a peer.
    package var verdict: (SecTrust) -> Bool {
        get { locked { plan.verdict } }
        set { locked { plan.verdict = newValue } }
    }

    package var lines: [String] { locked { written } }
    package var accepted: [GCDAsyncSocket] { locked { sockets } }
    package var error: Error? { locked { lastError } }
    /// The bytes of all reads.
    package var bytes: Data { locked { received } }

    package func has(_ line: String) -> Bool { lines.contains(line) }
    package func has(prefix: String) -> Bool { lines.contains { $0.hasPrefix(prefix) } }

    /// Releases the accepted sockets.
    package func forget() { locked { sockets = [] } }

    private func locked<Result>(_ body: () -> Result) -> Result {
        lock.lock()
        defer { lock.unlock() }
        return body()
    }

    private func write(_ line: String, _ sock: GCDAsyncSocket) {
        locked { written.append(line) }
        reaction?(line, sock)
    }

    private func nextExtraTime() -> TimeInterval {
        locked { plan.extraTimes.isEmpty ? 0 : plan.extraTimes.removeFirst() }
    }

    // MARK: - GCDAsyncSocketDelegate

    package func newSocketQueueForConnection(fromAddress address: Data, on sock: GCDAsyncSocket) -> dispatch_queue_t? {
        nextSocketQueue
    }

    package func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket) {
        if keepsSockets { locked { sockets.append(newSocket) } }
        write("accepted", newSocket)
    }

    package func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16) {
        write("connected to \(host)", sock)
    }

    package func socket(_ sock: GCDAsyncSocket, didConnectTo url: URL) {
        write("connected to \(url.lastPathComponent)", sock)
    }

    package func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        locked { received.append(data) }
        let text = data.count > 100 ? "\(data.count) bytes" : String(decoding: data, as: UTF8.self)
        write("read \(tag): \(text)", sock)
    }

    package func socket(_ sock: GCDAsyncSocket, didReadPartialDataOfLength partialLength: UInt, tag: Int) {
        write("part of read \(tag): \(partialLength)", sock)
    }

    package func socket(_ sock: GCDAsyncSocket, didWriteDataWithTag tag: Int) {
        write("wrote \(tag)", sock)
    }

    package func socket(_ sock: GCDAsyncSocket, didWritePartialDataOfLength partialLength: UInt, tag: Int) {
        write("part of write \(tag)", sock)
    }

    package func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval {
        write("late read \(tag) with \(length)", sock)
        return nextExtraTime()
    }

    package func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval {
        write("late write \(tag)", sock)
        return nextExtraTime()
    }

    package func socketDidCloseReadStream(_ sock: GCDAsyncSocket) {
        write("read stream closed", sock)
    }

    package func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        locked { lastError = err }
        write("disconnected", sock)
    }

    package func socketDidSecure(_ sock: GCDAsyncSocket) {
        write("secure", sock)
    }

    package func socket(
        _ sock: GCDAsyncSocket, didReceive trust: SecTrust, completionHandler: @escaping (Bool) -> Void
    ) {
        write("asked", sock)
        completionHandler(verdict(trust))
    }
}

/// A delegate with a single method, like many.
package class ReadersDelegate: NSObject, GCDAsyncSocketDelegate, @unchecked Sendable {
    private let lock = NSLock()
    private var ends: [Error?] = []

    package override init() {}

    package var endCount: Int { lock.withLock { ends.count } }
    package var error: Error? { lock.withLock { ends.last ?? nil } }

    package func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        lock.withLock { ends.append(err) }
    }
}

/// A delegate that evaluates trust in a task. Otherwise it only handles the end.
package final class DecidingDelegate: NSObject, GCDAsyncSocketDelegate, @unchecked Sendable {
    private let lock = NSLock()
    private let answer: Bool
    private var isSecure = false
    private var end: Error?

    package init(answering answer: Bool) {
        self.answer = answer
    }

    package var hasSecured: Bool { lock.withLock { isSecure } }
    package var error: Error? { lock.withLock { end } }

    package func socket(_ sock: GCDAsyncSocket, didReceive trust: SecTrust) async -> Bool {
        await Task.yield()
        return answer
    }

    package func socketDidSecure(_ sock: GCDAsyncSocket) {
        lock.withLock { isSecure = true }
    }

    package func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        lock.withLock { end = err }
    }
}

/// A base class that conforms to the protocol, while only its subclass has the callback.
package class SilentBase: NSObject, GCDAsyncSocketDelegate, @unchecked Sendable {}

/// On Apple platforms, the callback is found at run time. Here, the compiler has chosen the default
/// implementation for the base class.
package final class LateSubclass: SilentBase, @unchecked Sendable {
    package private(set) var calls = 0

    package func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: Error?) {
        calls += 1
    }
}
