internal import CSimulation
internal import Glibc

/// An address and a port.
struct Place: Hashable {
    var isIPv6 = false
    /// The last four bytes of the address. The first twelve bytes of an IPv6 address are zero.
    var address: UInt32 = 0x7F00_0001
    var port: UInt16

    /// The place of one of the connections that exist at the beginning of a run.
    static func standard(_ number: Int) -> Place { Place(port: UInt16(10_000 + number % 50_000)) }

    init(isIPv6: Bool = false, address: UInt32 = 0x7F00_0001, port: UInt16) {
        (self.isIPv6, self.address, self.port) = (isIPv6, address, port)
    }

    init?(_ address: UnsafePointer<sockaddr>, _ length: socklen_t) {
        let raw = UnsafeRawPointer(address)
        switch Int32(address.pointee.sa_family) {
        case AF_INET where length >= socklen_t(MemoryLayout<sockaddr_in>.size):
            let own = raw.loadUnaligned(as: sockaddr_in.self)
            self.init(address: UInt32(bigEndian: own.sin_addr.s_addr), port: UInt16(bigEndian: own.sin_port))
        case AF_INET6 where length >= socklen_t(MemoryLayout<sockaddr_in6>.size):
            let own = raw.loadUnaligned(as: sockaddr_in6.self)
            let last = withUnsafeBytes(of: own.sin6_addr) { $0.loadUnaligned(fromByteOffset: 12, as: UInt32.self) }
            self.init(isIPv6: true, address: UInt32(bigEndian: last), port: UInt16(bigEndian: own.sin6_port))
        default: return nil
        }
    }

    /// Returns zero, or a negative errno value.
    func store(_ room: UnsafeMutablePointer<sockaddr>, _ length: UnsafeMutablePointer<socklen_t>) -> Int32 {
        let size = MemoryLayout<sockaddr_in6>.size
        guard length.pointee >= socklen_t(size) else { return -EINVAL }
        let raw = UnsafeMutableRawPointer(room)
        if isIPv6 {
            var own = sockaddr_in6()
            own.sin6_family = sa_family_t(AF_INET6)
            own.sin6_port = port.bigEndian
            withUnsafeMutableBytes(of: &own.sin6_addr) {
                $0.storeBytes(of: address.bigEndian, toByteOffset: 12, as: UInt32.self)
            }
            raw.storeBytes(of: own, as: sockaddr_in6.self)
        } else {
            var own = sockaddr_in()
            own.sin_family = sa_family_t(AF_INET)
            own.sin_addr.s_addr = address.bigEndian
            own.sin_port = port.bigEndian
            raw.storeBytes(of: own, as: sockaddr_in.self)
        }
        length.pointee = socklen_t(isIPv6 ? size : MemoryLayout<sockaddr_in>.size)
        return 0
    }
}

/// A stream socket that is neither connected nor listening.
final class UnusedSocket: KernelObject {
    let isIPv6: Bool
    var place: Place?

    init(isIPv6: Bool) { self.isIPv6 = isIPv6 }

    override var ownPlace: Place? { place ?? Place(isIPv6: isIPv6, address: 0, port: 0) }
    override var readiness: UInt32 { EPOLLOUT.rawValue | EPOLLHUP.rawValue }
}

/// A listening socket.
final class ListeningSocket: KernelObject {
    let place: Place
    private let limit: Int
    /// The connections that have not been accepted.
    private(set) var backlog: [StreamEnd] = []

    init(_ place: Place, limit: Int) { (self.place, self.limit) = (place, limit) }

    override var ownPlace: Place? { place }
    override var readiness: UInt32 { backlog.isEmpty ? 0 : EPOLLIN.rawValue }
    var isFull: Bool { backlog.count >= limit }

    func queue(_ end: StreamEnd) {
        backlog.append(end)
        announce()
    }

    func takeFirst() -> StreamEnd? { backlog.isEmpty ? nil : backlog.removeFirst() }

    override func close() {
        let kernel = Kernel.shared
        kernel.change { network in network.listeners.removeAll { $0 === self } }
        for end in backlog { end.peer?.fail(ECONNRESET, kernel) }
        backlog = []
    }
}

// MARK: - Establishing connections

extension Network {
    /// A connection that is being established.
    struct Handshake {
        let client: StreamEnd
        let server: StreamEnd
        let arrival: UInt64
    }

    struct Counts {
        /// The failures that the kernel has invented.
        var injected = 0
        var accepted = 0
        var nextPort: UInt16 = 20_000
    }

    /// Begins to connect `client` to `server`.
    mutating func begin(_ client: StreamEnd, _ server: StreamEnd, from source: Place?, to destination: Place, _ kernel: Kernel) {
        counts.nextPort += 1
        var own = source ?? Place(isIPv6: destination.isIPv6, address: destination.isIPv6 ? 1 : 0x7F00_0001, port: 0)
        if own.port == 0 { own.port = counts.nextPort }
        (client.place, client.remotePlace) = (own, destination)
        (server.place, server.remotePlace) = (destination, own)
        client.beginConnecting()
        let latency = routes[destination]?.latency ?? link.latency
        handshakes.append(Handshake(client: client, server: server, arrival: kernel.now + latency))
    }

    private static let retransmission: UInt64 = 1_000_000_000

    /// The first segment has reached the other side.
    mutating func arrive(_ handshake: Handshake, _ kernel: Kernel) {
        let client = handshake.client
        if client.isClosed || client.isBroken { return }
        switch routes[client.remotePlace]?.outcome {
        case .accepted: return client.finishConnecting()
        case .refused: return client.fail(ECONNREFUSED, kernel)
        case .lost: return
        case nil: break
        }
        if kernel.happens(kernel.faults.handshakes, client) { return fail(handshake, kernel) }
        guard let listener = listeners.first(where: { $0.place == client.remotePlace }) else {
            return client.fail(ECONNREFUSED, kernel)
        }
        if listener.isFull { return repeatLater(handshake, kernel) }
        kernel.trace("established", client)
        client.finishConnecting()
        listener.queue(handshake.server)
    }

    private mutating func repeatLater(_ handshake: Handshake, _ kernel: Kernel) {
        let arrival = kernel.now + Self.retransmission
        handshakes.append(Handshake(client: handshake.client, server: handshake.server, arrival: arrival))
    }

    private mutating func fail(_ handshake: Handshake, _ kernel: Kernel) {
        counts.injected += 1
        switch kernel.pick(5, handshake.client) {
        case 0: repeatLater(handshake, kernel)
        case 1: handshake.client.fail(ECONNREFUSED, kernel)
        case 2: handshake.client.fail(EHOSTUNREACH, kernel)
        case 3: handshake.client.fail(ECONNRESET, kernel)
        // No segment returns.
        default: kernel.trace("vanishes", handshake.client)
        }
    }
}

// MARK: - System calls

@_cdecl("sim_socket") func simulatedSocket(_ domain: Int32, _ type: Int32) -> Int32 {
    let kernel = Kernel.shared
    kernel.point()
    let socket = UnusedSocket(isIPv6: domain == AF_INET6)
    if kernel.happens(kernel.faults.sockets, socket) {
        kernel.change { $0.counts.injected += 1 }
        return -[EMFILE, ENFILE, ENOBUFS][kernel.pick(3, socket)]
    }
    guard type == Int32(SOCK_DGRAM.rawValue) else { return kernel.open(socket) }
    let datagrams = DatagramSocket()
    kernel.change { $0.sockets.append(datagrams) }
    return kernel.open(datagrams)
}

@_cdecl("sim_bind") func simulatedBind(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ length: socklen_t) -> Int32 {
    let kernel = Kernel.shared
    guard let place = Place(address, length) else { return -EINVAL }
    if let socket = kernel.find(descriptor, DatagramSocket.self) { return bindDatagrams(of: socket, to: place, kernel) }
    guard let socket = kernel.find(descriptor, UnusedSocket.self) else { return -EINVAL }
    socket.place = place
    return 0
}

@_cdecl("sim_listen") func simulatedListen(_ descriptor: Int32, _ backlog: Int32) -> Int32 {
    let kernel = Kernel.shared
    guard let socket = kernel.find(descriptor, UnusedSocket.self), let place = socket.place else { return -EINVAL }
    let listener = ListeningSocket(place, limit: Int(backlog))
    _ = kernel.open(listener, as: descriptor)
    kernel.change { $0.listeners.append(listener) }
    return 0
}

@_cdecl("sim_accept") func simulatedAccept(
    _ descriptor: Int32, _ address: UnsafeMutablePointer<sockaddr>, _ length: UnsafeMutablePointer<socklen_t>
) -> Int32 {
    let kernel = Kernel.shared
    kernel.point()
    guard let listener = kernel.find(descriptor, ListeningSocket.self) else { return -EBADF }
    if kernel.happens(kernel.faults.interrupts, listener) { return -EINTR }
    if listener.backlog.isEmpty { return -EAGAIN }
    if kernel.happens(kernel.faults.refusals, listener) {
        listener.announce()
        return -EAGAIN
    }
    if kernel.happens(kernel.faults.accepts, listener) { return -failureOfAccept(listener, kernel) }
    guard let end = listener.takeFirst() else { return -EAGAIN }
    kernel.change { $0.counts.accepted += 1 }
    let number = kernel.open(end)
    kernel.trace("accept", end)
    kernel.onAccept(end)
    kernel.point()
    return end.remotePlace.store(address, length) == 0 ? number : -EINVAL
}

private func failureOfAccept(_ listener: ListeningSocket, _ kernel: Kernel) -> Int32 {
    let code = [EMFILE, ENFILE, ENOBUFS, ENOMEM, ECONNABORTED, EPROTO, EPERM, ENETDOWN][kernel.pick(8, listener)]
    kernel.trace("accept fails", listener, Int(code))
    if code == ECONNABORTED, let end = listener.takeFirst() {
        kernel.change { $0.counts.injected += 1 }
        end.peer?.fail(ECONNRESET, kernel)
    }
    return code
}

@_cdecl("sim_connect") func simulatedConnect(
    _ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ length: socklen_t
) -> Int32 {
    let kernel = Kernel.shared
    kernel.point()
    if let socket = kernel.find(descriptor, DatagramSocket.self) {
        return connectDatagrams(of: socket, to: Place(address, length), kernel)
    }
    guard let place = Place(address, length), let socket = kernel.find(descriptor, UnusedSocket.self) else { return -EISCONN }
    if kernel.happens(kernel.faults.connects, socket) {
        kernel.change { $0.counts.injected += 1 }
        return -[EADDRNOTAVAIL, ECONNREFUSED, ENETUNREACH, ETIMEDOUT][kernel.pick(4, socket)]
    }
    let client = kernel.change { network in
        let (client, server) = network.makePair(network.link)
        network.begin(client, server, from: socket.place, to: place, kernel)
        return client
    }
    _ = kernel.open(client, as: descriptor)
    kernel.trace("connect", client)
    kernel.point()
    if !client.isConnecting, !client.isBroken { return 0 }
    return kernel.happens(kernel.faults.interrupts, client) ? -EINTR : -EINPROGRESS
}
