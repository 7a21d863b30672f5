internal import SocketBuffers
public import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// True while a connection is established.
    ///
    /// Like all facts of a socket, this is a snapshot: you may ask on any thread, and it waits for nothing.
    /// Events on a delegate queue may be older.
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
    /// It stays true after the connection's end, for the callbacks about its last bytes; a new connection
    /// starts with false.
    public var isSecure: Bool {
        record?.snapshot.isSecure ?? false
    }

    /// The result of the handshake: version, cipher suite, group, protocol, peer chain. Nil before
    /// `socketDidSecure(_:)`; it stays after the connection's end.
    public var tlsSession: TLSSession? {
        record?.snapshot.session?.value
    }

    /// The address of the peer, or of the proxy through which it is reached; nil while there is no
    /// connection. It stays after the connection's end.
    public var connectedAddress: SocketAddress? {
        record?.live.remoteAddress
    }

    /// The peer's address in numbers; nil while there is no connection, and for a Unix-domain one.
    public var connectedHost: String? {
        connectedAddress?.host
    }

    /// The peer's port; nil when `connectedHost` is.
    public var connectedPort: UInt16? {
        connectedAddress?.port
    }

    /// The path of the Unix-domain socket that the peer is bound to; nil for any other connection, and while
    /// there is no connection.
    public var connectedPath: String? {
        connectedAddress?.unixPath
    }

    /// True for a connection over IPv4; false while there is no connection.
    public var isIPv4: Bool {
        connectedAddress?.family == .ipv4
    }

    /// True for a connection over IPv6; false while there is no connection.
    public var isIPv6: Bool {
        connectedAddress?.family == .ipv6
    }

    /// The local address of the connection or of the listener; nil while there is neither. A connection's
    /// stays after its end.
    public var localAddress: SocketAddress? {
        state.withLock { state in
            switch state.occupation {
            case .nothing: nil
            case .connection(let connection): connection.record.withLock { $0.localAddress }
            case .listening(let listener, _): listener.localAddress
            }
        }
    }

    /// The addresses of a listener, one for each family; none while the socket does not listen.
    package var listeningAddresses: [SocketAddress] {
        state.withLock { state in
            if case .listening(let listener, _) = state.occupation { listener.localAddresses } else { [] }
        }
    }

    /// The descriptor of an established connection. It is closed at any time, except in `perform(_:)`.
    package var currentDescriptor: Int32? { record?.live.descriptor?.rawValue }

    /// The local address in numbers; nil when `localAddress` is nil, and for a Unix-domain one.
    public var localHost: String? {
        localAddress?.host
    }

    /// The local port; for a listener on port 0, the one that the kernel chose. 0 while there is neither
    /// connection nor listener.
    public var localPort: UInt16 {
        localAddress?.port ?? 0
    }

    /// The PROXY header with which the connection began: who connected to the proxy, and what the proxy knows
    /// of it. Nil on every connection but those that a `SocketListener` with `ProxyProtocol` accepts from its
    /// sources. It stays after the connection's end.
    public internal(set) var proxyHeader: ProxyHeader? {
        get { state.withLock { $0.extras?.value.proxyHeader } }
        set { changeExtras { $0.proxyHeader = newValue } }
    }

    /// The address of the client: what the PROXY header says, and otherwise `connectedAddress`.
    ///
    /// The second when there is no header, or when it names no client, as in a proxy's health check.
    public var originalAddress: SocketAddress? {
        guard let proxyHeader, proxyHeader.transport == .stream else { return connectedAddress }
        return proxyHeader.source ?? connectedAddress
    }

    private var record: ConnectionRecord? {
        connection?.record.withLock { $0 }
    }
}
