public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Connects to a host.
    ///
    /// Returns at once. The name is resolved and its addresses are tried in order; then the delegate gets `socket(_:didConnectToHost:port:)` or
    /// `socketDidDisconnect(_:withError:)`. Reads, writes and `startTLS` may be queued before that.
    ///
    /// - Parameters:
    ///   - host: A name, or an IPv4 or IPv6 address.
    ///   - port: A TCP port, 1 to 65535.
    ///   - timeout: Seconds for the resolving and connecting together; negative: no limit.
    /// - Throws: `.badConfiguration` when the socket is in use, `.badParameter` for an empty host or port 0.
    public func connect(toHost host: String, onPort port: UInt16, withTimeout timeout: TimeInterval = -1) throws(AsyncSocketError)
    {
        guard !host.isEmpty, !host.utf8.contains(0) else { throw .badParameter("connect", "the host is empty, or no host name") }
        guard port > 0 else { throw .badParameter("connect", "nobody listens on port 0") }
        guard !timeout.isNaN else { throw .badParameter("connect", "the timeout is not a number") }
        let connection = try makeConnection("connect")
        connection.post(.connect(ConnectionPhase.Destination(host: host, port: port), timeout: timeout))
    }

    /// A connection for this socket, on a loop, that has not been told yet what to do.
    func makeConnection(_ operation: String) throws(AsyncSocketError) -> StreamConnection {
        let connection = StreamConnection(for: self, configuration: configuration, loop: try chooseLoop(operation))
        // Before anybody can reach it: a `disconnect()` from elsewhere finds a connection that can tell of its end.
        connection.register()
        do throws(AsyncSocketError) {
            try occupy(operation, with: .connection(connection))
        } catch {
            connection.deregister()
            throw error
        }
        return connection
    }

    /// The socket's loop.
    func chooseLoop(_ operation: String) throws(AsyncSocketError) -> EventLoop {
        if let loop = state.withLock({ $0.loop }) { return loop }
        do throws(SystemError) {
            let loop = try EventLoop.next()
            return state.withLock { state in
                let chosen = state.loop ?? loop
                state.loop = chosen
                return chosen
            }
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
    }
}
