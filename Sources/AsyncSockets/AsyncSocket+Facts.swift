internal import SocketBuffers
public import SocketCore
public import SocketTLS

extension AsyncSocket {
    /// Whether a connection is established.
    ///
    /// Like all state properties of a socket, this is a snapshot. You may read it on any thread, without
    /// blocking. Events delivered on a delegate queue may lag behind it.
    public var isConnected: Bool {
        connection?.record.withLock { $0.isConnected } ?? false
    }

    /// Whether the socket is neither connecting, connected nor listening.
    public var isDisconnected: Bool {
        state.withLock { state in
            switch state.occupation {
            case .nothing: true
            case .connection(let connection): connection.record.withLock { $0.isOver }
            case .listening(let listener, _): !listener.isOpen
            }
        }
    }

    /// Whether the TLS handshake is complete and the peer is trusted.
    ///
    /// The value stays `true` after the connection closes, so that it is still correct in the callbacks for
    /// the last bytes. A new connection starts with `false`.
    public var isSecure: Bool {
        connection?.record.withLock { $0.snapshot.isSecure } ?? false
    }

    /// The result of the handshake: version, cipher suite, group, protocol and peer certificate chain. `nil`
    /// before `socketDidSecure(_:)`. The value is kept after the connection closes.
    public var tlsSession: TLSSession? {
        connection?.record.withLock { $0.snapshot.session?.value } ?? nil
    }

    /// The address of the peer, or of the proxy if one is used. `nil` before the connection is established.
    /// The value is kept after the connection closes.
    public var connectedAddress: SocketEndpoint? {
        connection?.record.withLock { $0.live.remoteAddress } ?? nil
    }

    /// The numeric address of the peer. `nil` before the connection is established, and on Unix-domain
    /// connections.
    public var connectedHost: String? {
        connectedAddress?.host
    }

    /// The peer's port. `nil` if `connectedHost` is `nil`.
    public var connectedPort: UInt16? {
        connectedAddress?.port
    }

    /// The path that the peer's Unix-domain socket is bound to. `nil` for all other connections, and before
    /// the connection is established.
    public var connectedPath: String? {
        connectedAddress?.unixPath
    }

    /// Whether the connection uses IPv4. `false` before the connection is established.
    public var isIPv4: Bool {
        connectedAddress?.family == .ipv4
    }

    /// Whether the connection uses IPv6. `false` before the connection is established.
    public var isIPv6: Bool {
        connectedAddress?.family == .ipv6
    }

    /// The local address of the connection or the listener, or `nil` if the socket has neither. The address
    /// of a connection is kept after it closes.
    public var localAddress: SocketEndpoint? {
        state.withLock { state in
            switch state.occupation {
            case .nothing: nil
            case .connection(let connection): connection.record.withLock { $0.localAddress }
            case .listening(let listener, _): listener.localAddress
            }
        }
    }

    /// The addresses of a listener, one for each family. Empty if the socket is not listening.
    package var listeningAddresses: [SocketEndpoint] {
        state.withLock { state in
            if case .listening(let listener, _) = state.occupation { listener.localAddresses } else { [] }
        }
    }

    /// The descriptor of an established connection. It may be closed at any time, except inside
    /// `perform(_:)`.
    package var currentDescriptor: Int32? { connection?.record.withLock { $0.live.descriptor?.rawValue } ?? nil }

    /// The numeric local address. `nil` if `localAddress` is `nil`, and for Unix-domain sockets.
    public var localHost: String? {
        localAddress?.host
    }

    /// The local port. For a listener on port 0, this is the port chosen by the kernel. 0 if there is neither
    /// a connection nor a listener.
    public var localPort: UInt16 {
        localAddress?.port ?? 0
    }

    /// The PROXY header at the start of the connection: the client that connected to the proxy, and further
    /// information from the proxy. Only connections that a `SocketListener` accepts from the sources of its
    /// `ProxyProtocol` have a header. The value is kept after the connection closes.
    public internal(set) var proxyHeader: ProxyHeader? {
        get { state.withLock { $0.extras?.value.proxyHeader } }
        set { changeExtras { $0.proxyHeader = newValue } }
    }

    /// The address of the client: the source in the PROXY header, or `connectedAddress` otherwise.
    ///
    /// `connectedAddress` is returned if the connection has no header, or if the header names no client, as
    /// in a proxy's health check.
    public var originalAddress: SocketEndpoint? {
        guard let proxyHeader, proxyHeader.transport == .stream else { return connectedAddress }
        return proxyHeader.source ?? connectedAddress
    }

    /// The socket's event loop, for other tasks that use the socket: `Task(executorPreference:
    /// socket.executor) { … }`.
    ///
    /// A socket never changes its loop. See `ConnectionExecutor.eventLoop` for the code that may run there.
    /// The value is `nil`, which means no preference, only if the process has no free descriptors for a
    /// loop.
    public var executor: SocketEventLoop? {
        try? chooseLoop(.connect)
    }
}
