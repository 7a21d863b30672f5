internal import SocketCore

/// The descriptor of an established connection, and its options. It is removed before it is closed, so that
/// a call under the lock never uses a descriptor number that the kernel has reused.
struct LiveDescriptor {
    private(set) var descriptor: SocketDescriptor?
    /// Set on every new descriptor.
    var options = SocketOptionSet()
    /// The options that may still be missing on the descriptor when the connection is established.
    var lateOptions = SocketOptionSet()
    /// The address of the peer or the proxy, once known. It is kept after the close.
    var remoteAddress: SocketEndpoint?
    /// The local address at the time of the close.
    private var lastAddress: CopyOnWrite<SocketEndpoint>?

    /// The local address. It is read from the kernel each time, because callers rarely need it.
    var localAddress: SocketEndpoint? {
        guard let descriptor else { return lastAddress?.value }
        return descriptor.localAddress
    }

    /// Whether `descriptor` is stored here and all options are set.
    func isSettled(_ descriptor: SocketDescriptor) -> Bool {
        self.descriptor === descriptor && lateOptions.isEmpty
    }

    /// Stores a connected descriptor and sets its missing options.
    mutating func adopt(_ descriptor: SocketDescriptor) throws(SystemError) {
        try lateOptions.apply(toConnected: descriptor)
        lateOptions = SocketOptionSet()
        self.descriptor = descriptor
    }

    /// Removes the descriptor, which is about to be closed.
    mutating func withdraw() -> SocketDescriptor? {
        lastAddress = localAddress.map { CopyOnWrite($0) }
        defer { descriptor = nil }
        return descriptor
    }
}
