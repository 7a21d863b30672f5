// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Dispatch
public import Foundation
internal import SocketBuffers

/// The callbacks of a `GCDAsyncUdpSocket`, on its delegate queue. Every method is optional: see
/// `GCDAsyncSocketDelegate`.
@preconcurrency
public protocol GCDAsyncUdpSocketDelegate: NSObjectProtocol {
    /// The socket is connected: it sends to this address, and hears this address alone.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didConnectToAddress address: Data)
    /// An attempt to connect has failed. The socket stays open.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didNotConnect error: (any Error)?)
    /// A datagram has left, or the send filter has dropped it.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didSendDataWithTag tag: Int)
    /// A datagram has not left. The socket stays open.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didNotSendDataWithTag tag: Int, dueToError error: (any Error)?)
    /// A datagram has arrived, and the receive filter may have added an object.
    func udpSocket(
        _ sock: GCDAsyncUdpSocket, didReceive data: Data, fromAddress address: Data, withFilterContext filterContext: Any?)
    /// The socket is closed: the last callback. The error is nil after `close()` and the like.
    func udpSocketDidClose(_ sock: GCDAsyncUdpSocket, withError error: (any Error)?)

    // The same, as programs from before nullability annotations spell them, with an exclamation mark after
    // each type. On Apple platforms a delegate may have either form. The ordinary one is called, and its
    // default calls this.

    /// The older spelling.
    func udpSocket(_ sock: GCDAsyncUdpSocket!, didConnectToAddress address: Data!)
    /// The older spelling.
    func udpSocket(_ sock: GCDAsyncUdpSocket!, didNotConnect error: (any Error)!)
    /// The older spelling.
    func udpSocket(_ sock: GCDAsyncUdpSocket!, didSendDataWithTag tag: Int)
    /// The older spelling.
    func udpSocket(_ sock: GCDAsyncUdpSocket!, didNotSendDataWithTag tag: Int, dueToError error: (any Error)!)
    /// The older spelling.
    func udpSocket(
        _ sock: GCDAsyncUdpSocket!, didReceive data: Data!, fromAddress address: Data!, withFilterContext filterContext: Any!)
    /// The older spelling.
    func udpSocketDidClose(_ sock: GCDAsyncUdpSocket!, withError error: (any Error)!)
}

/// A UDP socket with the interface of CocoaAsyncSocket, over `AsyncUDPSocket`.
///
/// Every method may be called on any thread, and `perform(_:)` alone waits. A socket may be used again after
/// its end. When the last reference goes, it closes without a callback.
open class GCDAsyncUdpSocket: NSObject {
    struct Audience {
        weak var delegate: (any GCDAsyncUdpSocketDelegate)?
        var queue: DispatchQueue?
    }

    let audience = Locked(Audience())
    let facts: Locked<DatagramFacts>
    let events = CoreEvents<GCDAsyncUdpSocket>()
    let marks: SocketQueueMarks
    let socketQueue: DispatchQueue?

    /// A socket without a delegate and a queue.
    public convenience override init() { self.init(delegate: nil, delegateQueue: nil, socketQueue: nil) }

    /// A socket with a delegate, the queue on which it is called, and a queue on which the socket runs: see
    /// `GCDAsyncSocket`.
    public init(
        delegate aDelegate: (any GCDAsyncUdpSocketDelegate)?, delegateQueue dq: DispatchQueue?, socketQueue sq: DispatchQueue?
    ) {
        marks = SocketQueueMarks(sq)
        socketQueue = sq
        facts = Locked(DatagramFacts(core: Self.makeCore(events, dq, sq)))
        super.init()
        audience.withLock { ($0.delegate, $0.queue) = (aDelegate, dq) }
        events.owner = self
    }

    // MARK: - The delegate

    /// The object that gets the callbacks, held weakly.
    open func delegate() -> (any GCDAsyncUdpSocketDelegate)? { audience.withLock { $0.delegate } }
    /// Sets another delegate. Events on their way go to the new one.
    open func setDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?) { audience.withLock { $0.delegate = delegate } }
    /// The same as `setDelegate(_:)`: that too takes effect at once.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?) {
        audience.withLock { $0.delegate = delegate }
    }
    /// The queue on which the delegate is called; nil: nothing is called.
    open func delegateQueue() -> DispatchQueue? { audience.withLock { $0.queue } }
    /// Sets another delegate queue.
    open func setDelegateQueue(_ delegateQueue: DispatchQueue?) { callBack(on: delegateQueue) }
    /// The same as `setDelegateQueue(_:)`.
    open func synchronouslySetDelegateQueue(_ delegateQueue: DispatchQueue?) { callBack(on: delegateQueue) }
    /// Stores the delegate and its queue where the pointers say.
    open func getDelegate(
        _ delegatePtr: AutoreleasingUnsafeMutablePointer<(any GCDAsyncUdpSocketDelegate)?>?,
        delegateQueue delegateQueuePtr: AutoreleasingUnsafeMutablePointer<DispatchQueue?>?
    ) {
        let (delegate, queue) = audience.withLock { ($0.delegate, $0.queue) }
        delegatePtr?.pointee = delegate
        delegateQueuePtr?.pointee = queue
    }
    /// Sets another delegate and its queue.
    open func setDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?, delegateQueue: DispatchQueue?) {
        audience.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }
    /// The same as `setDelegate(_:delegateQueue:)`.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?, delegateQueue: DispatchQueue?) {
        audience.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }

    // MARK: - Configuration

    /// Whether to use IPv4. True at first.
    open func isIPv4Enabled() -> Bool { core.isIPv4Enabled }
    /// Sets whether to use IPv4, from the next bind or connect on.
    open func setIPv4Enabled(_ flag: Bool) { fresh.isIPv4Enabled = flag }
    /// Whether to use IPv6. True at first.
    open func isIPv6Enabled() -> Bool { core.isIPv6Enabled }
    /// Sets whether to use IPv6, from the next bind or connect on.
    open func setIPv6Enabled(_ flag: Bool) { fresh.isIPv6Enabled = flag }
    /// Whether a host's IPv4 address is preferred.
    open func isIPv4Preferred() -> Bool { core.preferredFamily == .ipv4 }
    /// Whether a host's IPv6 address is preferred.
    open func isIPv6Preferred() -> Bool { core.preferredFamily == .ipv6 }
    /// Whether the system's resolver decides. True at first.
    open func isIPVersionNeutral() -> Bool { core.preferredFamily == nil }
    /// Prefers IPv4.
    open func setPreferIPv4() { fresh.preferredFamily = .ipv4 }
    /// Prefers IPv6.
    open func setPreferIPv6() { fresh.preferredFamily = .ipv6 }
    /// Prefers neither.
    open func setIPVersionNeutral() { fresh.preferredFamily = nil }
    /// How many bytes of a datagram over IPv4 the delegate gets; 65,535 at first.
    open func maxReceiveIPv4BufferSize() -> UInt16 { facts.withLock { $0.maxReceive4 } }
    /// Sets how many bytes of a datagram over IPv4 the delegate gets.
    open func setMaxReceiveIPv4BufferSize(_ max: UInt16) { facts.withLock { $0.maxReceive4 = max } }
    /// How many bytes of a datagram over IPv6 the delegate gets; 65,535 at first.
    open func maxReceiveIPv6BufferSize() -> UInt32 { facts.withLock { $0.maxReceive6 } }
    /// Sets how many bytes of a datagram over IPv6 the delegate gets.
    open func setMaxReceiveIPv6BufferSize(_ max: UInt32) { facts.withLock { $0.maxReceive6 = max } }
    /// The size of the kernel's buffer for sending, if it was set; 65,535 at first.
    open func maxSendBufferSize() -> UInt16 { facts.withLock { $0.maxSend } ?? .max }
    /// Sets the size of the kernel's buffer for sending.
    open func setMaxSendBufferSize(_ max: UInt16) { setSendBuffer(max) }
    /// A value of your own.
    open func userData() -> Any? { facts.withLock { $0.userData } }
    /// Sets the value of your own.
    open func setUserData(_ arbitraryUserData: Any?) { replaceUserData(arbitraryUserData) }

    // MARK: - Facts

    /// Our address, a `sockaddr`: over IPv4 if the socket has one.
    open func localAddress() -> Data? { local(nil)?.data }
    /// Our address in numbers.
    open func localHost() -> String? { local(nil)?.host }
    /// Our port, the same for both versions of IP; 0 while the socket is closed.
    open func localPort() -> UInt16 { local(nil)?.port ?? 0 }
    /// Our IPv4 address.
    open func localAddress_IPv4() -> Data? { local(.ipv4)?.data }
    /// Our IPv4 address in numbers.
    open func localHost_IPv4() -> String? { local(.ipv4)?.host }
    /// Our port over IPv4; 0 without one.
    open func localPort_IPv4() -> UInt16 { local(.ipv4)?.port ?? 0 }
    /// Our IPv6 address.
    open func localAddress_IPv6() -> Data? { local(.ipv6)?.data }
    /// Our IPv6 address in numbers.
    open func localHost_IPv6() -> String? { local(.ipv6)?.host }
    /// Our port over IPv6; 0 without one.
    open func localPort_IPv6() -> UInt16 { local(.ipv6)?.port ?? 0 }
    /// The peer's address, a `sockaddr`; nil unless the socket is connected.
    open func connectedAddress() -> Data? { peer?.data }
    /// The peer's address in numbers; nil unless the socket is connected.
    open func connectedHost() -> String? { peer?.host }
    /// The peer's port; 0 unless the socket is connected.
    open func connectedPort() -> UInt16 { peer?.port ?? 0 }
    /// True while the socket has a peer.
    open func isConnected() -> Bool { core.isConnected }
    /// True unless the socket is bound, connected or has sent.
    open func isClosed() -> Bool { !core.isInUse }
    /// True while the socket uses IPv4.
    open func isIPv4() -> Bool { core.isIPv4 }
    /// True while the socket uses IPv6.
    open func isIPv6() -> Bool { core.isIPv6 }

    // MARK: - Binding and connecting

    /// Binds the socket to a port of all interfaces; 0: the kernel chooses one.
    open func bind(toPort port: UInt16) throws { try bind(toPort: port, interface: nil) }
    /// Binds the socket to a port of one interface: a name, an address, or "localhost"; nil: all.
    open func bind(toPort port: UInt16, interface: String?) throws {
        try bind(by: interface) { core throws(AsyncSocketError) in try core.bind(toPort: port, interface: interface) }
    }
    /// Binds the socket to an address, for its version of IP alone.
    open func bind(toAddress localAddr: Data) throws {
        let address = try Self.internetAddress(localAddr)
        try bind(by: nil) { core throws(AsyncSocketError) in try core.bind(toAddress: address) }
    }
    /// Connects to a host: the socket sends to it, and hears it alone. The delegate learns when that is so.
    open func connect(toHost host: String, onPort port: UInt16) throws {
        try connect { core throws(AsyncSocketError) in try core.connect(toHost: host, onPort: port, withTimeout: -1) }
    }
    /// Connects to an address.
    open func connect(toAddress remoteAddr: Data) throws {
        let address = try Self.internetAddress(remoteAddr)
        try connect { core throws(AsyncSocketError) in try core.connect(toAddress: address) }
    }

    // MARK: - Multicast

    /// Joins a multicast group. The socket must be bound.
    open func joinMulticastGroup(_ group: String) throws { try joinMulticastGroup(group, onInterface: nil) }
    /// Joins a multicast group on an interface: a name or an address; nil: the kernel chooses.
    open func joinMulticastGroup(_ group: String, onInterface interface: String?) throws {
        try join(by: interface) { core throws(AsyncSocketError) in
            try core.joinMulticastGroup(group, onInterface: interface)
        }
    }
    /// Leaves a multicast group.
    open func leaveMulticastGroup(_ group: String) throws { try leaveMulticastGroup(group, onInterface: nil) }
    /// Leaves a multicast group on an interface.
    open func leaveMulticastGroup(_ group: String, onInterface interface: String?) throws {
        try join(by: interface) { core throws(AsyncSocketError) in
            try core.leaveMulticastGroup(group, onInterface: interface)
        }
    }
    /// Has multicast datagrams over IPv4 leave by an interface.
    open func sendIPv4Multicast(onInterface interface: String) throws {
        try attempt { core throws(AsyncSocketError) in try core.sendMulticast(onInterface: interface, over: .ipv4) }
    }
    /// Has multicast datagrams over IPv6 leave by an interface.
    open func sendIPv6Multicast(onInterface interface: String) throws {
        try attempt { core throws(AsyncSocketError) in try core.sendMulticast(onInterface: interface, over: .ipv6) }
    }
    /// Whether other sockets may have the same port. Call it before `bind`, on each of them.
    open func enableReusePort(_ flag: Bool) throws {
        try attempt { core throws(AsyncSocketError) in
            try core.setOption(.reusePort, to: flag)
            try core.setOption(.reuseAddress, to: flag)
        }
    }
    /// Whether datagrams may go to a broadcast address.
    open func enableBroadcast(_ flag: Bool) throws {
        try attempt { core throws(AsyncSocketError) in try core.setOption(.broadcast, to: flag) }
    }

    // MARK: - Sending

    /// Sends a datagram to the peer of a connected socket. One without bytes is dropped, as in the original.
    open func send(_ data: Data, withTimeout timeout: TimeInterval, tag: Int) {
        if !data.isEmpty { fresh.send(data, withTimeout: timeout, tag: tag) }
    }
    /// Sends a datagram to a host.
    open func send(_ data: Data, toHost host: String, port: UInt16, withTimeout timeout: TimeInterval, tag: Int) {
        if !data.isEmpty { fresh.send(data, toHost: host, port: port, withTimeout: timeout, tag: tag) }
    }
    /// Sends a datagram to an address.
    open func send(_ data: Data, toAddress remoteAddr: Data, withTimeout timeout: TimeInterval, tag: Int) {
        guard !data.isEmpty, let address = SocketAddress(data: remoteAddr) else { return note("a datagram was dropped") }
        fresh.send(data, toAddress: address, withTimeout: timeout, tag: tag)
    }
    /// Sets a filter of datagrams that are about to leave. Nil for either removes it.
    open func setSendFilter(_ filterBlock: GCDAsyncUdpSocketSendFilterBlock?, with filterQueue: DispatchQueue?) {
        setSendFilter(filterBlock, with: filterQueue, isAsynchronous: true)
    }
    /// The same: the filter always runs on its queue, and the datagrams wait.
    open func setSendFilter(
        _ filterBlock: GCDAsyncUdpSocketSendFilterBlock?, with filterQueue: DispatchQueue?, isAsynchronous: Bool
    ) {
        filterSends(by: filterBlock, on: filterQueue)
    }

    // MARK: - Receiving

    /// Has the delegate get one datagram. The socket must be bound, connected, or have sent.
    open func receiveOnce() throws { try receive { core throws(AsyncSocketError) in try core.receiveOnce() } }
    /// Has the delegate get all datagrams, until `pauseReceiving()` or `receiveOnce()`.
    open func beginReceiving() throws { try receive { core throws(AsyncSocketError) in try core.beginReceiving() } }
    /// Has the delegate get no more datagrams.
    open func pauseReceiving() { core.pauseReceiving() }
    /// Sets a filter of datagrams that have arrived. Nil for either removes it.
    open func setReceiveFilter(_ filterBlock: GCDAsyncUdpSocketReceiveFilterBlock?, with filterQueue: DispatchQueue?) {
        setReceiveFilter(filterBlock, with: filterQueue, isAsynchronous: true)
    }
    /// The same: the filter always runs on its queue, and the datagrams wait.
    open func setReceiveFilter(
        _ filterBlock: GCDAsyncUdpSocketReceiveFilterBlock?, with filterQueue: DispatchQueue?, isAsynchronous: Bool
    ) {
        filterReceipts(by: filterBlock, on: filterQueue)
    }

    // MARK: - The end

    /// Closes the socket at once. Datagrams that wait to be sent are dropped without a callback.
    open func close() { closeAndWait() }
    /// Closes the socket once the datagrams that wait now have been sent.
    open func closeAfterSending() { core.closeAfterSending() }

    // MARK: - The socket's queue

    /// Code on this queue counts as code on the socket's queue, which targets it.
    open func markQueueTargetQueue(_ socketQueuesPreConfiguredTargetQueue: DispatchQueue) {
        marks.mark(socketQueuesPreConfiguredTargetQueue)
    }
    /// Ends that.
    open func unmarkSocketQueueTargetQueue(_ socketQueuesPreviouslyConfiguredTargetQueue: DispatchQueue) {
        marks.unmark(socketQueuesPreviouslyConfiguredTargetQueue)
    }
    /// Runs a block while nothing else happens to the socket, and waits for it.
    open func perform(_ block: @escaping () -> Void) { marks.performAndWait(block) { body in core.perform { body($0.first) } } }
    /// A descriptor, over IPv4 if there is one, inside `perform(_:)`; otherwise -1.
    open func socketFD() -> Int32 { descriptor(nil) }
    /// The descriptor for IPv4, inside `perform(_:)`; otherwise -1.
    open func socket4FD() -> Int32 { descriptor(.ipv4) }
    /// The descriptor for IPv6, inside `perform(_:)`; otherwise -1.
    open func socket6FD() -> Int32 { descriptor(.ipv6) }
}
