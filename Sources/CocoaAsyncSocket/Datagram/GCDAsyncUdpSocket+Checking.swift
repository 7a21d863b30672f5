internal import AsyncSockets
internal import SocketBuffers

// The preconditions that CocoaAsyncSocket checks on Apple platforms, with the same messages. The core checks
// them again with its own messages, because another thread may change the state in between.
extension GCDAsyncUdpSocket {
    func bind(by interface: String?, _ start: (AsyncUDPSocket) throws(AsyncSocketError) -> Void) throws {
        try requireDelegate()
        let core = core
        if core.isOpen { throw Self.misuse("Cannot bind a socket more than once.") }
        if core.isConnectClaimed { throw Self.misuse("Cannot bind after connecting. If needed, bind first, then connect.") }
        try requireFamily()
        if let text = InterfaceCheck.complaint(about: interface, core.isIPv4Enabled, core.isIPv6Enabled) {
            throw GCDAsyncUdpSocketError(.badParamError, text)
        }
        try attempt(start)
    }

    func connect(_ start: (AsyncUDPSocket) throws(AsyncSocketError) -> Void) throws {
        try requireDelegate()
        if core.isConnectClaimed { throw Self.misuse("Cannot connect a socket more than once.") }
        try create(start)
    }

    func join(by interface: String?, _ change: (AsyncUDPSocket) throws(AsyncSocketError) -> Void) throws {
        try requireDelegate()
        let core = core
        guard core.isOpen else { throw Self.misuse("Must bind a socket before joining a multicast group.") }
        if core.isConnectClaimed { throw Self.misuse("Cannot join a multicast group if connected.") }
        if let interface, !interface.isEmpty, InterfaceCheck.complaint(about: interface, true, true) != nil {
            throw GCDAsyncUdpSocketError(.badParamError, InterfaceCheck.unknown)
        }
        try attempt(change)
    }

    func receive(_ start: (AsyncUDPSocket) throws(AsyncSocketError) -> Void) throws {
        guard core.isCreated else {
            throw Self.misuse(
                "Must bind socket before you can receive data. "
                    + "You can do this explicitly via bind, or implicitly via connect or by sending data.")
        }
        try attempt(start)
    }

    /// Creates the socket's descriptors, unless they exist, and calls `use`.
    func create(_ use: (AsyncUDPSocket) throws(AsyncSocketError) -> Void) throws {
        try requireDelegate()
        try requireFamily()
        try attempt { core throws(AsyncSocketError) in
            try core.createDescriptors()
            try use(core)
        }
    }

    private func requireDelegate() throws {
        let (delegate, queue) = audience.withLock { ($0.delegate, $0.queue) }
        if delegate == nil { throw Self.misuse("Attempting to use socket without a delegate. Set a delegate first.") }
        if queue == nil { throw Self.misuse("Attempting to use socket without a delegate queue. Set a delegate queue first.") }
    }

    private func requireFamily() throws {
        guard core.isIPv4Enabled || core.isIPv6Enabled else {
            throw Self.misuse("Both IPv4 and IPv6 have been disabled. Must enable at least one protocol first.")
        }
    }

    private static func misuse(_ message: String) -> GCDAsyncUdpSocketError {
        GCDAsyncUdpSocketError(.badConfigError, message)
    }
}
