internal import AsyncSockets
public import Dispatch
public import Foundation
internal import SocketBuffers

/// The callbacks of a `GCDAsyncSocket`, on its delegate queue.
///
/// Every method is optional: a default takes the place of one that the delegate lacks. `@objc optional`
/// cannot be on Linux, so two things differ: a callback that only a subclass of the conforming class has is
/// not called, and neither is one whose labels or types differ. Put `override` and a base method, or the
/// conformance, where the methods are.
@preconcurrency
public protocol GCDAsyncSocketDelegate: NSObjectProtocol {
    /// Return the queue on which an accepted socket is to run; nil (the default): the library's own threads.
    func newSocketQueueForConnection(fromAddress address: Data, on sock: GCDAsyncSocket) -> DispatchQueue?
    /// A listening socket has accepted a connection: keep `newSocket`, or it is closed at once.
    func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket)
    /// The connection is established. `host` is the peer's address in numbers.
    func socket(_ sock: GCDAsyncSocket, didConnectToHost host: String, port: UInt16)
    /// The connection to a Unix-domain socket is established.
    func socket(_ sock: GCDAsyncSocket, didConnectTo url: URL)
    /// A read is complete.
    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int)
    /// A read has received so many more bytes, and is not complete yet.
    func socket(_ sock: GCDAsyncSocket, didReadPartialDataOfLength partialLength: UInt, tag: Int)
    /// A write is complete: the kernel has all its bytes.
    func socket(_ sock: GCDAsyncSocket, didWriteDataWithTag tag: Int)
    /// The kernel has taken so many more bytes of a write, and some are left.
    func socket(_ sock: GCDAsyncSocket, didWritePartialDataOfLength partialLength: UInt, tag: Int)
    /// A read has timed out: return how many more seconds it gets; zero (the default) ends the connection.
    func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval
    /// A write has timed out: return how many more seconds it gets; zero (the default) ends the connection.
    func socket(
        _ sock: GCDAsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: UInt
    ) -> TimeInterval
    /// The peer sends no more, and `autoDisconnectOnClosedReadStream` is false: you may go on writing.
    func socketDidCloseReadStream(_ sock: GCDAsyncSocket)
    /// The connection, the attempt or the listener has ended: the last callback. `disconnect()` has no error.
    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: (any Error)?)
    /// Everything from here on is encrypted.
    func socketDidSecure(_ sock: GCDAsyncSocket)
    /// Trust is evaluated by hand: call the handler once, on any thread, within five minutes. Without this
    /// method and the next the peer is refused.
    func socket(
        _ sock: GCDAsyncSocket, didReceive trust: SecTrust, completionHandler: @escaping @Sendable (Bool) -> Void)
    /// The same for a delegate that decides in a task. It is asked if the other method is not there.
    func socket(_ sock: GCDAsyncSocket, didReceive trust: SecTrust) async -> Bool

    // The same with exclamation marks, as older programs spell it: the ordinary method's default calls it.
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

/// A TCP or Unix-domain socket with the interface of CocoaAsyncSocket, over `AsyncSocket`.
///
/// Every method may be called on any thread, and only `perform(_:)` and `lookupHost(_:port:)` wait. A socket
/// may be used again after its end. When the last reference goes, the connection closes without a callback.
open class GCDAsyncSocket: NSObject {
    /// The facts that the core does not know.
    struct Facts {
        weak var delegate: (any GCDAsyncSocketDelegate)?
        var delegateQueue: DispatchQueue?
        var userData: Any?
        /// About the connection: the host that it goes to, and whether `startTLS` was called.
        var host: String?
        var hasBegunTLS = false
        var trust = EvaluationSettings()
    }

    let facts = Locked(Facts())
    let events = CoreEvents<GCDAsyncSocket>()
    let reads = ReadLedger()
    let marks: SocketQueueMarks
    /// Replaced only before anyone else knows this socket, when it takes over a connection.
    var core: AsyncSocket

    /// A socket without a delegate and a queue.
    public convenience override init() { self.init(delegate: nil, delegateQueue: nil, socketQueue: nil) }

    /// A socket with a delegate, the queue on which it is called, and a queue on which the socket runs.
    ///
    /// - Parameters:
    ///   - aDelegate: Held weakly.
    ///   - dq: Without one nothing is called, and the socket cannot connect or listen. A global queue is
    ///     used one callback at a time.
    ///   - sq: A serial queue; nil (recommended): the library's own threads.
    public init(
        delegate aDelegate: (any GCDAsyncSocketDelegate)?, delegateQueue dq: DispatchQueue?, socketQueue sq: DispatchQueue?
    ) {
        marks = SocketQueueMarks(sq)
        core = Self.makeCore(events, dq, sq)
        super.init()
        facts.withLock { ($0.delegate, $0.delegateQueue) = (aDelegate, dq) }
        events.owner = self
        core.maximumPendingWriteBytes = Self.pendingWriteLimit
    }

    /// For the library alone: makes the socket of an accepted connection, of the listener's class.
    ///
    /// Unavailable, so that a subclass need not have it. One with a designated initializer of its own accepts
    /// connections only if it overrides `init(delegate:delegateQueue:socketQueue:)`, as on Apple platforms.
    @available(*, unavailable, message: "a listener makes the sockets that it accepts")
    public required convenience init(accepted listener: GCDAsyncSocket, socketQueue: DispatchQueue?) {
        let (delegate, queue) = listener.audience
        self.init(delegate: delegate, delegateQueue: queue, socketQueue: socketQueue)
    }

    // MARK: - The delegate

    /// The object that gets the callbacks, held weakly.
    open var delegate: (any GCDAsyncSocketDelegate)? {
        get { facts.withLock { $0.delegate } }
        set { facts.withLock { $0.delegate = newValue } }
    }
    /// The queue on which the delegate is called; nil: nothing is called.
    open var delegateQueue: DispatchQueue? {
        get { facts.withLock { $0.delegateQueue } }
        set { callBack(on: newValue) }
    }
    /// Stores the delegate and its queue where the pointers say.
    open func getDelegate(
        _ delegatePtr: AutoreleasingUnsafeMutablePointer<(any GCDAsyncSocketDelegate)?>?,
        delegateQueue delegateQueuePtr: AutoreleasingUnsafeMutablePointer<DispatchQueue?>?
    ) {
        let (delegate, queue) = audience
        delegatePtr?.pointee = delegate
        delegateQueuePtr?.pointee = queue
    }
    /// Sets another delegate and its queue. Events on their way go to the new one.
    open func setDelegate(_ delegate: (any GCDAsyncSocketDelegate)?, delegateQueue: DispatchQueue?) {
        facts.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }
    /// The same as setting `delegate`: that too takes effect at once.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncSocketDelegate)?) { facts.withLock { $0.delegate = delegate } }
    /// The same as setting `delegateQueue`.
    open func synchronouslySetDelegateQueue(_ delegateQueue: DispatchQueue?) { callBack(on: delegateQueue) }
    /// The same as `setDelegate(_:delegateQueue:)`.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncSocketDelegate)?, delegateQueue: DispatchQueue?) {
        facts.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }

    // MARK: - Configuration

    /// Whether to use IPv4. True at first, and honoured where a host has both versions.
    open var isIPv4Enabled: Bool {
        get { core.isIPv4Enabled }
        set { core.isIPv4Enabled = newValue }
    }
    /// Whether to use IPv6. True at first.
    open var isIPv6Enabled: Bool {
        get { core.isIPv6Enabled }
        set { core.isIPv6Enabled = newValue }
    }
    /// Whether to try IPv4 first. True at first.
    open var isIPv4PreferredOverIPv6: Bool {
        get { core.isIPv4PreferredOverIPv6 }
        set { core.isIPv4PreferredOverIPv6 = newValue }
    }
    /// Seconds between two attempts beside each other; 0.3 at first. After a failure the next begins at once.
    open var alternateAddressDelay: TimeInterval {
        get { core.alternateAddressDelay }
        set { core.alternateAddressDelay = newValue }
    }
    /// A value of your own.
    open var userData: Any? {
        get { facts.withLock { $0.userData } }
        set { replaceUserData(newValue) }
    }
    /// Whether the connection ends with the peer's last byte: see `socketDidCloseReadStream`. True at first.
    open var autoDisconnectOnClosedReadStream: Bool {
        get { core.autoDisconnectOnClosedReadStream }
        set { core.autoDisconnectOnClosedReadStream = newValue }
    }

    // MARK: - Listening and connecting

    /// Listens on a port of all interfaces; 0: the kernel chooses one.
    open func accept(onPort port: UInt16) throws { try accept(onInterface: nil, port: port) }
    /// Listens on a port of one interface: a name, an address, "localhost" or "loopback"; nil: all.
    open func accept(onInterface interface: String?, port: UInt16) throws {
        try begin("accept", to: nil, by: interface) { core throws(AsyncSocketError) in
            try core.accept(onInterface: interface, port: port)
        }
    }
    /// Listens on a Unix-domain socket. A file there that is not an abandoned socket is left alone.
    open func accept(on url: URL) throws {
        try begin("accept", to: nil) { core throws(AsyncSocketError) in try core.accept(onPath: url.path) }
    }
    /// Connects to a host, without a limit of time.
    open func connect(toHost host: String, onPort port: UInt16) throws {
        try connect(toHost: host, onPort: port, withTimeout: -1)
    }
    /// Connects to a host within so many seconds; negative: no limit.
    open func connect(toHost host: String, onPort port: UInt16, withTimeout timeout: TimeInterval) throws {
        try connect(toHost: host, onPort: port, viaInterface: nil, withTimeout: timeout)
    }
    /// Connects to a host by an interface: a name or an address, which a colon and our port may follow.
    open func connect(
        toHost host: String, onPort port: UInt16, viaInterface interface: String?, withTimeout timeout: TimeInterval
    ) throws {
        guard !host.isEmpty else { throw GCDAsyncSocketError(.badParamError, InterfaceCheck.emptyHost) }
        try begin("connect", to: host, by: interface) { core throws(AsyncSocketError) in
            try core.connect(toHost: host, onPort: port, viaInterface: interface, withTimeout: timeout)
        }
    }
    /// Connects to an address, a `sockaddr` in a Data.
    open func connect(toAddress remoteAddr: Data) throws {
        try connect(toAddress: remoteAddr, viaInterface: nil, withTimeout: -1)
    }
    /// Connects to an address within so many seconds.
    open func connect(toAddress remoteAddr: Data, withTimeout timeout: TimeInterval) throws {
        try connect(toAddress: remoteAddr, viaInterface: nil, withTimeout: timeout)
    }
    /// Connects to an address by an interface.
    open func connect(toAddress remoteAddr: Data, viaInterface interface: String?, withTimeout timeout: TimeInterval) throws {
        let address = try Self.internetAddress(remoteAddr)
        try begin("connect", to: address.host, by: interface) { core throws(AsyncSocketError) in
            try core.connect(toAddress: address, viaInterface: interface, withTimeout: timeout)
        }
    }
    /// Connects to a Unix-domain socket.
    open func connect(to url: URL, withTimeout timeout: TimeInterval) throws {
        try begin("connect", to: nil) { core throws(AsyncSocketError) in
            try core.connect(toPath: url.path, withTimeout: timeout)
        }
    }

    /// Ends the connection, the attempt or the listener at once. Reads and writes that wait are dropped.
    open func disconnect() { core.disconnect() }
    /// Ends the connection once the reads that wait now are complete.
    open func disconnectAfterReading() { core.disconnectAfterReading() }
    /// Ends the connection once the writes that wait now are complete.
    open func disconnectAfterWriting() { core.disconnectAfterWriting() }
    /// Ends the connection once the reads and writes that wait now are complete.
    open func disconnectAfterReadingAndWriting() { core.disconnectAfterReadingAndWriting() }

    // MARK: - Facts

    /// True when the socket is neither connecting, connected nor listening.
    open var isDisconnected: Bool { core.isDisconnected }
    /// True while a connection is established.
    open var isConnected: Bool { core.isConnected }
    /// The peer's address in numbers; nil without a connection.
    open var connectedHost: String? { peer?.host }
    /// The peer's port; 0 without a connection.
    open var connectedPort: UInt16 { peer?.port ?? 0 }
    /// The file of the peer's Unix-domain socket; nil for any other connection.
    open var connectedUrl: URL? { peer?.unixPath.map { URL(fileURLWithPath: $0) } }
    /// Our address in numbers; nil without a connection and a listener.
    open var localHost: String? { local?.host }
    /// Our port; 0 without a connection and a listener.
    open var localPort: UInt16 { local?.port ?? 0 }
    /// The peer's address, a `sockaddr`; nil without a connection.
    open var connectedAddress: Data? { peer?.data }
    /// Our address, a `sockaddr`; nil without a connection and a listener.
    open var localAddress: Data? { local?.data }
    /// True for a connection or a listener over IPv4.
    open var isIPv4: Bool { has(.ipv4) }
    /// True for a connection or a listener over IPv6.
    open var isIPv6: Bool { has(.ipv6) }
    /// True once the handshake is complete, until the connection ends.
    open var isSecure: Bool { core.isConnected && core.isSecure }

    // MARK: - Reading

    /// Reads the first bytes that arrive. A negative timeout means unlimited.
    open func readData(withTimeout timeout: TimeInterval, tag: Int) {
        readData(withTimeout: timeout, buffer: nil, bufferOffset: 0, maxLength: 0, tag: tag)
    }
    /// Reads the first bytes that arrive into a buffer.
    open func readData(withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, tag: Int) {
        readData(withTimeout: timeout, buffer: buffer, bufferOffset: offset, maxLength: 0, tag: tag)
    }
    /// Reads at most so many bytes, 0 for no limit, into a buffer. An offset beyond its end drops the read.
    open func readData(
        withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, maxLength length: UInt, tag: Int
    ) {
        enqueueRead(buffer, offset, tag) { $0.readData(withTimeout: timeout, maxLength: GCDAsyncSocket.limit(length), tag: $1) }
    }
    /// Reads so many bytes. A length of zero drops the read.
    open func readData(toLength length: UInt, withTimeout timeout: TimeInterval, tag: Int) {
        readData(toLength: length, withTimeout: timeout, buffer: nil, bufferOffset: 0, tag: tag)
    }
    /// Reads so many bytes into a buffer.
    open func readData(
        toLength length: UInt, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, tag: Int
    ) {
        guard length > 0 else { return note("a read of no bytes was dropped") }
        enqueueRead(buffer, offset, tag) { $0.readData(toLength: Int(clamping: length), withTimeout: timeout, tag: $1) }
    }
    /// Reads up to and including a delimiter, however far away. Nil or an empty one drops the read.
    open func readData(to data: Data?, withTimeout timeout: TimeInterval, tag: Int) {
        readData(to: data ?? Data(), withTimeout: timeout, buffer: nil, bufferOffset: 0, maxLength: 0, tag: tag)
    }
    /// Reads up to and including a delimiter, into a buffer.
    open func readData(
        to data: Data, withTimeout timeout: TimeInterval, buffer: NSMutableData?, bufferOffset offset: UInt, tag: Int
    ) {
        readData(to: data, withTimeout: timeout, buffer: buffer, bufferOffset: offset, maxLength: 0, tag: tag)
    }
    /// Reads up to and including a delimiter, and ends the connection when so many bytes come without it.
    open func readData(to data: Data, withTimeout timeout: TimeInterval, maxLength length: UInt, tag: Int) {
        readData(to: data, withTimeout: timeout, buffer: nil, bufferOffset: 0, maxLength: length, tag: tag)
    }
    /// The same into a buffer. A limit shorter than the delimiter drops the read.
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
    /// How far the current read is, from 0 to 1; 1 when its length is not known, and NaN without a read.
    open func progress(
        ofReadReturningTag tagPtr: UnsafeMutablePointer<Int>?, bytesDone donePtr: UnsafeMutablePointer<UInt>?,
        total totalPtr: UnsafeMutablePointer<UInt>?
    ) -> Float {
        let read = core.readProgress
        return Self.report(read, tag: read.flatMap { reads.tag(of: $0.tag) }, tagPtr, donePtr, totalPtr)
    }

    // MARK: - Writing

    /// Writes all of the data. Nil or empty data is dropped, without a callback.
    open func write(_ data: Data?, withTimeout timeout: TimeInterval, tag: Int) {
        if let data { core.write(data, withTimeout: timeout, tag: tag) }
    }
    /// How far the current write is, from 0 to 1; NaN without a write.
    open func progress(
        ofWriteReturningTag tagPtr: UnsafeMutablePointer<Int>?, bytesDone donePtr: UnsafeMutablePointer<UInt>?,
        total totalPtr: UnsafeMutablePointer<UInt>?
    ) -> Float {
        let write = core.writeProgress
        return Self.report(write, tag: write?.tag, tagPtr, donePtr, totalPtr)
    }

    /// Upgrades the connection to TLS, after the reads and writes that wait now.
    ///
    /// A client verifies the certificate and the host name, unless the settings say that the delegate
    /// decides. Settings that cannot be used end the connection. A second call on a connection does nothing.
    open func startTLS(_ tlsSettings: [String: NSObject]?) { upgrade(tlsSettings ?? [:]) }
    /// The connection's TLS, inside `perform(_:)` and once it is secure; otherwise nil.
    open func sslContext() -> SSLContext? {
        guard marks.isCurrent, isSecure, let session = core.tlsSession else { return nil }
        return SSLContext(session, facts.withLock { $0.trust })
    }

    // MARK: - The socket's queue

    /// Code on this queue counts as code on the socket's queue, which targets it.
    open func markQueueTargetQueue(_ socketQueuesPreConfiguredTargetQueue: DispatchQueue) {
        marks.mark(socketQueuesPreConfiguredTargetQueue)
    }
    /// Ends that.
    open func unmarkSocketQueueTargetQueue(_ socketQueuesPreviouslyConfiguredTargetQueue: DispatchQueue) {
        marks.unmark(socketQueuesPreviouslyConfiguredTargetQueue)
    }
    /// Runs a block while nothing else happens to the connection, and waits for it.
    open func perform(_ block: @escaping () -> Void) { marks.performAndWait(block) { core.perform($0) } }
    /// The descriptor, inside `perform(_:)`; otherwise -1.
    open func socketFD() -> Int32 { descriptor(nil) }
    /// The descriptor of a connection over IPv4, inside `perform(_:)`; otherwise -1.
    open func socket4FD() -> Int32 { descriptor(.ipv4) }
    /// The descriptor of a connection over IPv6, inside `perform(_:)`; otherwise -1.
    open func socket6FD() -> Int32 { descriptor(.ipv6) }
}
