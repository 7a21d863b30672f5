internal import SocketBuffers
internal import SocketCore

/// The sockets from which a hub receives its peers' datagrams once another process owns the listener's
/// sockets. Confined to the loop.
final class PeerSockets: Sendable {
    private let loop: SocketEventLoop
    @exclusivity(unchecked) nonisolated(unsafe) private var sockets: [ObjectIdentifier: PeerSocket] = [:]

    init(on loop: SocketEventLoop) {
        self.loop = loop
    }

    /// Opens the sockets that are missing.
    ///
    /// - Parameter ports: The ports of the listener.
    /// - Returns: The peers for which no socket could be opened.
    func open(
        for peers: [ListenerPeer], beside ports: [DatagramPort], _ handler: any PortHandler
    ) -> [(ListenerPeer, SystemError)] {
        let peers = peers.filter { sockets[ObjectIdentifier($0.mailbox)] == nil }
        guard !peers.isEmpty else { return [] }
        let own = ports.filter { $0.descriptor.socket === $0.replyDescriptor.socket }
        // Several sockets can have the same address only if all of them have this option.
        let changed = own.filter { Self.setReuseAddress(of: $0, true) }
        defer { for port in changed { _ = Self.setReuseAddress(of: port, false) } }
        var unserved: [(ListenerPeer, SystemError)] = []
        for peer in peers {
            do throws(SystemError) {
                let socket = PeerSocket(try Self.port(for: peer.key, like: own), handler)
                try socket.start(loop)
                sockets[ObjectIdentifier(peer.mailbox)] = socket
            } catch {
                unserved.append((peer, error))
            }
        }
        return unserved
    }

    /// Returns whether the option has changed. If the kernel refuses it, binding fails later.
    private static func setReuseAddress(of port: DatagramPort, _ value: Bool) -> Bool {
        do throws(SystemError) {
            guard try port.descriptor.socket.value(of: .reuseAddress) != value else { return false }
            try port.descriptor.set(.reuseAddress, to: value)
            return true
        } catch {
            return false
        }
    }

    /// Opens a socket that receives only from the peer: the kernel prefers it to an unconnected socket with
    /// the same local address.
    private static func port(for key: PeerKey, like own: [DatagramPort]) throws(SystemError) -> DatagramPort {
        guard let port = own.first(where: { ($0.descriptor.families != .ipv4) == key.peer.isIPv6 }),
            let address = key.local?.socketAddress ?? port.descriptor.localAddress
        else { throw SystemError("bind", errno: 0, detail: "the listener has no address of this family") }
        let descriptor = try DatagramDescriptor(opening: port.descriptor.families)
        _ = try descriptor.prepareReception()
        try descriptor.set(.reuseAddress, to: true)
        try descriptor.setIfPossible(.reusePort, to: port.descriptor.socket.value(of: .reusePort))
        try descriptor.bind(to: address)
        try descriptor.connect(to: key.peer.socketAddress)
        return DatagramPort(descriptor, like: port)
    }

    func close(of mailbox: PeerMailbox) {
        sockets.removeValue(forKey: ObjectIdentifier(mailbox))?.stop(loop)
    }

    func closeAll() {
        for socket in sockets.values { socket.stop(loop) }
        sockets = [:]
    }
}

/// The socket of one peer.
private final class PeerSocket: EventHandler {
    @exclusivity(unchecked) nonisolated(unsafe) private let port: DatagramPort
    private let handler: any PortHandler
    /// `nil` before `start` and after `stop`.
    @exclusivity(unchecked) nonisolated(unsafe) private var registration: LoopRegistration?

    init(_ port: DatagramPort, _ handler: any PortHandler) {
        (self.port, self.handler) = (port, handler)
    }

    func start(_ loop: SocketEventLoop) throws(SystemError) {
        let registration = loop.register(self)
        do throws(SystemError) {
            try loop.watch(port.descriptor.socket, for: registration)
        } catch {
            loop.deregister(registration)
            throw error
        }
        self.registration = registration
        // Datagrams may have arrived before the loop watches the socket.
        loop.resume(registration)
    }

    func stop(_ loop: SocketEventLoop) {
        guard let registration = registration.take() else { return }
        loop.unwatch(port.descriptor.socket)
        loop.deregister(registration)
        port.descriptor.socket.close()
    }

    func handle(_ events: LoopEvents) {
        guard let registration else { return }
        handler.handle(events, of: [port], as: registration)
    }
}
