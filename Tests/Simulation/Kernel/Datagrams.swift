internal import CSimulation
internal import Glibc

/// A datagram in transit or in a receive buffer.
struct Packet {
    let from: Place
    let to: Place
    let bytes: [UInt8]
    var arrival: UInt64 = 0
}

/// A UDP socket.
final class DatagramSocket: KernelObject {
    fileprivate(set) var place = Place(address: 0, port: 0)
    fileprivate(set) var peer: Place?
    private(set) var queue: [Packet] = []
    /// The error that the next call reports.
    private var error: Int32 = 0
    /// UDP_SEGMENT in linux/udp.h.
    static let segmentOption: Int32 = 103
    /// How many datagrams fit into the receive buffer.
    private static let capacity = 40

    override var ownPlace: Place? { place }

    override var readiness: UInt32 {
        (queue.isEmpty ? 0 : EPOLLIN.rawValue) | (error != 0 ? EPOLLERR.rawValue | EPOLLIN.rawValue : 0) | EPOLLOUT.rawValue
    }

    func takeError() -> Int32 {
        defer { error = 0 }
        return error
    }

    func fail(_ code: Int32) {
        error = code
        announce()
    }

    /// Whether a datagram from `source` to `destination` is for this socket.
    func hears(_ packet: Packet) -> Bool {
        guard place.port == packet.to.port, place.address == 0 || place.address == packet.to.address else { return false }
        return peer == nil || peer == packet.from
    }

    /// Returns `false` if the buffer is full.
    func add(_ packet: Packet) -> Bool {
        guard queue.count < Self.capacity else { return false }
        queue.append(packet)
        announce()
        return true
    }

    func takeFirst() -> Packet { queue.removeFirst() }

    override func close() { Kernel.shared.change { network in network.sockets.removeAll { $0 === self } } }
}

extension Network {
    /// Passes a datagram to the network, which may lose or double it. The order is not kept.
    mutating func send(_ packet: Packet, _ socket: DatagramSocket, _ kernel: Kernel) {
        inspect(packet)
        var copies = 1
        if kernel.happens(kernel.faults.losses, socket) { copies = 0 }
        if kernel.happens(kernel.faults.doubles, socket) { copies += 1 }
        for _ in 0..<copies {
            var copy = packet
            copy.arrival = kernel.now + link.latency + UInt64(kernel.pick(3, socket)) * link.latency / 2
            packets.append(copy)
        }
        kernel.trace("sends", socket, packet.bytes.count, copies)
        attack(packet, socket, kernel)
    }

    /// An attacker sends an earlier datagram again, now or later, or sends its own.
    private mutating func attack(_ packet: Packet, _ socket: DatagramSocket, _ kernel: Kernel) {
        seen.append(packet)
        if kernel.happens(kernel.faults.replays, socket) {
            var copy = seen[kernel.pick(seen.count, socket)]
            copy.arrival = kernel.now + UInt64(kernel.pick(4, socket)) * 400_000_000
            packets.append(copy)
        }
        if kernel.happens(kernel.faults.forgeries, socket) {
            packets.append(Packet(from: packet.from, to: packet.to, bytes: forge(packet), arrival: kernel.now))
        }
    }

    mutating func arrive(_ packet: Packet, _ kernel: Kernel) {
        let listening = sockets.filter { $0.hears(packet) }
        guard let receiver = listening.first(where: { $0.peer != nil }) ?? listening.first else {
            // An ICMP message is returned to the sender.
            let sender = sockets.first { $0.place.port == packet.from.port }
            if let sender, sender.peer != nil, !kernel.happens(kernel.faults.losses, sender) { sender.fail(ECONNREFUSED) }
            return
        }
        if receiver.add(packet) { arrived[packet.bytes, default: 0] += 1 }
        kernel.trace("receives", receiver, packet.bytes.count)
    }

    mutating func nextPort() -> UInt16 {
        counts.nextPort += 1
        return counts.nextPort
    }
}

// MARK: - System calls

/// Returns zero, or a negative errno value.
func connectDatagrams(of socket: DatagramSocket, to place: Place?, _ kernel: Kernel) -> Int32 {
    socket.peer = place
    if place != nil { give(socket, kernel) }
    kernel.trace("connect", socket, Int(place?.port ?? 0))
    return 0
}

/// Chooses the address and the port of a socket that has none.
private func give(_ socket: DatagramSocket, _ kernel: Kernel) {
    if socket.place.port == 0 { socket.place.port = kernel.change { $0.nextPort() } }
    if socket.place.address == 0, socket.peer != nil { socket.place.address = 0x7F00_0001 }
}

func bindDatagrams(of socket: DatagramSocket, to place: Place, _ kernel: Kernel) -> Int32 {
    socket.place = place
    if place.port == 0 { socket.place.port = kernel.change { $0.nextPort() } }
    return 0
}

@_cdecl("sim_send_message") func simulatedSendMessage(_ descriptor: Int32, _ message: UnsafePointer<msghdr>) -> Int {
    let kernel = Kernel.shared
    guard let socket = kernel.find(descriptor, DatagramSocket.self) else {
        return simulatedSend(descriptor, UnsafePointer(message.pointee.msg_iov), message.pointee.msg_iovlen)
    }
    kernel.point()
    return send(message.pointee, socket, kernel)
}

private func send(_ message: msghdr, _ socket: DatagramSocket, _ kernel: Kernel) -> Int {
    if kernel.happens(kernel.faults.interrupts, socket) { return -Int(EINTR) }
    if case let code = socket.takeError(), code != 0 { return -Int(code) }
    if kernel.happens(kernel.faults.shortages, socket) { return -Int(ENOBUFS) }
    if kernel.happens(kernel.faults.refusals, socket) {
        kernel.after(1_000_000) { socket.announce() }
        return -Int(EAGAIN)
    }
    var destination = socket.peer
    if message.msg_namelen > 0, let name = message.msg_name {
        destination = Place(UnsafePointer(name.assumingMemoryBound(to: sockaddr.self)), message.msg_namelen)
    }
    guard let destination else { return -Int(EDESTADDRREQ) }
    give(socket, kernel)
    var bytes: [UInt8] = []
    for part in UnsafeBufferPointer(start: message.msg_iov, count: message.msg_iovlen) {
        bytes += UnsafeRawBufferPointer(start: part.iov_base, count: part.iov_len)
    }
    var from = socket.place
    if from.address == 0 { from.address = 0x7F00_0001 }
    let size = segmentSize(of: message) ?? max(bytes.count, 1)
    if bytes.count > size, kernel.happens(kernel.faults.segments, socket) {
        return -Int([EIO, EINVAL][kernel.pick(2, socket)])
    }
    for start in stride(from: 0, to: max(bytes.count, 1), by: size) {
        let part = Array(bytes[start..<min(start + size, bytes.count)])
        kernel.change { $0.send(Packet(from: from, to: destination, bytes: part), socket, kernel) }
    }
    return bytes.count
}

/// Returns the size of the datagrams into which the kernel splits a message (UDP_SEGMENT, udp(7)).
private func segmentSize(of message: msghdr) -> Int? {
    let control = UnsafeRawBufferPointer(start: message.msg_control, count: Int(message.msg_controllen))
    let headerSize = MemoryLayout<cmsghdr>.size
    var offset = 0
    while offset + headerSize < control.count {
        let header = control.loadUnaligned(fromByteOffset: offset, as: cmsghdr.self)
        if header.cmsg_level == Int32(IPPROTO_UDP), header.cmsg_type == DatagramSocket.segmentOption {
            return Int(control.loadUnaligned(fromByteOffset: offset + headerSize, as: UInt16.self))
        }
        offset += max(headerSize, (Int(header.cmsg_len) + 7) & ~7)
    }
    return nil
}

@_cdecl("sim_send_messages") func simulatedSendMessages(
    _ descriptor: Int32, _ messages: UnsafeMutablePointer<CSimulation_message>, _ count: Int32
) -> Int32 {
    let kernel = Kernel.shared
    kernel.point()
    guard let socket = kernel.find(descriptor, DatagramSocket.self) else { return -EBADF }
    for index in 0..<Int(count) {
        let sent = send(messages[index].header, socket, kernel)
        // The error of a later datagram is reported by the next call.
        if sent < 0 { return index > 0 ? Int32(index) : Int32(sent) }
        messages[index].length = UInt32(sent)
    }
    kernel.point()
    return count
}

@_cdecl("sim_receive_messages") func simulatedReceiveMessages(
    _ descriptor: Int32, _ messages: UnsafeMutablePointer<CSimulation_message>, _ count: Int32
) -> Int32 {
    let kernel = Kernel.shared
    kernel.point()
    guard let socket = kernel.find(descriptor, DatagramSocket.self) else { return -EBADF }
    if kernel.happens(kernel.faults.interrupts, socket) { return -EINTR }
    if case let code = socket.takeError(), code != 0 { return -code }
    if kernel.happens(kernel.faults.shortages, socket) { return -ENOBUFS }
    if !socket.queue.isEmpty, kernel.happens(kernel.faults.refusals, socket) {
        socket.announce()
        return -EAGAIN
    }
    var index = 0
    while index < Int(count), !socket.queue.isEmpty {
        store(socket.takeFirst(), in: &messages[index])
        index += 1
    }
    kernel.trace("recvmmsg", socket, index)
    return index == 0 ? -EAGAIN : Int32(index)
}

private func store(_ packet: Packet, in message: inout CSimulation_message) {
    let room = UnsafeMutableRawBufferPointer(start: message.header.msg_iov[0].iov_base, count: message.header.msg_iov[0].iov_len)
    let kept = packet.bytes.prefix(room.count)
    room.copyBytes(from: kept)
    message.length = UInt32(packet.bytes.count)
    message.header.msg_flags = kept.count < packet.bytes.count ? Int32(MSG_TRUNC) : 0
    message.header.msg_controllen = 0
    if let name = message.header.msg_name {
        _ = packet.from.store(name.assumingMemoryBound(to: sockaddr.self), &message.header.msg_namelen)
    }
}
