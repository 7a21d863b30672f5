import CocoaAsyncSocket
import Foundation

/// A subclass with an additional property and no initializer.
package class NamedSocket: GCDAsyncSocket, @unchecked Sendable {
    package var name = "unnamed"
}

/// A subclass that overrides the initializer used for accepted sockets.
package class CountedSocket: GCDAsyncSocket, @unchecked Sendable {
    package var serial = 0

    package override init(
        delegate aDelegate: GCDAsyncSocketDelegate?, delegateQueue dq: DispatchQueue?, socketQueue sq: DispatchQueue?
    ) {
        serial = 7
        super.init(delegate: aDelegate, delegateQueue: dq, socketQueue: sq)
        autoDisconnectOnClosedReadStream = false
    }
}

/// A subclass with its own designated initializer, which does not need to override the base's.
package class HostSocket: GCDAsyncSocket, @unchecked Sendable {
    package let host: String

    package init(host: String, delegate: GCDAsyncSocketDelegate?) {
        self.host = host
        super.init(delegate: delegate, delegateQueue: .main, socketQueue: nil)
    }
}

/// A subclass that intercepts each read and write, in whichever form it is requested.
package class LoggingSocket: GCDAsyncSocket, @unchecked Sendable {
    package private(set) var calls: [String] = []

    package override func readData(
        withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, maxLength length: UInt, tag: Int
    ) {
        calls.append("any \(tag)")
        super.readData(withTimeout: timeout, buffer: buffer, bufferOffset: offset, maxLength: length, tag: tag)
    }

    package override func readData(
        toLength length: UInt, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, tag: Int
    ) {
        calls.append("length \(tag)")
        super.readData(toLength: length, withTimeout: timeout, buffer: buffer, bufferOffset: offset, tag: tag)
    }

    package override func readData(
        to data: Data, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt,
        maxLength length: UInt, tag: Int
    ) {
        calls.append("delimiter \(tag)")
        super.readData(to: data, withTimeout: timeout, buffer: buffer, bufferOffset: offset, maxLength: length, tag: tag)
    }

    package override func write(_ data: Data?, withTimeout timeout: TimeInterval, tag: Int) {
        calls.append("write \(tag)")
        super.write(data, withTimeout: timeout, tag: tag)
    }

    package override func connect(
        toHost host: String, onPort port: UInt16, viaInterface interface: String?, withTimeout timeout: TimeInterval
    ) throws {
        calls.append("connect")
        try super.connect(toHost: host, onPort: port, viaInterface: interface, withTimeout: timeout)
    }

    package override func disconnect() {
        calls.append("disconnect")
        super.disconnect()
    }
}
