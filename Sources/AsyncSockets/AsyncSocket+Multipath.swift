internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Whether to ask for Multipath TCP (RFC 8684), which may use several paths for one connection. False at
    /// first. It counts from the next `connect` or `accept` on.
    ///
    /// Where the kernel has none (`net.mptcp.enabled`), or the peer does not take part, it is TCP without a
    /// word: `isMultipathTCP` says which. Which paths are used is for the system's path manager to say
    /// (ip-mptcp(8)). Some options of TCP are unknown to such a socket, and `setOption` throws then.
    public var usesMultipathTCP: Bool {
        get { state.withLock { $0.options.usesMultipathTCP } }
        set { state.withLock { $0.options.usesMultipathTCP = newValue } }
    }

    /// True while a connection is up that both sides have agreed to make with Multipath TCP.
    public var isMultipathTCP: Bool {
        connection?.record.withLock { $0.live.descriptor?.isMultipath } ?? false
    }
}
