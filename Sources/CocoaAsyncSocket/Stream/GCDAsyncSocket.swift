internal import AsyncSockets
public import Dispatch
public import Foundation
internal import SocketBuffers

/// The callbacks of a `GCDAsyncSocket`, which are called on its delegate queue.
///
/// Every method is optional, with a default in a protocol extension. Linux has no `@objc optional`: a method
/// is not called if only a subclass of the conforming class implements it, or if its labels or types differ.
/// Override a base class method, or declare the conformance in the implementing class.
@preconcurrency
public protocol GCDAsyncSocketDelegate: AnyObject {
    /// Returns the queue for an accepted socket. `nil`, the default, means the library's own threads.
    func newSocketQueueForConnection(fromAddress address: Data, on sock: GCDAsyncSocket) -> DispatchQueue?
    /// Reports an accepted connection. Keep a reference to `newSocket`, or it is closed immediately.
    func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket)
    /// Reports that the connection is established. `host` is the peer's address in numeric form.
    func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16)
    /// Reports that the connection to a Unix-domain socket is established.
    func socket(_ sock: GCDAsyncSocket, didConnectTo url: URL)
    /// Reports that a read is complete.
    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int)
    /// Reports that a read has received `partialLength` more bytes, but is not complete yet.
    func socket(_ sock: GCDAsyncSocket, didReadPartialDataOfLength partialLength: UInt, tag: Int)
    /// Reports that a write is complete: the kernel has accepted all of its bytes.
    func socket(_ sock: GCDAsyncSocket, didWriteDataWithTag tag: Int)
    /// Reports that the kernel has accepted `partialLength` more bytes of a write, but not yet all of them.
    func socket(_ sock: GCDAsyncSocket, didWritePartialDataOfLength partialLength: UInt, tag: Int)
    /// Returns how many more seconds a timed-out read may take. Zero, the default, closes the connection.
    func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval
    /// Returns how many more seconds a timed-out write may take. Zero, the default, closes the connection.
    func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval
    /// Reports that the peer has stopped sending. You can continue to write. Called only if
    /// `autoDisconnectOnClosedReadStream` is false.
    func socketDidCloseReadStream(_ sock: GCDAsyncSocket)
    /// Reports the last event: the socket is disconnected. The error is `nil` after `disconnect()`.
    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: (any Error)?)
    /// Reports that the TLS handshake is complete. All further data is encrypted.
    func socketDidSecure(_ sock: GCDAsyncSocket)
    /// Evaluates the peer's certificates. Call the handler once, on any thread, within five minutes. If the
    /// delegate implements neither this method nor the next, the peer is rejected.
    func socket(
        _ sock: GCDAsyncSocket, didReceive trust: SecTrust, completionHandler: @escaping @Sendable (Bool) -> Void)
    /// Evaluates the peer's certificates in a task, if the method with a handler is not implemented.
    func socket(_ sock: GCDAsyncSocket, didReceive trust: SecTrust) async -> Bool

    // Older spellings with implicitly unwrapped types. The defaults of the methods above call these methods.
    /// The older spelling.
    func newSocketQueueForConnection(fromAddress address: Data!, on sock: GCDAsyncSocket!) -> DispatchQueue?
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, didAcceptNewSocket newSocket: GCDAsyncSocket!)
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, didConnectToHost host: String!, port: UInt16)
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, didConnectTo url: URL!)
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, didRead data: Data!, withTag tag: Int)
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, didReadPartialDataOfLength partialLength: UInt, tag: Int)
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, didWriteDataWithTag tag: Int)
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, didWritePartialDataOfLength partialLength: UInt, tag: Int)
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt)
        -> TimeInterval
    /// The older spelling.
    func socket(_ sock: GCDAsyncSocket!, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt)
        -> TimeInterval
    /// The older spelling.
    func socketDidCloseReadStream(_ sock: GCDAsyncSocket!)
    /// The older spelling.
    func socketDidDisconnect(_ sock: GCDAsyncSocket!, withError err: (any Error)!)
    /// The older spelling.
    func socketDidSecure(_ sock: GCDAsyncSocket!)
}

/// A TCP or Unix-domain socket with the interface of CocoaAsyncSocket, implemented on top of `AsyncSocket`.
///
/// Every method can be called on any thread. Only `perform(_:)` and `lookupHost(_:port:)` block. A socket can
/// be reused after it disconnects. When its last reference is released, it closes without a callback.
open class GCDAsyncSocket: NSObject {
    struct Facts {
        weak var delegate: (any GCDAsyncSocketDelegate)?
        var delegateQueue: DispatchQueue?
        var userData: Any?
        var host: String?
        var hasBegunTLS = false
        var trust = EvaluationSettings()
    }

    let facts = Locked(Facts())
    let events = CoreEvents<GCDAsyncSocket>()
    let reads = ReadLedger()
    let marks: SocketQueueMarks
    /// Replaced only when a new socket takes over a connection, before other code can use the socket.
    var core: AsyncSocket

    /// Creates a socket without a delegate or a queue.
    public convenience override init() { self.init(delegate: nil, delegateQueue: nil, socketQueue: nil) }

    /// Creates a socket with a delegate, its queue, and a queue on which the socket runs.
    ///
    /// - Parameters:
    ///   - aDelegate: The delegate, which is referenced weakly.
    ///   - dq: The delegate queue. If it is `nil`, no callbacks are made, and the socket cannot connect or
    ///     listen. On a global queue, callbacks still run one at a time.
    ///   - sq: A serial queue on which the socket runs, or `nil` (recommended) for the library's own threads.
    public init(
        delegate aDelegate: (any GCDAsyncSocketDelegate)?, delegateQueue dq: DispatchQueue?, socketQueue sq: DispatchQueue?
    ) {
        marks = SocketQueueMarks(sq)
        core = Self.makeCore(events, dq, sq)
        super.init()
        facts.withLock { ($0.delegate, $0.delegateQueue) = (aDelegate, dq) }
        events.owner = self
        (core.maximumPendingWriteBytes, core.maximumConnections) = (Self.pendingWriteLimit, .max)
    }

    /// Creates the socket for an accepted connection, with the listener's class. For internal use.
    ///
    /// Unavailable, so that subclasses can omit it. A subclass with its own designated initializer accepts
    /// connections only if it overrides `init(delegate:delegateQueue:socketQueue:)`, as on Apple platforms.
    @available(*, unavailable, message: "a listener creates the sockets that it accepts")
    public required convenience init(accepted listener: GCDAsyncSocket, socketQueue: DispatchQueue?) {
        let (delegate, queue) = listener.audience
        self.init(delegate: delegate, delegateQueue: queue, socketQueue: socketQueue)
    }

    // MARK: - The delegate

    /// The object that receives the callbacks, referenced weakly.
    open var delegate: (any GCDAsyncSocketDelegate)? {
        get { facts.withLock { $0.delegate } }
        set { facts.withLock { $0.delegate = newValue } }
    }
    /// The queue on which the delegate is called. If it is `nil`, no callbacks are made.
    open var delegateQueue: DispatchQueue? {
        get { facts.withLock { $0.delegateQueue } }
        set { callBack(on: newValue) }
    }
    /// Stores the delegate and its queue in the given variables.
    open func getDelegate(
        _ delegatePtr: AutoreleasingUnsafeMutablePointer<(any GCDAsyncSocketDelegate)?>?,
        delegateQueue delegateQueuePtr: AutoreleasingUnsafeMutablePointer<DispatchQueue?>?
    ) {
        let (delegate, queue) = audience
        delegatePtr?.pointee = delegate
        delegateQueuePtr?.pointee = queue
    }
    /// Sets the delegate and its queue. Pending events are delivered to the new delegate.
    open func setDelegate(_ delegate: (any GCDAsyncSocketDelegate)?, delegateQueue: DispatchQueue?) {
        facts.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }
    /// Sets the delegate, exactly like setting `delegate`, which also takes effect immediately.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncSocketDelegate)?) { facts.withLock { $0.delegate = delegate } }
    /// Sets the delegate queue, exactly like setting `delegateQueue`.
    open func synchronouslySetDelegateQueue(_ delegateQueue: DispatchQueue?) { callBack(on: delegateQueue) }
    /// Sets the delegate and its queue, exactly like `setDelegate(_:delegateQueue:)`.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncSocketDelegate)?, delegateQueue: DispatchQueue?) {
        facts.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }

    // MARK: - Configuration

    /// Whether IPv4 is used, including for hosts that also have IPv6 addresses. The default is true.
    open var isIPv4Enabled: Bool {
        get { core.isIPv4Enabled }
        set { core.isIPv4Enabled = newValue }
    }
    /// Whether IPv6 is used. The default is true.
    open var isIPv6Enabled: Bool {
        get { core.isIPv6Enabled }
        set { core.isIPv6Enabled = newValue }
    }
    /// Whether IPv4 addresses are tried first. The default is true.
    open var isIPv4PreferredOverIPv6: Bool {
        get { core.isIPv4PreferredOverIPv6 }
        set { core.isIPv4PreferredOverIPv6 = newValue }
    }
    /// The delay between concurrent connection attempts, in seconds. The default is 0.3. After a failed
    /// attempt, the next attempt starts immediately.
    open var alternateAddressDelay: TimeInterval {
        get { core.attemptDelay }
        set { core.attemptDelay = newValue }
    }
    /// An arbitrary value for the program's own use.
    open var userData: Any? {
        get { facts.withLock { $0.userData } }
        set { replaceUserData(newValue) }
    }
    /// Whether to disconnect when the peer stops sending (default: true). See `socketDidCloseReadStream`.
    open var autoDisconnectOnClosedReadStream: Bool {
        get { core.autoDisconnectOnClosedReadStream }
        set { core.autoDisconnectOnClosedReadStream = newValue }
    }

    // MARK: - Listening and connecting

    /// Listens on a port on all interfaces. If the port is 0, the kernel chooses a free port.
    open func accept(onPort port: UInt16) throws { try accept(onInterface: nil, port: port) }
    /// Listens on one interface: a name, an address, "localhost" or "loopback". `nil` means all interfaces.
    open func accept(onInterface interface: String?, port: UInt16) throws {
        try begin("accept", to: nil, by: interface) { core throws(AsyncSocketError) in
            try core.accept(onInterface: interface, port: port)
        }
    }
    /// Listens on a Unix-domain socket. An existing file is replaced only if it is an abandoned socket.
    open func accept(on url: URL) throws {
        try begin("accept", to: nil) { core throws(AsyncSocketError) in try core.accept(onPath: url.path) }
    }
    /// Connects to a host without a timeout.
    open func connect(toHost host: String, onPort port: UInt16) throws {
        try connect(toHost: host, onPort: port, withTimeout: -1)
    }
    /// Connects to a host, with a timeout in seconds. A negative timeout means no limit.
    open func connect(toHost host: String, onPort port: UInt16, withTimeout timeout: TimeInterval) throws {
        try connect(toHost: host, onPort: port, viaInterface: nil, withTimeout: timeout)
    }
    /// Connects to a host via an interface: a name or an address, with an optional ":" and local port.
    open func connect(
        toHost host: String, onPort port: UInt16, viaInterface interface: String?, withTimeout timeout: TimeInterval
    ) throws {
        let host = try HostLookup.nonEmptyText(host)
        try begin("connect", to: host, by: interface) { core throws(AsyncSocketError) in
            try core.connect(toHost: host, onPort: port, viaInterface: interface, withTimeout: timeout)
        }
    }
    /// Connects to an address, a `sockaddr` in a Data, without a timeout.
    open func connect(toAddress remoteAddr: Data) throws {
        try connect(toAddress: remoteAddr, viaInterface: nil, withTimeout: -1)
    }
    /// Connects to an address, with a timeout in seconds.
    open func connect(toAddress remoteAddr: Data, withTimeout timeout: TimeInterval) throws {
        try connect(toAddress: remoteAddr, viaInterface: nil, withTimeout: timeout)
    }
    /// Connects to an address via an interface, with a timeout in seconds.
    open func connect(toAddress remoteAddr: Data, viaInterface interface: String?, withTimeout timeout: TimeInterval) throws {
        let address = try Self.internetAddress(remoteAddr)
        try begin("connect", to: address.host, by: interface) { core throws(AsyncSocketError) in
            try core.connect(toAddress: address, viaInterface: interface, withTimeout: timeout)
        }
    }
    /// Connects to a Unix-domain socket, with a timeout in seconds.
    open func connect(to url: URL, withTimeout timeout: TimeInterval) throws {
        try begin("connect", to: nil) { core throws(AsyncSocketError) in
            try core.connect(toPath: url.path, withTimeout: timeout)
        }
    }

    /// Immediately closes the connection, attempt or listener. Pending reads and writes are dropped.
    open func disconnect() { core.disconnect() }
    /// Closes the connection after the reads queued so far are complete. A listener closes immediately.
    open func disconnectAfterReading() { core.disconnectAfterReading() }
    /// Closes the connection after the writes queued so far are complete. A listener closes immediately.
    open func disconnectAfterWriting() { core.disconnectAfterWriting() }
    /// Closes the connection after all reads and writes queued so far. A listener closes immediately.
    open func disconnectAfterReadingAndWriting() { core.disconnectAfterReadingAndWriting() }

    // MARK: - Facts

    /// Whether the socket is neither connecting, connected nor listening.
    open var isDisconnected: Bool { core.isDisconnected }
    /// Whether a connection is established.
    open var isConnected: Bool { core.isConnected }
    /// The peer's address in numeric form, or `nil` if the socket is not connected.
    open var connectedHost: String? { peer?.host }
    /// The peer's port, or 0 if the socket is not connected.
    open var connectedPort: UInt16 { peer?.port ?? 0 }
    /// The file URL of the peer's Unix-domain socket, or `nil` for any other connection.
    open var connectedUrl: URL? { peer?.unixPath.map { URL(fileURLWithPath: $0) } }
    /// The local address in numeric form, or `nil` if the socket is neither connected nor listening.
    open var localHost: String? { local?.host }
    /// The local port, or 0 if the socket is neither connected nor listening.
    open var localPort: UInt16 { local?.port ?? 0 }
    /// The peer's address as a `sockaddr`, or `nil` if the socket is not connected.
    open var connectedAddress: Data? { peer?.data }
    /// The local address as a `sockaddr`, or `nil` if the socket is neither connected nor listening.
    open var localAddress: Data? { local?.data }
    /// Whether the socket is connected or listening over IPv4.
    open var isIPv4: Bool { has(.ipv4) }
    /// Whether the socket is connected or listening over IPv6.
    open var isIPv6: Bool { has(.ipv6) }
    /// Whether the TLS handshake is complete and the connection is still established.
    open var isSecure: Bool { core.isConnected && core.isSecure }

    // MARK: - Reading

    /// Reads the first bytes that arrive. A negative timeout means no limit.
    open func readData(withTimeout timeout: TimeInterval, tag: Int) {
        readData(withTimeout: timeout, buffer: nil, bufferOffset: 0, maxLength: 0, tag: tag)
    }
    /// Reads the first bytes that arrive into a buffer.
    open func readData(withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, tag: Int) {
        readData(withTimeout: timeout, buffer: buffer, bufferOffset: offset, maxLength: 0, tag: tag)
    }
    /// Reads up to `length` bytes (0: no limit) into a buffer. An offset past its end drops the read.
    open func readData(
        withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, maxLength length: UInt, tag: Int
    ) {
        enqueueRead(buffer, offset, tag) { $0.readData(withTimeout: timeout, maxLength: GCDAsyncSocket.limit(length), tag: $1) }
    }
    /// Reads exactly `length` bytes. A read with a length of 0 is dropped.
    open func readData(toLength length: UInt, withTimeout timeout: TimeInterval, tag: Int) {
        readData(toLength: length, withTimeout: timeout, buffer: nil, bufferOffset: 0, tag: tag)
    }
    /// Reads exactly `length` bytes into a buffer.
    open func readData(
        toLength length: UInt, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, tag: Int
    ) {
        guard length > 0 else { return note("a read was dropped: its length is 0") }
        enqueueRead(buffer, offset, tag) { $0.readData(toLength: Int(clamping: length), withTimeout: timeout, tag: $1) }
    }
    /// Reads up to and including a delimiter, without a limit. A `nil` or empty delimiter drops the read.
    open func readData(to data: Data?, withTimeout timeout: TimeInterval, tag: Int) {
        readData(to: data ?? Data(), withTimeout: timeout, buffer: nil, bufferOffset: 0, maxLength: 0, tag: tag)
    }
    /// Reads up to and including a delimiter, into a buffer.
    open func readData(
        to data: Data, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, tag: Int
    ) {
        readData(to: data, withTimeout: timeout, buffer: buffer, bufferOffset: offset, maxLength: 0, tag: tag)
    }
    /// Reads up to and including a delimiter. Closes the connection if `length` bytes arrive without it.
    open func readData(to data: Data, withTimeout timeout: TimeInterval, maxLength length: UInt, tag: Int) {
        readData(to: data, withTimeout: timeout, buffer: nil, bufferOffset: 0, maxLength: length, tag: tag)
    }
    /// Reads into a buffer, up to and including a delimiter. A limit below its length drops the read.
    open func readData(
        to data: Data, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt,
        maxLength length: UInt, tag: Int
    ) {
        guard !data.isEmpty, length == 0 || length >= data.count else {
            return note("a read was dropped: its delimiter is empty or too long")
        }
        enqueueRead(buffer, offset, tag) {
            $0.readData(to: data, withTimeout: timeout, maxLength: GCDAsyncSocket.limit(length), tag: $1)
        }
    }
    /// Returns the current read's progress, from 0 to 1: 1 if its length is unknown, NaN if no read is
    /// queued.
    open func progress(
        ofReadReturningTag tagPtr: UnsafeMutablePointer<Int>?, bytesDone donePtr: UnsafeMutablePointer<UInt>?,
        total totalPtr: UnsafeMutablePointer<UInt>?
    ) -> Float {
        let read = core.readProgress
        return Self.report(read, tag: read.flatMap { reads.tag(of: $0.tag) }, tagPtr, donePtr, totalPtr)
    }

    // MARK: - Writing

    /// Writes all of the data. `nil` or empty data is dropped without a callback.
    open func write(_ data: Data?, withTimeout timeout: TimeInterval, tag: Int) {
        if let data { core.write(data, withTimeout: timeout, tag: tag) }
    }
    /// Returns the current write's progress, from 0 to 1, or NaN if no write is queued.
    open func progress(
        ofWriteReturningTag tagPtr: UnsafeMutablePointer<Int>?, bytesDone donePtr: UnsafeMutablePointer<UInt>?,
        total totalPtr: UnsafeMutablePointer<UInt>?
    ) -> Float {
        let write = core.writeProgress
        return Self.report(write, tag: write?.tag, tagPtr, donePtr, totalPtr)
    }

    /// Upgrades the connection to TLS, after the reads and writes queued so far.
    ///
    /// A client verifies the certificate and the host name, unless the settings leave the decision to the
    /// delegate. Unusable settings close the connection. A second call on the same connection has no effect.
    open func startTLS(_ tlsSettings: [String: NSObject]?) { upgrade(tlsSettings ?? [:]) }
    /// Returns the TLS state of a secure connection inside `perform(_:)`, and `nil` elsewhere.
    open func sslContext() -> SSLContext? {
        guard marks.isCurrent, isSecure, let session = core.tlsSession else { return nil }
        return SSLContext(session, facts.withLock { $0.trust })
    }

    // MARK: - The socket's queue

    /// Treats code on a queue as code on the socket's queue. The socket's queue must target this queue.
    open func markQueueTargetQueue(_ socketQueuesPreConfiguredTargetQueue: DispatchQueue) {
        marks.mark(socketQueuesPreConfiguredTargetQueue)
    }
    /// Reverts `markQueueTargetQueue(_:)`.
    open func unmarkSocketQueueTargetQueue(_ socketQueuesPreviouslyConfiguredTargetQueue: DispatchQueue) {
        marks.unmark(socketQueuesPreviouslyConfiguredTargetQueue)
    }
    /// Runs a block with exclusive access to the connection, and blocks until the block returns.
    open func perform(_ block: @escaping () -> Void) { marks.performAndWait(block) { core.perform($0) } }
    /// Returns the descriptor inside `perform(_:)`, and -1 elsewhere.
    open func socketFD() -> Int32 { descriptor(nil) }
    /// Returns the descriptor of an IPv4 connection inside `perform(_:)`, and -1 elsewhere.
    open func socket4FD() -> Int32 { descriptor(.ipv4) }
    /// Returns the descriptor of an IPv6 connection inside `perform(_:)`, and -1 elsewhere.
    open func socket6FD() -> Int32 { descriptor(.ipv6) }
}
