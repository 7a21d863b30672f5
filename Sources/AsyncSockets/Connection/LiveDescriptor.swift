internal import SocketCore

/// The descriptor while the connection is established, and its options. The descriptor leaves before it is
/// closed, so that a call under the lock reaches no other file.
struct LiveDescriptor {
    private(set) var descriptor: SocketDescriptor?
    /// Set on every new descriptor.
    var options = SocketOptionSet()
    /// The options that the descriptor may still lack when the connection is established.
    var lateOptions = SocketOptionSet()
    /// The address of the peer or of the proxy, once it is known. It stays.
    var remoteAddress: SocketAddress?
    /// The local address at the end.
    private var lastAddress: CopyOnWrite<SocketAddress>?

    /// The local address. The kernel is asked each time, since few callers want to know.
    var localAddress: SocketAddress? {
        guard let descriptor else { return lastAddress?.value }
        return descriptor.localAddress
    }

    /// True when `descriptor` is here and lacks nothing.
    func isSettled(_ descriptor: SocketDescriptor) -> Bool {
        self.descriptor === descriptor && lateOptions.isEmpty
    }

    /// Takes a descriptor that is connected, and sets what it lacks.
    mutating func adopt(_ descriptor: SocketDescriptor) throws(SystemError) {
        try lateOptions.apply(toConnected: descriptor)
        lateOptions = SocketOptionSet()
        self.descriptor = descriptor
    }

    /// Takes out the descriptor, which is about to be closed.
    mutating func withdraw() -> SocketDescriptor? {
        lastAddress = localAddress.map { CopyOnWrite($0) }
        defer { descriptor = nil }
        return descriptor
    }
}
