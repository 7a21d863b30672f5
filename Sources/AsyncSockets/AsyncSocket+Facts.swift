internal import SocketBuffers
public import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// True while a connection is established.
    ///
    /// This, like all the facts of a socket, is a snapshot: it was true when it was taken, on whatever
    /// thread, and waits for nothing. What is told on a delegate queue may be older.
    public var isConnected: Bool {
        record?.isConnected ?? false
    }

    /// True when the socket is neither connecting, connected nor listening.
    public var isDisconnected: Bool {
        state.withLock { state in
            switch state.occupation {
            case .nothing: true
            case .connection(let connection): connection.record.withLock { $0.isOver }
            case .listening(let listener, _): !listener.isOpen
            }
        }
    }

    /// True once the TLS handshake is complete and the peer is trusted.
    ///
    /// It stays true after the connection's end, so that a callback about the last bytes is not misled; a new
    /// connection begins with false.
    public var isSecure: Bool {
        record?.snapshot.isSecure ?? false
    }

    /// What the handshake came to: version, cipher suite, group, protocol, peer chain. Nil before
    /// `socketDidSecure(_:)`; it stays after the connection's end.
    public var tlsSession: TLSSession? {
        record?.snapshot.session?.value
    }

    /// The peer's address, or that of the proxy through which it is reached; nil while there is no
    /// connection. It stays after the connection's end.
    public var connectedAddress: SocketAddress? {
        record?.snapshot.remoteAddress
    }

    /// The peer's address in numbers; nil while there is no connection, and for a Unix-domain one.
    public var connectedHost: String? {
        connectedAddress?.host
    }

    /// The peer's port; 0 while there is no connection, and for a Unix-domain one.
    public var connectedPort: UInt16 {
        connectedAddress?.port ?? 0
    }

    /// The path of the Unix-domain socket that the peer is bound to; nil for any other connection, and while
    /// there is none.
    public var connectedPath: String? {
        connectedAddress?.unixPath
    }

    /// True when the connection is one over IPv4; false while there is none.
    public var isIPv4: Bool {
        connectedAddress?.family == .ipv4
    }

    /// True when the connection is one over IPv6; false while there is none.
    public var isIPv6: Bool {
        connectedAddress?.family == .ipv6
    }

    /// Our own address, of the connection or of the listener; nil while there is neither. That of a
    /// connection stays after its end.
    public var localAddress: SocketAddress? {
        state.withLock { state in
            switch state.occupation {
            case .nothing: nil
            case .connection(let connection): connection.record.withLock { $0.localAddress }
            case .listening(let listener, _): listener.localAddress
            }
        }
    }

    /// Our own address in numbers; nil as `localAddress` is, and for a Unix-domain one.
    public var localHost: String? {
        localAddress?.host
    }

    /// Our own port; for a listener on port 0, the one that the kernel chose. 0 while there is neither
    /// connection nor listener.
    public var localPort: UInt16 {
        localAddress?.port ?? 0
    }

    private var record: ConnectionRecord? {
        connection?.record.withLock { $0 }
    }
}
