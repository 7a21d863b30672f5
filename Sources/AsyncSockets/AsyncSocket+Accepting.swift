internal import Dispatch
internal import Logging
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Listens on a port of every interface, IPv4 and IPv6.
    ///
    /// Returns when the port is bound, so that `localPort` is known. Each connection is announced by `socket(_:didAcceptNewSocket:)`; the socket
    /// it brings must be kept. `disconnect()` stops listening and leaves the accepted sockets alone.
    ///
    /// - Parameter port: The port; 0 lets the kernel choose a free one.
    /// - Throws: `.badConfiguration` when the socket is in use or has no delegate, `.system` when the port cannot be had.
    public func accept(onPort port: UInt16) throws(AsyncSocketError) {
        try accept(on: ["0.0.0.0", "::"].compactMap { SocketAddress(literal: $0, port: port) })
    }

    /// Listens on a port of one interface.
    ///
    /// - Parameters:
    ///   - interface: A name (`eth0`: all its addresses), an address (`127.0.0.1`, `::1`), or `localhost` or `loopback` for both of these; nil: every interface.
    ///     A port may stand behind it (`eth0:4000`, `[::1]:4000`), for when `port` is 0.
    ///   - port: The port; 0 lets the kernel choose a free one.
    /// - Throws: `.badParameter` when there is no such interface, `.noUsableAddress` when it has no address of an enabled family, and otherwise what
    ///   `accept(onPort:)` throws.
    public func accept(onInterface interface: String?, port: UInt16) throws(AsyncSocketError) {
        guard let interface else { return try accept(onPort: port) }
        let families = try configuration.enabledFamilies("accept")
        let addresses = try LocalInterface.named(interface, "accept", families: families).addresses
        try accept(on: addresses.filter { families.allows($0.family) }.map { port == 0 ? $0 : $0.withPort(port) })
    }

    private func accept(on addresses: [SocketAddress]) throws(AsyncSocketError) {
        guard delegate != nil else { throw .badConfiguration("accept", "a listener needs a delegate to give its connections to") }
        let listener = try bind(to: addresses)
        try occupy("accept", with: .listening(listener))
        do throws(SystemError) {
            try listener.start()
        } catch {
            listener.close()
            state.withLock { $0.occupation = .nothing }
            throw AsyncSocketError(error, operation: "accept")
        }
    }

    private func bind(to addresses: [SocketAddress]) throws(AsyncSocketError) -> Listener {
        let loop = try chooseLoop("accept")
        do throws(SystemError) {
            return try Listener.listen(on: addresses, loop: loop) { [weak self] event in self?.deliver(event) }
        } catch {
            throw AsyncSocketError(error, operation: "accept")
        }
    }

    /// On the listener's loop: an event of the listener, on its way to the delegate.
    private func deliver(_ event: DelegateEvent) {
        if case .didDisconnect = event { state.withLock { $0.occupation = .nothing } }
        guard let queue = delegateQueue ?? socketQueue else {
            return event.deliver(to: delegate, from: self)
        }
        queue.async { [weak self] in
            guard let self else { return }
            event.deliver(to: delegate, from: self)
        }
    }

    /// On the delegate queue: makes a socket of an accepted descriptor and hands it to the delegate.
    ///
    /// Without a delegate the descriptor is closed when it goes out of scope.
    func adopt(_ descriptor: SocketDescriptor, from peer: SocketAddress, for delegate: (any AsyncSocketDelegate)?) {
        guard let delegate else { return }
        let queue = delegate.newSocketQueueForConnection(fromAddress: peer, on: self)
        let socket = AsyncSocket(delegate: delegate, delegateQueue: delegateQueue, socketQueue: queue)
        do throws(AsyncSocketError) {
            let connection = try socket.makeConnection("accept")
            connection.introduce(descriptor, peer: peer)
            // What happens on the connection is told after the socket itself has been: so it begins to live only now.
            delegate.socket(self, didAcceptNewSocket: socket)
            connection.post(.adopt(descriptor))
        } catch {
            socketLogger.error("an accepted connection is lost", metadata: ["error": "\(error)"])
        }
    }
}
