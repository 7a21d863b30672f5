internal import Dispatch
internal import SocketBuffers
public import SocketCore

extension AsyncUDPSocket {
    /// Whether the socket is bound or connected, or has sent a datagram, and is not closed. A snapshot, like
    /// the other properties of the socket's state.
    public var isOpen: Bool {
        connection?.record.withLock { $0.isOpen && !$0.isClosed } ?? false
    }

    /// Whether the socket is open or connecting.
    package var isInUse: Bool { connection?.record.withLock { $0.isInUse } ?? false }

    /// Whether the socket is in use, or has descriptors that are not bound: see `createDescriptors()`.
    package var isCreated: Bool { connection?.record.withLock { $0.isCreated } ?? false }

    /// Whether the socket is connected or connecting.
    package var isConnectClaimed: Bool { connection?.record.withLock { $0.isConnectClaimed && !$0.isClosed } ?? false }

    /// Whether the socket is closed, or `disconnect()` was called. False for a socket that was never in use.
    public var isClosed: Bool {
        connection?.record.withLock { $0.isClosed } ?? false
    }

    /// Whether the socket is connected to a peer.
    public var isConnected: Bool {
        connection?.record.withLock { $0.peer != nil && !$0.isClosed } ?? false
    }

    /// The peer's address, or `nil` if the socket is not connected. Still available after the socket has
    /// closed.
    public var connectedAddress: SocketEndpoint? {
        connection?.record.withLock { $0.peer }
    }

    /// The peer's IP address as text, or `nil` if the socket is not connected.
    public var connectedHost: String? { connectedAddress?.host }

    /// The peer's port, or `nil` if the socket is not connected.
    public var connectedPort: UInt16? { connectedAddress?.port }

    /// The local addresses: one per IP version that the socket uses, IPv4 first. Empty until the socket is in
    /// use. Still available after the socket has closed.
    public var localAddresses: [SocketEndpoint] {
        connection?.record.withLock { $0.localAddresses } ?? []
    }

    /// The first local address, or `nil` until the socket is in use.
    public var localAddress: SocketEndpoint? { localAddresses.first }

    /// The first local IP address as text, or `nil` until the socket is in use.
    public var localHost: String? { localAddress?.host }

    /// The local port, which is the same for both IP versions; 0 until the socket is in use.
    public var localPort: UInt16 { localAddress?.port ?? 0 }

    /// Whether the socket uses IPv4. Also true for an adopted socket with both IP versions on one descriptor.
    public var isIPv4: Bool {
        guard isOpen, let connection else { return false }
        return connection.record.withLock { record in
            record.localAddresses.contains { $0.family == .ipv4 } || record.descriptors.contains(where: \.hasIPv4)
        }
    }

    /// Whether the socket uses IPv6.
    public var isIPv6: Bool { isOpen && localAddresses.contains { $0.family == .ipv6 } }

    /// The socket's event loop, for tasks that use the socket:
    /// `Task(executorPreference: socket.executor) { … }`. See `AsyncSocket.executor`.
    public var executor: SocketEventLoop? {
        try? chooseLoop(.connect)
    }

    // MARK: - Options

    /// Sets a socket option: `try socket.setOption(.receiveBufferSize, to: 1 << 20)`.
    ///
    /// If the socket is in use, the option takes effect before the call returns, for both IP versions.
    /// Otherwise, it is stored and applied before the socket is bound. See `AsyncSocket.setOption(_:to:)`.
    /// UDP also supports `.broadcast`, `.multicastTTL`, `.multicastLoopback` and `.pathMTUDiscovery`.
    ///
    /// - Throws: `.badParameter` if the value is invalid or UDP does not support the option, `.system` if the
    ///   kernel rejects it.
    public func setOption<Value>(_ option: SocketOptionKey<Value>, to value: Value) throws(AsyncSocketError) {
        if connection?.record.withLock({ $0.sharedAddress }) != nil {
            throw .badConfiguration(.setOption, "the socket shares its listener's descriptor: set the option on the listener")
        }
        let reception = configuration.reception
        do throws(SystemError) {
            try state.withLock { state throws(SystemError) in
                try state.connection?.record.withLock { record throws(SystemError) in
                    try record.set(option, to: value, reception)
                }
                try state.options.set(option, to: value)
            }
        } catch {
            throw AsyncSocketError(refusal: error, operation: .setOption)
        }
        // Watches the descriptors that were opened for broadcasts.
        if option.name == SocketOptionKey.broadcast.name { connection?.post(.opened) }
    }

    /// Returns the value of an option: the kernel's value if the socket is in use, or otherwise the value set
    /// earlier.
    ///
    /// - Throws: `.badConfiguration` if the socket has no descriptor and the option was not set, and
    ///   otherwise the errors of `setOption(_:to:)`.
    public func option<Value>(_ option: SocketOptionKey<Value>) throws(AsyncSocketError) -> Value {
        do throws(SystemError) {
            let value = try state.withLock { state throws(SystemError) in
                let descriptor = state.connection?.record.withLock { $0.descriptors.first }
                return try descriptor?.socket.value(of: option) ?? state.options.value(of: option)
            }
            if let value { return value }
        } catch {
            throw AsyncSocketError(refusal: error, operation: .option)
        }
        throw .badConfiguration(.option, "the socket is not in use and \(option.name) was not set: set the option first")
    }

    /// Runs `body` with the socket's descriptors, one per IP version, while no other operation runs on the
    /// socket. Use it for system calls that this library does not offer. See `AsyncSocket.perform(_:)`.
    ///
    /// - Parameter body: Receives an empty array if the socket is not in use.
    public func perform(_ body: @escaping @Sendable (_ descriptors: [Int32]) -> Void) {
        if let connection { return connection.post(.perform(body)) }
        guard let socketQueue else { return Self.call(body, with: []) }
        socketQueue.async { Self.call(body, with: []) }
    }
}
