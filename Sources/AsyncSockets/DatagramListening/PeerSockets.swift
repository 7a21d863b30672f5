internal import SocketBuffers
internal import SocketCore

// Rules:
//  1. The kernel prefers a socket that is connected to the sender of a datagram over unconnected sockets.
//  2. Sockets share an address while all of them have `SO_REUSEPORT`, and the kernel requires that they
//     belong to one user. `SO_REUSEADDR` would let another user receive the datagrams. The listener's sockets
//     have the option during the handover. The sockets of peers keep it, because the next process opens more
//     of them.
//  3. Between bind(2) and connect(2), a peer's socket also receives datagrams from strangers. They are
//     dispatched by the address of the sender, like other datagrams.

/// The sockets from which a hub receives its peers' datagrams once another process owns the listener's
/// sockets. Confined to the loop.
final class PeerSockets: Sendable {
    /// The settings for new sockets.
    struct Setup {
        let options: SocketOptionSet
        let reception: DatagramReception
        /// The ports of the listener's own sockets.
        let own: [DatagramPort]
        let handler: any PortHandler
    }

    private let loop: SocketEventLoop
    @exclusivity(unchecked) nonisolated(unsafe) private var sockets: [ObjectIdentifier: PeerSocket] = [:]
    /// Peers for which no socket can be opened.
    @exclusivity(unchecked) nonisolated(unsafe) private var unserved: Set<ObjectIdentifier> = []

    init(on loop: SocketEventLoop) {
        self.loop = loop
    }

    struct Opened {
        let ports: [DatagramPort]
        /// The peers for which no socket could be opened.
        let failed: [(ListenerPeer, SystemError)]
    }

    /// Opens a socket for each peer that does not have one yet, up to `limit` sockets.
    func open(for peers: [ListenerPeer], atMost limit: Int, _ setup: Setup) -> Opened {
        var ports: [DatagramPort] = []
        var failed: [(ListenerPeer, SystemError)] = []
        for peer in peers where ports.count + failed.count < limit {
            let id = ObjectIdentifier(peer.mailbox)
            if sockets[id] != nil || unserved.contains(id) || peer.key.isGroup { continue }
            do throws(SystemError) {
                let port = try Self.port(for: peer.key, setup)
                let socket = PeerSocket(port, setup.handler)
                try socket.start(loop)
                sockets[id] = socket
                ports.append(port)
            } catch {
                unserved.insert(id)
                failed.append((peer, error))
            }
        }
        return Opened(ports: ports, failed: failed)
    }

    /// Sets `SO_REUSEPORT`, and returns the sockets that did not have it. If the kernel refuses the option,
    /// binding fails later.
    static func permitSharing(of descriptors: [DatagramDescriptor]) -> [DatagramDescriptor] {
        descriptors.filter { descriptor in
            do throws(SystemError) {
                guard try !descriptor.socket.value(of: .reusePort) else { return false }
                try descriptor.set(.reusePort, to: true)
                return true
            } catch {
                return false
            }
        }
    }

    static func forbidSharing(of descriptors: [DatagramDescriptor]) {
        for descriptor in descriptors { _ = try? descriptor.setIfPossible(.reusePort, to: false) }
    }

    /// Opens a socket that receives from the peer.
    private static func port(for key: PeerKey, _ setup: Setup) throws(SystemError) -> DatagramPort {
        let ofFamily = setup.own.filter { ($0.descriptor.families != .ipv4) == key.peer.isIPv6 }
        // A service manager may pass sockets for several ports.
        guard let port = ofFamily.first(where: { $0.receiver.localPort == key.local?.port }) ?? ofFamily.first,
            let address = key.local?.socketAddress ?? port.descriptor.localAddress
        else { throw SystemError("bind", errno: 0, detail: "the listener has no address of this family") }
        let descriptor = try DatagramDescriptor(opening: port.descriptor.families, options: setup.options)
        _ = try descriptor.prepareReception(setup.reception)
        try descriptor.set(.reusePort, to: true)
        try descriptor.bind(to: address)
        try descriptor.connect(to: key.peer.socketAddress)
        return DatagramPort(descriptor, like: port)
    }

    func close(of mailbox: PeerMailbox) {
        unserved.remove(ObjectIdentifier(mailbox))
        sockets.removeValue(forKey: ObjectIdentifier(mailbox))?.stop(loop)
    }

    func closeAll() {
        for socket in sockets.values { socket.stop(loop) }
        (sockets, unserved) = ([:], [])
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
