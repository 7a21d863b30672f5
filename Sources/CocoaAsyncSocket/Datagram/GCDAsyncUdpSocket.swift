// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import AsyncSockets
public import Dispatch
public import Foundation
internal import SocketBuffers

/// The callbacks of a `GCDAsyncUdpSocket`, which are called on its delegate queue. Every method is optional:
/// see `GCDAsyncSocketDelegate`.
@preconcurrency
public protocol GCDAsyncUdpSocketDelegate: AnyObject {
    /// Reports that the socket is connected. It now sends to this address and receives only from it.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didConnectToAddress address: Data)
    /// Reports that an attempt to connect failed. The socket stays open.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didNotConnect error: (any Error)?)
    /// Reports that a datagram was sent, or was dropped by the send filter.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didSendDataWithTag tag: Int)
    /// Reports that a datagram could not be sent. The socket stays open.
    func udpSocket(_ sock: GCDAsyncUdpSocket, didNotSendDataWithTag tag: Int, dueToError error: (any Error)?)
    /// Reports a received datagram. `filterContext` is the object attached by the receive filter, if any.
    func udpSocket(
        _ sock: GCDAsyncUdpSocket, didReceive data: Data, fromAddress address: Data, withFilterContext filterContext: Any?)
    /// Reports that the socket is closed. This is the last callback. The error is `nil` after `close()` or
    /// `closeAfterSending()`.
    func udpSocketDidClose(_ sock: GCDAsyncUdpSocket, withError error: (any Error)?)

    // The same callbacks with implicitly unwrapped types, as spelled by programs that predate nullability
    // annotations. On Apple platforms a delegate may use either form. The socket calls the current spelling,
    // and its default implementation calls the older one.

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

/// A UDP socket with the interface of CocoaAsyncSocket, implemented on top of `AsyncUDPSocket`.
///
/// Every method can be called on any thread. Apart from `close()`, which returns once the port is free, only
/// `perform(_:)` blocks. A socket can be reused after it is closed. When its last reference is released, it
/// closes without a callback.
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

    /// Creates a socket without a delegate or a queue.
    public convenience override init() { self.init(delegate: nil, delegateQueue: nil, socketQueue: nil) }

    /// Creates a socket with a delegate, the queue on which the delegate is called, and the queue on which
    /// the socket runs. See `GCDAsyncSocket`.
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

    /// Returns the object that receives the callbacks. The socket references it weakly.
    open func delegate() -> (any GCDAsyncUdpSocketDelegate)? { audience.withLock { $0.delegate } }
    /// Sets the delegate. Pending events are delivered to the new delegate.
    open func setDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?) { audience.withLock { $0.delegate = delegate } }
    /// Sets the delegate, exactly like `setDelegate(_:)`, which also takes effect immediately.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?) {
        audience.withLock { $0.delegate = delegate }
    }
    /// Returns the queue on which the delegate is called. If it is `nil`, no callbacks are made.
    open func delegateQueue() -> DispatchQueue? { audience.withLock { $0.queue } }
    /// Sets the delegate queue.
    open func setDelegateQueue(_ delegateQueue: DispatchQueue?) { callBack(on: delegateQueue) }
    /// Sets the delegate queue, exactly like `setDelegateQueue(_:)`.
    open func synchronouslySetDelegateQueue(_ delegateQueue: DispatchQueue?) { callBack(on: delegateQueue) }
    /// Stores the delegate and its queue in the given variables.
    open func getDelegate(
        _ delegatePtr: AutoreleasingUnsafeMutablePointer<(any GCDAsyncUdpSocketDelegate)?>?,
        delegateQueue delegateQueuePtr: AutoreleasingUnsafeMutablePointer<DispatchQueue?>?
    ) {
        let (delegate, queue) = audience.withLock { ($0.delegate, $0.queue) }
        delegatePtr?.pointee = delegate
        delegateQueuePtr?.pointee = queue
    }
    /// Sets the delegate and its queue.
    open func setDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?, delegateQueue: DispatchQueue?) {
        audience.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }
    /// Sets the delegate and its queue, exactly like `setDelegate(_:delegateQueue:)`.
    open func synchronouslySetDelegate(_ delegate: (any GCDAsyncUdpSocketDelegate)?, delegateQueue: DispatchQueue?) {
        audience.withLock { $0.delegate = delegate }
        callBack(on: delegateQueue)
    }

    // MARK: - Configuration

    /// Returns whether the socket uses IPv4. The default is true.
    open func isIPv4Enabled() -> Bool { core.isIPv4Enabled }
    /// Sets whether the socket uses IPv4, starting with the next bind or connect.
    open func setIPv4Enabled(_ flag: Bool) { fresh.isIPv4Enabled = flag }
    /// Returns whether the socket uses IPv6. The default is true.
    open func isIPv6Enabled() -> Bool { core.isIPv6Enabled }
    /// Sets whether the socket uses IPv6, starting with the next bind or connect.
    open func setIPv6Enabled(_ flag: Bool) { fresh.isIPv6Enabled = flag }
    /// Returns whether a host's IPv4 address is preferred.
    open func isIPv4Preferred() -> Bool { core.preferredFamily == .ipv4 }
    /// Returns whether a host's IPv6 address is preferred.
    open func isIPv6Preferred() -> Bool { core.preferredFamily == .ipv6 }
    /// Returns whether the order of the system's resolver determines the preferred address. The default is
    /// true.
    open func isIPVersionNeutral() -> Bool { core.preferredFamily == nil }
    /// Prefers a host's IPv4 address.
    open func setPreferIPv4() { fresh.preferredFamily = .ipv4 }
    /// Prefers a host's IPv6 address.
    open func setPreferIPv6() { fresh.preferredFamily = .ipv6 }
    /// Prefers the address that the system's resolver returns first.
    open func setIPVersionNeutral() { fresh.preferredFamily = nil }
    /// Returns how many bytes of an IPv4 datagram are delivered. The default is 65,535.
    open func maxReceiveIPv4BufferSize() -> UInt16 { facts.withLock { $0.maxReceive4 } }
    /// Sets how many bytes of an IPv4 datagram are delivered. Longer datagrams are truncated.
    open func setMaxReceiveIPv4BufferSize(_ max: UInt16) { facts.withLock { $0.maxReceive4 = max } }
    /// Returns how many bytes of an IPv6 datagram are delivered. The default is 65,535.
    open func maxReceiveIPv6BufferSize() -> UInt32 { facts.withLock { $0.maxReceive6 } }
    /// Sets how many bytes of an IPv6 datagram are delivered. Longer datagrams are truncated.
    open func setMaxReceiveIPv6BufferSize(_ max: UInt32) { facts.withLock { $0.maxReceive6 = max } }
    /// Returns the size of the kernel's send buffer, or 65,535 if no size was set.
    open func maxSendBufferSize() -> UInt16 { facts.withLock { $0.maxSend } ?? .max }
    /// Sets the size of the kernel's send buffer in bytes, which is also the size of the largest datagram.
    open func setMaxSendBufferSize(_ max: UInt16) { setSendBuffer(max) }
    /// Returns the user data, an arbitrary value for the program's own use.
    open func userData() -> Any? { facts.withLock { $0.userData } }
    /// Sets the user data.
    open func setUserData(_ arbitraryUserData: Any?) { replaceUserData(arbitraryUserData) }

    // MARK: - Facts

    /// Returns the local address as a `sockaddr`: the IPv4 address if the socket uses IPv4.
    open func localAddress() -> Data? { local(nil)?.data }
    /// Returns the local address in numeric form.
    open func localHost() -> String? { local(nil)?.host }
    /// Returns the local port, which is the same for IPv4 and IPv6, or 0 while the socket is closed.
    open func localPort() -> UInt16 { local(nil)?.port ?? 0 }
    /// Returns the local IPv4 address as a `sockaddr`.
    open func localAddress_IPv4() -> Data? { local(.ipv4)?.data }
    /// Returns the local IPv4 address in numeric form.
    open func localHost_IPv4() -> String? { local(.ipv4)?.host }
    /// Returns the local port for IPv4, or 0 if the socket does not use IPv4.
    open func localPort_IPv4() -> UInt16 { local(.ipv4)?.port ?? 0 }
    /// Returns the local IPv6 address as a `sockaddr`.
    open func localAddress_IPv6() -> Data? { local(.ipv6)?.data }
    /// Returns the local IPv6 address in numeric form.
    open func localHost_IPv6() -> String? { local(.ipv6)?.host }
    /// Returns the local port for IPv6, or 0 if the socket does not use IPv6.
    open func localPort_IPv6() -> UInt16 { local(.ipv6)?.port ?? 0 }
    /// Returns the peer's address as a `sockaddr`, or `nil` if the socket is not connected.
    open func connectedAddress() -> Data? { peer?.data }
    /// Returns the peer's address in numeric form, or `nil` if the socket is not connected.
    open func connectedHost() -> String? { peer?.host }
    /// Returns the peer's port, or 0 if the socket is not connected.
    open func connectedPort() -> UInt16 { peer?.port ?? 0 }
    /// Returns whether the socket is connected to a peer.
    open func isConnected() -> Bool { core.isConnected }
    /// Returns whether the socket is closed: it has no descriptors. Binding, connecting, sending,
    /// `enableReusePort`, `enableBroadcast` and `send…Multicast(onInterface:)` create descriptors.
    open func isClosed() -> Bool { !core.isCreated }
    /// Returns whether the socket has an IPv4 descriptor or, while it is closed, whether IPv4 is enabled.
    open func isIPv4() -> Bool { uses(.ipv4) }
    /// Returns whether the socket has an IPv6 descriptor or, while it is closed, whether IPv6 is enabled.
    open func isIPv6() -> Bool { uses(.ipv6) }

    // MARK: - Binding and connecting

    /// Binds the socket to a port on all interfaces. If the port is 0, the kernel chooses a free port.
    open func bind(toPort port: UInt16) throws { try bind(toPort: port, interface: nil) }
    /// Binds the socket to a port on one interface: a name, an address, or "localhost". `nil` means all
    /// interfaces.
    open func bind(toPort port: UInt16, interface: String?) throws {
        try bind(by: interface) { core throws(AsyncSocketError) in try core.bind(toPort: port, interface: interface) }
    }
    /// Binds the socket to an address. The socket then uses only this address's IP version.
    open func bind(toAddress localAddr: Data) throws {
        let address = try Self.internetAddress(localAddr)
        try bind(by: nil) { core throws(AsyncSocketError) in try core.bind(toAddress: address) }
    }
    /// Connects to a host, so that the socket sends to it and receives only from it. The delegate is notified
    /// of the result.
    open func connect(toHost host: String, onPort port: UInt16) throws {
        let host = HostLookup.text(host)
        try connect { core throws(AsyncSocketError) in try core.connect(toHost: host, onPort: port, withTimeout: -1) }
    }
    /// Connects to an address. See `connect(toHost:onPort:)`.
    open func connect(toAddress remoteAddr: Data) throws {
        let address = try Self.internetAddress(remoteAddr)
        try connect { core throws(AsyncSocketError) in try core.connect(toAddress: address) }
    }

    // MARK: - Multicast

    /// Joins a multicast group. The socket must be bound.
    open func joinMulticastGroup(_ group: String) throws { try joinMulticastGroup(group, onInterface: nil) }
    /// Joins a multicast group on an interface, given as a name or an address. If it is `nil`, the kernel
    /// chooses.
    open func joinMulticastGroup(_ group: String, onInterface interface: String?) throws {
        try join(by: interface) { core throws(AsyncSocketError) in
            try core.joinMulticastGroup(group, onInterface: interface)
        }
    }
    /// Leaves a multicast group.
    open func leaveMulticastGroup(_ group: String) throws { try leaveMulticastGroup(group, onInterface: nil) }
    /// Leaves a multicast group on an interface, given as a name or an address.
    open func leaveMulticastGroup(_ group: String, onInterface interface: String?) throws {
        try join(by: interface) { core throws(AsyncSocketError) in
            try core.leaveMulticastGroup(group, onInterface: interface)
        }
    }
    /// Sets the interface for outgoing IPv4 multicast datagrams.
    open func sendIPv4Multicast(onInterface interface: String) throws {
        try create { core throws(AsyncSocketError) in try core.setMulticastInterface(interface, over: .ipv4) }
    }
    /// Sets the interface for outgoing IPv6 multicast datagrams.
    open func sendIPv6Multicast(onInterface interface: String) throws {
        try create { core throws(AsyncSocketError) in try core.setMulticastInterface(interface, over: .ipv6) }
    }
    /// Sets whether other sockets may bind to the same port. Call it on each of these sockets before `bind`.
    open func enableReusePort(_ flag: Bool) throws {
        try create { core throws(AsyncSocketError) in
            try core.setOption(.reusePort, to: flag)
            try core.setOption(.reuseAddress, to: flag)
        }
    }
    /// Sets whether datagrams may be sent to a broadcast address.
    open func enableBroadcast(_ flag: Bool) throws {
        try create { core throws(AsyncSocketError) in try core.setOption(.broadcast, to: flag) }
    }

    // MARK: - Sending

    /// Sends a datagram to the peer of a connected socket. Empty datagrams are dropped, as on Apple
    /// platforms.
    open func send(_ data: Data, withTimeout timeout: TimeInterval, tag: Int) {
        if !data.isEmpty { sender.send(data, withTimeout: timeout, tag: tag) }
    }
    /// Sends a datagram to a host. Empty datagrams are dropped.
    open func send(_ data: Data, toHost host: String, port: UInt16, withTimeout timeout: TimeInterval, tag: Int) {
        if !data.isEmpty { sender.send(data, toHost: HostLookup.text(host), port: port, withTimeout: timeout, tag: tag) }
    }
    /// Sends a datagram to an address. Empty datagrams are dropped.
    open func send(_ data: Data, toAddress remoteAddr: Data, withTimeout timeout: TimeInterval, tag: Int) {
        guard !data.isEmpty, let address = SocketEndpoint(data: remoteAddr) else { return note("a datagram was dropped") }
        sender.send(data, toAddress: address, withTimeout: timeout, tag: tag)
    }
    /// Sets a filter for outgoing datagrams. If either argument is `nil`, the filter is removed.
    open func setSendFilter(_ filterBlock: GCDAsyncUdpSocketSendFilterBlock?, with filterQueue: DispatchQueue?) {
        setSendFilter(filterBlock, with: filterQueue, isAsynchronous: true)
    }
    /// Sets a filter for outgoing datagrams. It always runs on its queue while the datagrams are held, so
    /// `isAsynchronous` has no effect.
    open func setSendFilter(
        _ filterBlock: GCDAsyncUdpSocketSendFilterBlock?, with filterQueue: DispatchQueue?, isAsynchronous: Bool
    ) {
        filterSends(by: filterBlock, on: filterQueue)
    }

    // MARK: - Receiving

    /// Delivers one datagram to the delegate. The socket must not be closed: see `isClosed()`. If it is not
    /// bound yet, datagrams arrive after the next bind, connect or send.
    open func receiveOnce() throws { try receive { core throws(AsyncSocketError) in try core.receiveOnce() } }
    /// Delivers all datagrams to the delegate, until `pauseReceiving()` or `receiveOnce()` is called.
    open func beginReceiving() throws { try receive { core throws(AsyncSocketError) in try core.beginReceiving() } }
    /// Stops delivering datagrams. Datagrams already queued for the delegate are still delivered.
    open func pauseReceiving() { core.pauseReceiving() }
    /// Sets a filter for received datagrams. If either argument is `nil`, the filter is removed.
    open func setReceiveFilter(_ filterBlock: GCDAsyncUdpSocketReceiveFilterBlock?, with filterQueue: DispatchQueue?) {
        setReceiveFilter(filterBlock, with: filterQueue, isAsynchronous: true)
    }
    /// Sets a filter for received datagrams. It always runs on its queue while the datagrams are held, so
    /// `isAsynchronous` has no effect.
    open func setReceiveFilter(
        _ filterBlock: GCDAsyncUdpSocketReceiveFilterBlock?, with filterQueue: DispatchQueue?, isAsynchronous: Bool
    ) {
        filterReceipts(by: filterBlock, on: filterQueue)
    }

    // MARK: - Closing

    /// Closes the socket immediately. Datagrams that are still queued are dropped without a callback.
    open func close() { closeAndWait() }
    /// Closes the socket after the datagrams queued so far have been sent.
    open func closeAfterSending() {
        let core = core
        if core.isCreated { core.disconnectAfterSending() }
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
    /// Runs a block with exclusive access to the socket, and blocks until the block returns.
    open func perform(_ block: @escaping () -> Void) { marks.performAndWait(block) { body in core.perform { body($0.first) } } }
    /// Returns a descriptor inside `perform(_:)`, and -1 elsewhere. The IPv4 descriptor is preferred.
    open func socketFD() -> Int32 { descriptor(nil) }
    /// Returns the IPv4 descriptor inside `perform(_:)`, and -1 elsewhere.
    open func socket4FD() -> Int32 { descriptor(.ipv4) }
    /// Returns the IPv6 descriptor inside `perform(_:)`, and -1 elsewhere.
    open func socket6FD() -> Int32 { descriptor(.ipv6) }
}
