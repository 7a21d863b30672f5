internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

// Another process takes over the sockets of a listener.
extension DatagramHub {
    private static let socketsPerTurn = 32
    // Bounded, because other hosts may send without a pause.
    private static let rounds = 16

    var cookies: DTLSCookies? { setup.cookies }

    var ownDescriptors: [DatagramDescriptor] { descriptors.withLock { $0.own } }

    /// Opens a socket for each peer, receives the datagrams that have arrived, and stops receiving from the
    /// listener's sockets.
    nonisolated(nonsending) func leaveSockets() async {
        let shared = PeerSockets.permitSharing(of: ownDescriptors)
        defer { PeerSockets.forbidSharing(of: shared) }
        // In several turns, so that other connections of the loop are served in between.
        for _ in 0...maximumPeers / Self.socketsPerTurn {
            let hasOpened = await onLoop { hub in
                let opened = hub.openPeerSockets(atMost: Self.socketsPerTurn)
                // Datagrams that arrived earlier are delivered first.
                hub.receiveAll(from: hub.sharedPorts)
                return !opened.isEmpty
            }
            guard hasOpened else { break }
        }
        _ = await onLoop { hub in
            guard hub.state.withLock({ $0.leaveSockets() }) else { return false }
            hub.receiveRest()
            // The receivers for multicast groups are not shared with the other process.
            hub.leftPorts = hub.sharedPorts
            hub.ports.removeAll { hub.isShared($0) }
            for port in hub.leftPorts { hub.loop.unwatch(port.descriptor.socket) }
            return true
        }
    }

    /// Receives from the listener's sockets again, if the other process has failed.
    nonisolated(nonsending) func resumeSockets() async {
        _ = await onLoop { hub in
            let registration = hub.state.withLock { state in
                state.resumeSockets()
                return state.registration
            }
            guard let registration else { return false }
            let ports = hub.leftPorts
            hub.leftPorts = []
            hub.ports += ports
            for port in ports {
                do throws(SystemError) {
                    try hub.loop.watch(port.descriptor.socket, for: registration)
                } catch {
                    hub.fail(with: error)
                }
                port.isReady = true
            }
            hub.loop.resume(registration)
            return true
        }
    }

    private var sharedPorts: [DatagramPort] { ports.filter { isShared($0) } }

    /// Whether the other process has the socket too.
    private func isShared(_ port: DatagramPort) -> Bool { port.descriptor.socket === port.replyDescriptor.socket }

    private nonisolated(nonsending) func onLoop(_ body: @escaping @Sendable (DatagramHub) -> Bool) async -> Bool {
        await withUnsafeContinuation { continuation in
            loop.run { [self] in continuation.resume(returning: body(self)) }
        }
    }

    /// Returns the ports of the new sockets.
    private func openPeerSockets(atMost limit: Int) -> [DatagramPort] {
        let peers = state.withLock { state -> [ListenerPeer] in
            guard state.registration != nil else { return [] }
            state.hasPeerSockets = true
            return state.all
        }
        guard !peers.isEmpty else { return [] }
        let opened = peerSockets.open(
            for: peers, atMost: limit,
            PeerSockets.Setup(options: setup.options, reception: setup.reception, own: sharedPorts, handler: self))
        if let first = opened.failed.first {
            setup.logger.warning(
                "sockets for peers could not be opened during the handover",
                metadata: [
                    "reason": "\(first.1)", "count": "\(opened.failed.count)", "peer": "\(first.0.key.peer.socketAddress)",
                ])
        }
        for (peer, error) in opened.failed { peer.connection.post(.close(AsyncSocketError(error, operation: .receive))) }
        return opened.ports
    }

    /// Receives the datagrams that have arrived. Afterwards, each peer has a socket.
    private func receiveRest() {
        var opened = openPeerSockets(atMost: .max)
        for _ in 0..<Self.rounds {
            receiveAll(from: sharedPorts)
            receiveAll(from: opened)
            // The last step opens sockets: another datagram could add a peer without a socket.
            opened = openPeerSockets(atMost: .max)
            if opened.isEmpty { break }
        }
    }

    private func receiveAll(from ports: [DatagramPort]) {
        for port in ports {
            port.isReady = true
            for _ in 0..<Self.rounds where port.isReady { receive(from: port) }
            while let datagram = port.receiver.next() { dispatch(datagram, port) }
        }
        announce()
    }
}
